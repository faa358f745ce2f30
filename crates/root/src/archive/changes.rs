//! What has changed in a tree of this machine since it was packed, by the stamps of its files: nothing is read.

use super::at;
use super::pack::is_administrative;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a file had when it was packed: another content has another stamp. A folder has its mode alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Type and permissions.
    mode: u32,
    size: u64,
    inode: u64,
    /// When it was modified and changed, in nanoseconds since 1970.
    modified: i128,
    changed: i128,
}

/// The time of a stamp that another content may have, too: the file was changed in the moment in which it was read.
const UNSURE: i128 = i128::MIN;
/// How long such a moment is, in nanoseconds: times of files have the steps of the kernel's clock.
const MOMENT: i128 = 100_000_000;

/// The stamps of a tree, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps(BTreeMap<PathBuf, Stamp>);

/// What has changed in a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Paths that are new or others than before.
    pub changed: Vec<PathBuf>,
    /// Paths that are gone, without what was below them.
    pub removed: Vec<PathBuf>,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        match metadata.is_dir() {
            true => Stamp { mode: metadata.mode(), size: 0, inode: 0, modified: 0, changed: 0 },
            false => Stamp {
                mode: metadata.mode(),
                size: metadata.len(),
                inode: metadata.ino(),
                modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
                changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            },
        }
    }
}

impl Stamps {
    /// Those of a tree as `pack_shared` packs it: administrative folders of version control are left out.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn read(folder: &Path) -> io::Result<Stamps> {
        #[expect(clippy::disallowed_methods, reason = "it is compared with times of files alone")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
        let (mut stamps, mut open) = (BTreeMap::new(), vec![PathBuf::new()]);
        while let Some(below) = open.pop() {
            let full = folder.join(&below);
            for entry in fs::read_dir(&full).map_err(|error| at(&full, error))? {
                let entry = entry?;
                if is_administrative(&entry.file_name()) {
                    continue;
                }
                let path = below.join(entry.file_name());
                let metadata = entry.metadata().map_err(|error| at(&folder.join(&path), error))?;
                if metadata.is_dir() {
                    open.push(path.clone());
                }
                let mut stamp = Stamp::of(&metadata);
                if stamp.changed > now - MOMENT {
                    stamp.changed = UNSURE;
                }
                stamps.insert(path, stamp);
            }
        }
        Ok(Stamps(stamps))
    }

    /// The number of files and folders.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What has changed since these were read.
    pub fn changes_since(&self, before: &Stamps) -> Changes {
        let is_other = |(path, stamp): &(&PathBuf, &Stamp)| {
            before.0.get(*path).is_none_or(|known| known != *stamp || known.changed == UNSURE)
        };
        let changed = self.0.iter().filter(is_other).map(|(path, _)| path.clone()).collect();
        // What is below a path that is gone, or is no folder any more, is gone with it.
        let is_folder = |path: &Path| {
            let stamp = self.0.get(path);
            path.as_os_str().is_empty()
                || stamp.is_some_and(|stamp| stamp.mode & libc::S_IFMT == libc::S_IFDIR)
        };
        let gone = before.0.keys().filter(|path| !self.0.contains_key(*path));
        let removed = gone.filter(|path| path.parent().is_none_or(is_folder)).cloned().collect();
        Changes { changed, removed }
    }
}

impl Changes {
    /// The number of paths.
    pub fn count(&self) -> usize {
        self.changed.len() + self.removed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::pack_changes;
    use std::io::Read;

    #[test]
    fn changes_are_found_and_packed_with_whiteouts_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let write = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), text).unwrap();
        };
        for path in ["a/one", "a/two", "b/deep/three", "b/four", "c/five", "d/six", "e", ".git/x"] {
            write(path, path);
        }
        let unsure = Stamps::read(folder.path()).unwrap();
        assert_eq!(unsure.changes_since(&unsure).changed.len(), 7, "they may change in the same moment");
        std::thread::sleep(std::time::Duration::from_nanos(MOMENT as u64));
        let before = Stamps::read(folder.path()).unwrap();
        assert_eq!(before.changes_since(&before), Changes::default());
        assert_eq!(before.count(), 12);
        write("a/one", "another");
        write("a/new/file", "new");
        fs::remove_dir_all(at("b")).unwrap();
        fs::remove_file(at("c/five")).unwrap();
        // A folder becomes a file, and a file a folder.
        fs::remove_dir_all(at("d")).unwrap();
        write("d", "a file");
        fs::remove_file(at("e")).unwrap();
        write("e/below", "x");
        write(".git/y", "y");
        let changes = Stamps::read(folder.path()).unwrap().changes_since(&before);
        let names =
            |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(names(&changes.changed), ["a/new", "a/new/file", "a/one", "d", "e", "e/below"]);
        assert_eq!(names(&changes.removed), ["b", "c/five"]);
        let mut packed = Vec::new();
        pack_changes(folder.path(), &changes, &mut packed).unwrap();
        let mut archive = tar::Archive::new(&packed[..]);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let kind = match entry.header().entry_type() {
                tar::EntryType::Directory => '/',
                tar::EntryType::Char => '-',
                _ => '=',
            };
            found.push(format!("{}{kind}{text}", entry.path().unwrap().display()));
        }
        let expected = [
            "./",
            "a/",
            "a/new/",
            "a/new/file=new",
            "a/one=another",
            "b-",
            "c/",
            "c/five-",
            "d=a file",
            "e/",
            "e/below=x",
        ];
        assert_eq!(found, expected);
        // The same changes are the same layer.
        let mut again = Vec::new();
        pack_changes(folder.path(), &changes, &mut again).unwrap();
        assert!(again == packed);
    }
}
