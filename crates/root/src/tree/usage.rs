//! Disk usage of a tree, measured while a hostile build may still change it.
//!
//! Folders are opened one by one below the first, never through a link, and paths are cut into pieces, so that neither
//! depth nor path length can hide a file (PATH_MAX limits a path, not a tree). A file with several names counts a share
//! of its size for each name, so that no list of such files is needed.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, open, openat2, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The charge for a file in addition to its blocks, for its inode and its name. File systems with a fixed number of
/// inodes (ext4) have one for each 16 KiB.
const FILE_BYTES: u64 = 4096;
/// The maximum length of a path below an open folder before one more name is added; PATH_MAX is 4096.
const PIECE_BYTES_MAX: usize = 2048;

/// The size of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Disk usage of all blocks.
    pub bytes: u64,
    /// The number of names, of files of any kind.
    pub files: u64,
}

impl Usage {
    /// The size that counts against a limit; it includes a charge for each file, since even an empty file takes space.
    pub fn charged_bytes(self) -> u64 {
        self.bytes.saturating_add(self.files.saturating_mul(FILE_BYTES))
    }
}

/// Measures the content of a folder. Counting stops as soon as the charge exceeds `charged_bytes_max`.
pub fn usage(folder: &Path, charged_bytes_max: u64) -> Usage {
    let mut usage = Usage::default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(first) = open(folder, flags, Mode::empty()) else { return usage };
    let mut pending = vec![(Rc::new(first), PathBuf::from("."))];
    while let Some((anchor, path)) = pending.pop() {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // It may be gone by now, or not readable for this user.
        let Some(folder) = retried(|| openat2(&*anchor, &path, flags, Mode::empty(), resolve)) else {
            continue;
        };
        let Ok(entries) = Dir::read_from(&folder) else { continue };
        let folder = Rc::new(folder);
        // After a long path, the next pieces begin at this folder.
        let (anchor, path) = match path.as_os_str().len() > PIECE_BYTES_MAX {
            true => (folder.clone(), PathBuf::from(".")),
            false => (anchor, path),
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(facts) = statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_folder = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
            // `st_nlink` has 32 bits on some architectures.
            #[allow(clippy::useless_conversion)]
            let names = if is_folder { 1 } else { u64::from(facts.st_nlink).max(1) };
            // Units of 512 bytes, whatever the block size of the file system (stat(2)).
            usage.bytes += (facts.st_blocks.max(0) as u64).saturating_mul(512) / names;
            usage.files += 1;
            if usage.charged_bytes() > charged_bytes_max {
                return usage;
            }
            if is_folder {
                pending.push((anchor.clone(), path.join(OsStr::from_bytes(name.to_bytes()))));
            }
        }
    }
    usage
}

/// Retries openat2(2), which fails with EAGAIN if a concurrent rename interferes.
fn retried(open: impl Fn() -> rustix::io::Result<OwnedFd>) -> Option<OwnedFd> {
    const TRIES_MAX: usize = 16;
    (0..TRIES_MAX).map(|_| open()).find(|opened| !matches!(opened, Err(Errno::AGAIN)))?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_of_one_file_share_its_blocks_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::write(path("a/one"), vec![1; 1 << 20]).unwrap();
        let before = usage(folder.path(), u64::MAX);
        assert!(before.files == 2 && (1 << 20..2 << 20).contains(&before.bytes), "{before:?}");
        for number in 0..9 {
            fs::hard_link(path("a/one"), path(&format!("a/{number}"))).unwrap();
        }
        std::os::unix::fs::symlink("/usr", path("a/link")).unwrap();
        let after = usage(folder.path(), u64::MAX);
        assert!(after.files == 12 && after.bytes < before.bytes + (64 << 10), "{after:?}");
        assert_eq!(after.charged_bytes(), after.bytes + 12 * FILE_BYTES);
        assert!(usage(folder.path(), 1).files <= 2, "it stops at the limit");
        assert_eq!(usage(&path("none"), 1), Usage::default());
    }

    #[test]
    fn no_depth_hides_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let name = "d".repeat(200);
        let mut deepest = open(folder.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for _ in 0..100 {
            rustix::fs::mkdirat(&deepest, &name, Mode::RWXU).unwrap();
            deepest =
                rustix::fs::openat(&deepest, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let hidden = rustix::fs::openat(&deepest, "hidden", flags, Mode::RWXU).unwrap();
        rustix::io::write(&hidden, &vec![1; 1 << 20]).unwrap();
        let found = usage(folder.path(), u64::MAX);
        assert!(found.files == 101 && found.bytes >= 1 << 20, "{found:?}");
        fs::remove_dir_all(folder.path()).unwrap();
    }
}
