//! A file on its way: the `.part` beside its target, with the hash of what is there so far.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use sha2::{Digest, Sha256};

use crate::Sha256Hex;
use crate::error::FetchError;
use crate::sha256::hash_rest;

/// How much room is asked for at once. An index decides the size of a file: what is reserved is no more than what a few builds
/// write, however many files are fetched at a time.
const RESERVED_BYTES_MAX: u64 = 1 << 30;

/// What a file leaves free, as a divisor of the file system's size: builds and the store need room meanwhile.
const FREE_PART: u64 = 100;

/// The part of one file, owned by the one thread that fetches it.
pub(crate) struct Part<'a> {
    name: &'a str,
    target: &'a Path,
    path: PathBuf,
    file: File,
    hasher: Sha256,
    length_bytes: u64,
    size_bytes: u64,
}

impl<'a> Part<'a> {
    /// Open the part of a target, or begin one. What an earlier process left is hashed from its start; what
    /// is longer than the file can be is dropped.
    pub(crate) fn open(name: &'a str, target: &'a Path, size_bytes: u64) -> Result<Part<'a>, FetchError> {
        let path = path_of(target);
        let fail = |action, source| FetchError::disk(name, action, &path, size_bytes, source);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|source| fail("make the folder of", source))?;
        }
        check_room(&path, size_bytes).map_err(|source| fail("reserve room for", source))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| fail("open", source))?;
        let mut hasher = Sha256::new();
        let length = file.metadata().map_err(|source| fail("look at", source))?.len();
        let length_bytes = if length > size_bytes {
            file.set_len(0).map_err(|source| fail("truncate", source))?;
            0
        } else {
            hash_rest(&mut file, &mut hasher).map_err(|source| fail("read", source))?
        };
        let mut part = Part { name, target, file, hasher, length_bytes, size_bytes, path };
        match part.reserve() {
            Ok(()) => Ok(part),
            Err(error) => {
                part.give_back();
                Err(error)
            }
        }
    }

    /// How much is there.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Take bytes; what goes beyond the size of the file is not taken.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        let room = usize::try_from(self.missing_bytes()).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if let Err(source) = self.file.write_all(bytes) {
            return Err(self.error("write", source));
        }
        self.hasher.update(bytes);
        self.length_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Begin again from nothing.
    pub(crate) fn reset(&mut self) -> Result<(), FetchError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        if let Err(source) = emptied {
            return Err(self.error("truncate", source));
        }
        self.hasher = Sha256::new();
        self.length_bytes = 0;
        Ok(())
    }

    /// Is everything there?
    pub(crate) fn is_complete(&self) -> bool {
        self.length_bytes == self.size_bytes
    }

    /// The hash of what is there.
    pub(crate) fn sha256(&self) -> Sha256Hex {
        Sha256Hex::finish(self.hasher.clone())
    }

    /// Give the file its name: flushed first, so that the name never stands for less than the file.
    pub(crate) fn finish(self) -> Result<(), FetchError> {
        // Builds get at it by hard links; none of them shall change it for the others by accident.
        let read_only = Permissions::from_mode(0o444);
        let flushed = self.file.set_permissions(read_only).and_then(|()| self.file.sync_all());
        if let Err(source) = flushed {
            return Err(self.error("flush", source));
        }
        if let Err(source) = fs::rename(&self.path, self.target) {
            return Err(self.error("rename", source));
        }
        sync_folder(self.target).map_err(|source| self.error("flush the folder of", source))
    }

    /// Give back the room of a part that failed: all that is reserved, and the part itself if nothing of it can be used. What
    /// it cannot give back stays as it is: the failure to report is the one before.
    pub(crate) fn give_back(self) {
        if self.length_bytes == 0 {
            let _ = fs::remove_file(&self.path);
            return;
        }
        let _ = self.file.set_len(self.length_bytes);
        // Some file systems keep what is reserved behind the end where the length does not change.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&self.file, flags, self.length_bytes, RESERVED_BYTES_MAX);
    }

    fn missing_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.length_bytes)
    }

    /// Ask for room at once, within a bound.
    fn reserve(&mut self) -> Result<(), FetchError> {
        if self.is_complete() {
            return Ok(());
        }
        let reserved = rustix::fs::fallocate(
            &self.file,
            FallocateFlags::KEEP_SIZE,
            self.length_bytes,
            self.missing_bytes().min(RESERVED_BYTES_MAX),
        );
        match reserved {
            Err(errno @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)) => {
                Err(self.error("reserve room for", errno.into()))
            }
            // Not every file system can; then the write will tell.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn error(&self, action: &'static str, source: io::Error) -> FetchError {
        FetchError::disk(self.name, action, &self.path, self.missing_bytes(), source)
    }
}

