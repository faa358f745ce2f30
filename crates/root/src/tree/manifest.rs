use super::size::{TreeEntry, walk_below};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A fingerprint of a tree, to detect that files were removed, added or changed. It detects accidents, such as files
/// removed by a user or lost by a broken disk. Contents are not read, so it costs no more than listing the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The number of files and folders below the top.
    pub entries: u64,
    /// Disk space that they use.
    pub bytes: u64,
    /// The wrapping sum of a hash of each entry, since a tree is read in no particular order.
    pub sum: u64,
}

impl Manifest {
    /// Fingerprints the tree in a folder. Entries that cannot be read are ignored.
    pub fn of(folder: &Path) -> Manifest {
        let mut manifest = Manifest { entries: 0, bytes: 0, sum: 0 };
        walk_below(folder, &mut |seen| {
            manifest.entries += 1;
            manifest.bytes += seen.bytes();
            manifest.sum = manifest.sum.wrapping_add(hash(seen));
        });
        manifest
    }

    /// Describes a change since this manifest was made, as a clause; `None` without a change. Disk usage is ignored,
    /// since it depends on the file system.
    pub fn difference(&self, now: &Manifest) -> Option<String> {
        if self.entries != now.entries {
            return Some(format!("it has {} files and folders instead of {}", now.entries, self.entries));
        }
        (self.sum != now.sum).then(|| "some of its files or folders were changed".to_owned())
    }
}

/// FNV-1a of the name and metadata of an entry. Times of folders are left out: they change when a layer is copied.
fn hash(seen: &TreeEntry) -> u64 {
    let facts = seen.facts;
    let is_folder = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
    let (size, time) = if is_folder { (0, 0) } else { (facts.st_size as u64, facts.st_mtime as u64) };
    let numbers =
        [seen.depth as u64, facts.st_mode.into(), facts.st_uid.into(), facts.st_gid.into(), size, time];
    let bytes = numbers.into_iter().flat_map(u64::to_le_bytes).chain(seen.name.to_bytes().iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn removed_added_and_changed_files_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("usr/bin")).unwrap();
        fs::write(path("usr/bin/a"), "text").unwrap();
        fs::write(path("usr/b"), "text").unwrap();
        let whole = Manifest::of(folder.path());
        assert_eq!((whole.entries, whole.difference(&Manifest::of(folder.path()))), (4, None));
        fs::remove_dir_all(path("usr/bin")).unwrap();
        let difference = whole.difference(&Manifest::of(folder.path())).unwrap();
        assert_eq!(difference, "it has 2 files and folders instead of 4");
        fs::create_dir(path("usr/bin")).unwrap();
        for changed in ["tex", "texts"] {
            fs::write(path("usr/bin/a"), changed).unwrap();
            assert!(whole.difference(&Manifest::of(folder.path())).is_some());
        }
    }
}
