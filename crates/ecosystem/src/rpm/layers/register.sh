# Makes the stacked packages known to rpm.
cat /kilnyard/headers/* | rpmdb --importdb
rm -r /kilnyard/headers
while read -r mode owner path; do
  chown "$owner" "/$path"
  chmod "$mode" "/$path"
done < "$TEXTS/layers.folders"
if [ -s "$TEXTS/layers.ldconfig" ]; then ldconfig; fi
# What they require is there, unless rpm still installs others.
xargs -r -d '\n' rpm -V --nofiles --noscripts --nodigest --nosignature -- < "$TEXTS/layers.names"