/// A disk that is too small is reported before an hour of fetching, not after, and before anything is reserved on it.
fn check_room(part: &Path, size_bytes: u64) -> io::Result<()> {
    // Blocks of 512 bytes (stat(2)).
    let have_bytes = fs::symlink_metadata(part).map_or(0, |metadata| metadata.blocks() * 512);
    let missing_bytes = size_bytes.saturating_sub(have_bytes);
    // A file system that cannot say shows it at the write.
    let Ok(facts) = rustix::fs::statvfs(part.parent().unwrap_or(Path::new("."))) else { return Ok(()) };
    let kept_bytes = (facts.f_blocks / FREE_PART).saturating_mul(facts.f_frsize);
    let free_bytes = facts.f_bavail.saturating_mul(facts.f_frsize).saturating_sub(kept_bytes);
    match missing_bytes > free_bytes {
        true => Err(rustix::io::Errno::NOSPC.into()),
        false => Ok(()),
    }
}

/// The part's path: the target's with `.part` after it.
pub(crate) fn path_of(target: &Path) -> PathBuf {
    let mut path = OsString::from(target);
    path.push(".part");
    PathBuf::from(path)
}

/// Make a new name in a folder last.
pub(crate) fn sync_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        Some(_) | None => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_resumed_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new/file");
        let mut part = Part::open("x", &target, 6).unwrap();
        part.append(b"abc").unwrap();
        drop(part);
        assert_eq!(fs::read(path_of(&target)).unwrap(), b"abc");

        let mut part = Part::open("x", &target, 6).unwrap();
        assert_eq!(part.length_bytes(), 3);
        part.append(b"defgh").unwrap();
        assert!(part.is_complete());
        assert_eq!(part.sha256(), Sha256Hex::of(b"abcdef"));
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"abcdef");
        assert!(!path_of(&target).exists());
    }

    #[test]
    fn what_is_too_long_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(path_of(&target), b"abcdefg").unwrap();
        let part = Part::open("x", &target, 6).unwrap();
        assert_eq!(part.length_bytes(), 0);
        assert_eq!(fs::read(path_of(&target)).unwrap(), b"");
        part.give_back();
        assert!(!path_of(&target).exists());
    }

    #[test]
    fn no_room_is_taken_for_a_size_that_the_disk_cannot_have() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        for size_bytes in [1 << 50, 1 << 62, u64::MAX] {
            let error = Part::open("x", &target, size_bytes).err().unwrap();
            assert!(error.is_disk_full(), "{error}");
            assert!(!path_of(&target).exists());
        }
        // One that was begun for another size stays as it is.
        fs::write(path_of(&target), b"abc").unwrap();
        assert!(Part::open("x", &target, 1 << 50).is_err());
        assert_eq!(fs::read(path_of(&target)).unwrap(), b"abc");
    }

    #[test]
    fn what_is_reserved_is_bounded_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let blocks = || fs::metadata(path_of(&target)).unwrap().blocks();
        let mut part = Part::open("x", &target, 20 << 20).unwrap();
        part.append(b"abc").unwrap();
        let reserved = blocks();
        part.give_back();
        assert_eq!(fs::read(path_of(&target)).unwrap(), b"abc");
        assert!(reserved == 0 || blocks() * 512 <= 8192, "{reserved}, {}", blocks());
        fs::remove_file(path_of(&target)).unwrap();
        let room = rustix::fs::statvfs(folder.path()).unwrap();
        if room.f_bavail * room.f_frsize < 5 << 30 {
            return;
        }
        let part = Part::open("x", &target, 3 << 30).unwrap();
        assert!(blocks() * 512 <= RESERVED_BYTES_MAX + (1 << 20), "{}", blocks());
        part.give_back();
        assert!(!path_of(&target).exists());
    }

    #[test]
    fn a_reset_forgets_everything() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let mut part = Part::open("x", &target, 6).unwrap();
        part.append(b"wrong").unwrap();
        part.reset().unwrap();
        part.append(b"abcdef").unwrap();
        assert_eq!(part.sha256(), Sha256Hex::of(b"abcdef"));
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"abcdef");
    }
}
