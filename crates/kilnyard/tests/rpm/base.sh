#!/bin/sh
# Makes a repository of RPM packages from Debian's, for a base root: base.sh FOLDER
#
# No RPM distribution is at hand, so 173 packages of Debian are converted by rpmbuild, whose generators make what they provide and
# require (../shared/tools/rpm). FOLDER/repo is the repository, FOLDER/set the packages of a base root. A folder that was made
# of the same lists and tools is left as it is, and two that ask for the same one wait for each other. It takes two minutes and 700 MB, and needs apt, rpm, dpkg-dev, debugedit, cpio, python3 and createrepo-c.
set -eu
folder=$1
tools=$(cd "$(dirname "$0")/../../../.." && pwd)/../shared/tools/rpm
mkdir -p "$(dirname "$folder")"
exec 9> "$folder.lock"
flock 9
made_of=$(cat "$0" "$tools/pkgs.txt" "$tools/base.set" "$tools/deb2rpm.py" | sha256sum)
[ "$(cat "$folder/complete" 2>/dev/null)" = "$made_of" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/debs/partial"
folder=$(cd "$folder" && pwd)
apt-get -q -y -o Dir::State::status=/dev/null -o Dir::Cache::archives="$folder/debs" -o Debug::NoLocking=1 -o APT::Sandbox::User=root \
  --no-install-recommends --download-only install $(cat "$tools/pkgs.txt") > "$folder/apt.log" 2>&1 || { tail -5 "$folder/apt.log" >&2; exit 1; }
W=$folder python3 "$tools/deb2rpm.py" "$folder/debs" "$folder/repo" 2 > "$folder/convert.log" 2>&1
grep -q ' 0 failed' "$folder/convert.log" || { tail -5 "$folder/convert.log" >&2; exit 1; }
createrepo_c -q "$folder/repo"
cp "$tools/base.set" "$folder/set"
rm -rf "$folder/debs"
echo "$made_of" > "$folder/complete"
