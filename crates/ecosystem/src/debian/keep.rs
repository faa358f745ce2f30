//! Kept work of sources: folders that one build leaves for the next.
//!
//! dpkg-buildpackage calls [`SCRIPT`] as its hook between the targets `clean` and `build`: what it puts back is not
//! cleaned away, and everything else of the build is as usual. The script runs in the root, as the builder, so an
//! archive made by a hostile build can do no more there than that build itself.
//!
//! A source that is unpacked again has the times of its archive, which say nothing about changes. The script therefore
//! compares contents: files that have changed, or are new, get the current time, and all others are older than the
//! first build whose work was kept. make and ninja then build what depends on changes.
//!
//! Known downside: work that depends on which files exist, such as a search for headers, is not repeated when a file
//! is added. If one is removed, or a link changes, nothing is put back.

use super::stages::BUILD;
use crate::TEXTS;
use kilnyard_model::keep::{KEPT_ARCHIVE, KEPT_BUILD, KeepOrder};
use kilnyard_model::order::{Account, CommandOrder, InputText, Key};

/// The file name of [`SCRIPT`] among the texts.
const NAME: &str = "keep.sh";
/// The name of the script's records in the archive, which is therefore no name for a folder of a source.
const RECORDS: &str = ".kilnyard";
/// Folders with the packaging, and with records of steps that are done. A build without these steps is incomplete.
const RESERVED: [&str; 4] = [RECORDS, ".pc", "debian", "debian/.debhelper"];

/// Whether a folder of a source cannot be kept.
pub fn is_reserved_folder(folder: &str) -> bool {
    RESERVED.contains(&folder) || folder.split('/').next() == Some(RECORDS)
}

/// Puts folders back (`begin`), packs them (`pack`), or prints the number of changed files (`report`).
///
/// Names are separated by NUL bytes throughout, since sources choose them.
const SCRIPT: &str = r#"set -eu
export LC_ALL=C
task=$1 state=$2 archive=$3 number=$4 source=$5
shift 5
new=$state/.kilnyard old=$state/old
cd "$source"

say() {
  echo "kilnyard: $*"
}

# Without records, nothing is packed.
keep_nothing() {
  say "no work is kept: $*"
  rm -rf "$state"
  exit 0
}

begin_afresh() {
  say "the kept work of build $build is not used: $*"
  rm -rf "$old"
  exit 0
}

count() {
  tr -cd '\000' | wc -c
}

paths() {
  sed -z 's/^.\{66\}//' "$1" | sort -z
}

begin() {
  rm -rf "$state"
  mkdir -p "$new"
  for folder; do
    if [ -e "$folder" ] || [ -L "$folder" ]; then
      keep_nothing "$folder is part of the source"
    fi
  done
  find . -type f -print0 > "$state/files"
  xargs -0 -r sha256sum -z < "$state/files" > "$state/sums" || keep_nothing "the source cannot be read"
  sort -z "$state/sums" > "$new/sources"
  find . ! -type f ! -type d -printf '%y %p %l\0' | sort -z > "$new/others"
  # Its time is that of the first build.
  : > "$new/began"
  [ -e "$archive" ] || exit 0

  build=$(cat "$number")
  mkdir "$old"
  tar --extract --file "$archive" --directory "$old" || begin_afresh "it cannot be unpacked"
  cmp -s "$new/others" "$old/.kilnyard/others" || begin_afresh "links of the source have changed"
  paths "$new/sources" > "$state/new-paths"
  paths "$old/.kilnyard/sources" > "$state/old-paths"
  removed=$(comm -z -13 "$state/new-paths" "$state/old-paths" | count)
  [ "$removed" -eq 0 ] || begin_afresh "$removed files of the source are gone"
  # After a change of the clock, times say nothing.
  [ -z "$(find "$old" -type f -newer "$new/began" -print -quit)" ] || begin_afresh "it is newer than this build"
  comm -z -23 "$new/sources" "$old/.kilnyard/sources" | sed -z 's/^.\{66\}//' > "$state/changed"
  find . -type f -newer "$old/.kilnyard/began" -exec touch -r "$old/.kilnyard/began" -- {} +
  xargs -0 -r touch -- < "$state/changed"
  mv -f "$old/.kilnyard/began" "$new/began"
  for folder; do
    if [ -d "$old/$folder" ] && [ ! -L "$old/$folder" ]; then
      mkdir -p "$(dirname "$folder")"
      mv "$old/$folder" "$folder"
    fi
  done
  rm -rf "$old"
  # The changelog always changes: it has the number of the rebuild.
  changed=$(grep -zvxF ./debian/changelog "$state/changed" | count)
  echo "$changed" > "$state/put-back"
  say "kept work of build $build was put back; files of the source that changed: $changed"
}

pack() {
  [ -d "$new" ] || exit 0
  for folder; do
    shift
    if [ -d "$folder" ] && [ ! -L "$folder" ]; then
      set -- "$@" "$folder"
    fi
  done
  [ $# -gt 0 ] || exit 0
  # Standard error is part of the output, which is the archive.
  exec tar --create --sparse --file - --format pax --pax-option delete=atime,delete=ctime \
    --directory "$state" .kilnyard --directory "$source" -- "$@" 2> /dev/null
}

report() {
  [ ! -e "$state/put-back" ] || cat "$state/put-back"
}

"$task" "$@"
"#;

/// The script, for the root.
pub(super) fn text() -> InputText {
    InputText { name: NAME.to_owned(), text: SCRIPT.to_owned() }
}

/// The arguments of the script for a task.
fn arguments(task: &str, source: &str, folders: &[String]) -> Vec<String> {
    let path = |name: &str| format!("{TEXTS}/{name}");
    let own = ["/bin/sh".to_owned(), path(NAME), task.to_owned(), format!("{BUILD}/{RECORDS}")];
    let own = own.into_iter().chain([path(KEPT_ARCHIVE), path(KEPT_BUILD), source.to_owned()]);
    own.chain(folders.iter().cloned()).collect()
}

/// The option of dpkg-buildpackage that puts folders back. No argument needs quotes: the configuration and the rules
/// for names of sources admit no character that a shell, or the hook, would replace.
pub(super) fn hook(source: &str, folders: &[String]) -> String {
    format!("--hook-build={}", arguments("begin", source, folders).join(" "))
}

/// The use of kept work by a build with this key.
pub(super) fn order(package: &str, key: &Key, source: &str, folders: &[String]) -> KeepOrder {
    let command = |task| CommandOrder {
        arguments: arguments(task, source, folders),
        account: Account::Builder,
        directory: BUILD.to_owned(),
        environment: Vec::new(),
    };
    KeepOrder::new(package, key, command("pack"), command("report"))
}

#[cfg(test)]
mod tests;
