//! File systems of devices: formats, mounts and unmounts them.

use super::{FileSystem, holders, needs};
use crate::Flushes;
use crate::sandbox::system;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN` are the same request: `_IOR('X', 125, u32)`.
const GO_DOWN: libc::c_ulong = 0x8004_587d;
/// Pending writes are dropped.
const WITHOUT_LOG: u32 = 2;

/// Builds have many small files. No blocks are reserved for root. Tables need no zeroing in a sparse file.
const EXT4: &str =
    "-q -F -b 4096 -I 256 -i 8192 -m 0 -O ^has_journal -E lazy_itable_init=1,nodiscard,root_owner=0:0";
const XFS: &str = "-q -f -K";

/// Makes an empty file system in a new sparse file.
pub(super) fn format(image: &Path, file_system: FileSystem, size_bytes: u64) -> io::Result<()> {
    let arguments = match file_system {
        FileSystem::Ext4 => EXT4,
        FileSystem::Xfs => XFS,
        FileSystem::Erofs => return Err(io::Error::other("erofs cannot be empty: it is made from a folder")),
    };
    File::create_new(image)?.set_len(size_bytes)?;
    make(file_system, arguments, &[image])
}

/// Makes a read-only file system in a new file, from the content of a folder.
pub(super) fn pack(folder: &Path, image: &Path) -> io::Result<()> {
    make(FileSystem::Erofs, "--quiet", &[image, folder])
}

fn make(file_system: FileSystem, arguments: &str, paths: &[&Path]) -> io::Result<()> {
    let (program, _) = file_system.maker();
    let path = needs::program(program).ok_or_else(|| missing(program))?;
    let mut command = Command::new(path);
    let output = command.args(arguments.split(' ')).args(paths).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program}: {}", last_line(&output.stderr)))),
    }
}

/// Mounts a device.
pub(super) fn mount(node: &Path, target: &Path, file_system: FileSystem, flushes: Flushes) -> io::Result<()> {
    let options = match (file_system, flushes) {
        (FileSystem::Ext4, Flushes::Discard) => "noinit_itable,nobarrier,noauto_da_alloc",
        (FileSystem::Ext4, Flushes::Keep) => "noinit_itable",
        // All roots of an image have the same UUID.
        (FileSystem::Xfs, _) => "nouuid",
        (FileSystem::Erofs, _) => "",
    };
    let node = node.to_str().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let read_only = if file_system.is_written() { 0 } else { libc::MS_RDONLY };
    let flags = libc::MS_NOATIME | libc::MS_NOSUID | libc::MS_NODEV | read_only;
    system::mount(node, target, file_system.name(), flags, options)
}

/// Unmounts a device; if flushes are discarded, without writing back pending data. Waits for processes outside that
/// still use the mount.
pub(super) fn unmount(target: &Path, flushes: Flushes) -> io::Result<()> {
    // Fails if the server was killed.
    let device = std::fs::metadata(target).map(|metadata| metadata.dev());
    if flushes == Flushes::Discard {
        go_down(target)?;
    }
    let path = system::c_path(target)?;
    let is_gone = holders::wait_until(|| {
        // SAFETY: the string outlives the call.
        match system::check(unsafe { libc::umount2(path.as_ptr(), 0) }) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(false),
            Err(error) => Err(error),
        }
    })?;
    if is_gone {
        return Ok(());
    }
    let holders = device.map_or_else(|_| Vec::new(), holders::of_device);
    Err(holders::held(&target.display().to_string(), &holders))
}

/// Shuts a file system down, as if its device were gone.
fn go_down(target: &Path) -> io::Result<()> {
    let folder = File::open(target)?;
    // SAFETY: the descriptor is open and the number outlives the call.
    system::check(unsafe { libc::ioctl(folder.as_raw_fd(), GO_DOWN as _, &WITHOUT_LOG) })?;
    Ok(())
}

pub(super) fn missing(program: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{program} is not installed"))
}

/// The last line of a program's output.
pub(super) fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("no output").trim().to_owned()
}
