//! File operations whose results survive a power failure and do not depend on the process's umask.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::During;
use crate::layout::{LOCK, STAGING};
use crate::pool::check_size;
use crate::{Checksum, PublishError, Result};

/// Web servers run as a different user.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const READABLE_BY_ALL: u32 = 0o444;

/// Name of a staged pool file. Files are placed one at a time.
const STAGED_POOL_FILE: &str = "pool-file";

/// Creates the repository's directory.
pub(crate) fn make_repository(repository: &Path) -> Result<()> {
    if repository.is_dir() {
        return Ok(());
    }
    fs_err::create_dir_all(repository).during("create the directory", repository)?;
    set_mode(repository, DIRECTORY_MODE)?;
    match repository.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        _ => Ok(()),
    }
}

/// Holds the repository's lock until dropped. The kernel releases it when the process ends, in whatever way.
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting also has the file
        // open, until it executes its program. The unlock has no reason to fail, and there would be no remedy.
        let _ = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}

/// Takes the repository's lock. Fails if another process holds it.
pub(crate) fn lock(repository: &Path) -> Result<Lock> {
    let path = repository.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .during("open the lock", &path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(PublishError::Busy { path }),
        Err(error) => Err(error).during("lock", &path),
    }
}

pub(crate) fn make_directory(path: &Path) -> Result<()> {
    match fs_err::create_dir(path) {
        Ok(()) => set_mode(path, DIRECTORY_MODE),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error).during("create the directory", path),
    }
}

/// Creates, writes and flushes a file. Fails if the file exists.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let mut file = File::create_new(path).during("create", path)?;
    file.write_all(content).during("write", path)?;
    finish(file, path)
}

pub(crate) fn link(from: &Path, to: &Path) -> Result<()> {
    fs_err::hard_link(from, to).during("link", to)
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs_err::rename(from, to).during("rename to", to)
}

pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).during("flush", path)
}

/// Points `link` to `target` atomically.
pub(crate) fn switch(repository: &Path, link: &Path, target: &Path) -> Result<()> {
    let staged = repository.join(STAGING).join("link");
    fs_err::os::unix::fs::symlink(target, &staged).during("create the link", &staged)?;
    rename(&staged, &repository.join(link))
}

/// Renames a directory into the staging area and then removes it, so that a partial one is never mistaken for a
/// complete one.
pub(crate) fn remove_tree(repository: &Path, path: &Path) -> Result<()> {
    let staged = repository.join(STAGING).join("removed");
    rename(&repository.join(path), &staged)?;
    fs_err::remove_dir_all(&staged).during("remove", &staged)
}

/// Removes all unfinished files and directories.
pub(crate) fn clear_staging(repository: &Path) -> Result<()> {
    let staging = repository.join(STAGING);
    for entry in fs_err::read_dir(&staging).during("list", &staging)? {
        let path = entry.during("list", &staging)?.path();
        let metadata = fs_err::symlink_metadata(&path).during("inspect", &path)?;
        match metadata.is_dir() {
            true => fs_err::remove_dir_all(&path),
            false => fs_err::remove_file(&path),
        }
        .during("remove", &path)?;
    }
    Ok(())
}

/// A file of the caller's, to be put into the repository.
pub(crate) struct Placed<'a> {
    pub(crate) file: &'a Path,
    pub(crate) path: &'a Path,
    pub(crate) size_bytes: u64,
    pub(crate) checksum: &'a Checksum,
    pub(crate) replaces: bool,
}

/// Puts the file into the repository under its new name.
///
/// Makes a copy if a link is not possible (another file system) or not wanted: a link shares the mode of a
/// file, and the owner of a file that is not world-readable may want it so.
pub(crate) fn place(repository: &Path, placed: &Placed<'_>) -> Result<()> {
    // A hard link to a symbolic link would publish the symbolic link.
    let file = fs_err::canonicalize(placed.file).during("find", placed.file)?;
    let mut opened = File::open(&file).during("open", &file)?;
    let metadata = opened.metadata().during("inspect", &file)?;
    check_size(&file, &metadata, placed.size_bytes)?;
    let to = repository.join(placed.path);
    let staged = repository.join(STAGING).join(STAGED_POOL_FILE);
    let is_readable = metadata.permissions().mode() & READABLE_BY_ALL == READABLE_BY_ALL;
    if is_readable {
        let target = if placed.replaces { &staged } else { &to };
        // Flush before the file gets its name: its writer may not have done so.
        opened.sync_all().during("flush", &file)?;
        match fs_err::hard_link(&file, target) {
            Ok(()) if placed.replaces => return rename(&staged, &to),
            Ok(()) => return Ok(()),
            Err(error) if cannot_link(&error) => {}
            Err(error) => return Err(error).during("link", &to),
        }
    }
    copy(&mut opened, &file, &staged, placed)?;
    rename(&staged, &to)
}

/// The error of linking to another file system, with too many links, on a file system without links, or to
/// another user's file that the kernel protects.
fn cannot_link(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::CrossesDevices
            | io::ErrorKind::TooManyLinks
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::Unsupported
    )
}

fn copy(opened: &mut File, file: &Path, staged: &Path, placed: &Placed<'_>) -> Result<()> {
    let mut copied = File::create_new(staged).during("create", staged)?;
    let mut hash = placed.checksum.hasher();
    let mut buffer = vec![0; 256 << 10];
    // One byte more than expected, to detect a file that has grown.
    let mut source = opened.take(placed.size_bytes.saturating_add(1));
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).during("read", file),
        };
        hash.update(&buffer[..count]);
        copied.write_all(&buffer[..count]).during("write", staged)?;
    }
    let found = hash.finish();
    if found != placed.checksum.digits() {
        return Err(PublishError::FileChanged {
            file: file.to_owned(),
            expected: placed.checksum.digits().to_owned(),
            found,
        });
    }
    finish(copied, staged)
}

fn finish(file: File, path: &Path) -> Result<()> {
    file.set_permissions(Permissions::from_mode(FILE_MODE)).during("set the mode of", path)?;
    file.sync_all().during("flush", path)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs_err::set_permissions(path, Permissions::from_mode(mode)).during("set the mode of", path)
}
