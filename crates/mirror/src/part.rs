//! A partly fetched file: the `.part` next to its target, with the running hash of its content.

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

/// How much space is reserved at once. File sizes come from an index: with this bound, a reservation takes no more
/// than a few builds write, however many files are fetched at the same time.
const RESERVED_BYTES_MAX: u64 = 1 << 30;

/// How much of the file system a file leaves free, as a divisor of its size: builds and the store need space in the
/// meantime.
const FREE_PART: u64 = 100;

/// The part of one file, owned by the thread that fetches it.
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
    /// Opens the part of a target, or creates it. What an earlier process left is hashed from its start; a part
    /// longer than the file is discarded.
    pub(crate) fn open(name: &'a str, target: &'a Path, size_bytes: u64) -> Result<Part<'a>, FetchError> {
        let path = path_of(target);
        let fail = |action, source| FetchError::disk(name, action, &path, size_bytes, source);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|source| fail("create the folder of", source))?;
        }
        check_room(&path, size_bytes).map_err(|source| fail("reserve space for", source))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| fail("open", source))?;
        let mut hasher = Sha256::new();
        let length = file.metadata().map_err(|source| fail("get the size of", source))?.len();
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

    /// The number of bytes so far.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Appends bytes, and ignores those beyond the size of the file.
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

    /// Starts again with an empty part.
    pub(crate) fn reset(&mut self) -> Result<(), FetchError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        if let Err(source) = emptied {
            return Err(self.error("truncate", source));
        }
        self.hasher = Sha256::new();
        self.length_bytes = 0;
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.length_bytes == self.size_bytes
    }

    /// The hash of the bytes so far.
    pub(crate) fn sha256(&self) -> Sha256Hex {
        Sha256Hex::finish(self.hasher.clone())
    }

    /// Renames the part to its final name. It is flushed first, so that the name never stands for an incomplete file.
    pub(crate) fn finish(self) -> Result<(), FetchError> {
        // Builds access the file through hard links, and none may change it for the others by accident.
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

    /// Frees the space of a failed part: everything reserved, and the part itself if it is empty. Errors are ignored,
    /// because the error to report is the one before.
    pub(crate) fn give_back(self) {
        if self.length_bytes == 0 {
            let _ = fs::remove_file(&self.path);
            return;
        }
        let _ = self.file.set_len(self.length_bytes);
        // If the length does not change, some file systems keep the space reserved beyond the end.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&self.file, flags, self.length_bytes, RESERVED_BYTES_MAX);
    }

    fn missing_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.length_bytes)
    }

    /// Reserves space, within a bound.
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
                Err(self.error("reserve space for", errno.into()))
            }
            // Not every file system supports this. Without it, a full disk shows when writing.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn error(&self, action: &'static str, source: io::Error) -> FetchError {
        FetchError::disk(self.name, action, &self.path, self.missing_bytes(), source)
    }
}

/// Reports a disk that is too small before an hour of fetching, not after, and before anything is reserved on it.
fn check_room(part: &Path, size_bytes: u64) -> io::Result<()> {
    // stat(2) counts blocks of 512 bytes.
    let have_bytes = fs::symlink_metadata(part).map_or(0, |metadata| metadata.blocks() * 512);
    let missing_bytes = size_bytes.saturating_sub(have_bytes);
    // If the free space is unknown, a full disk shows when writing.
    let Ok(facts) = rustix::fs::statvfs(part.parent().unwrap_or(Path::new("."))) else { return Ok(()) };
    let kept_bytes = (facts.f_blocks / FREE_PART).saturating_mul(facts.f_frsize);
    let free_bytes = facts.f_bavail.saturating_mul(facts.f_frsize).saturating_sub(kept_bytes);
    match missing_bytes > free_bytes {
        true => Err(rustix::io::Errno::NOSPC.into()),
        false => Ok(()),
    }
}

/// The path of the part: that of the target, with `.part` appended.
pub(crate) fn path_of(target: &Path) -> PathBuf {
    let mut path = OsString::from(target);
    path.push(".part");
    PathBuf::from(path)
}

/// Flushes the folder of a file, so that a new name survives a crash.
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
    fn a_part_that_is_too_long_is_discarded() {
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
    fn no_space_is_reserved_for_a_file_larger_than_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        for size_bytes in [1 << 50, 1 << 62, u64::MAX] {
            let error = Part::open("x", &target, size_bytes).err().unwrap();
            assert!(error.is_disk_full(), "{error}");
            assert!(!path_of(&target).exists());
        }
        // A part that was started for another size is left alone.
        fs::write(path_of(&target), b"abc").unwrap();
        assert!(Part::open("x", &target, 1 << 50).is_err());
        assert_eq!(fs::read(path_of(&target)).unwrap(), b"abc");
    }

    #[test]
    fn reserved_space_is_bounded_and_freed() {
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
