//! File systems of devices: made, mounted, and taken away.

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

/// `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN` are the same request: _IOR('X', 125, u32).
const GO_DOWN: libc::c_ulong = 0x8004_587d;
/// Nothing of what is on its way is written.
const WITHOUT_LOG: u32 = 2;

/// Files of builds are small and many. Nothing is reserved for root, and tables are zero in a sparse file.
const EXT4: &str =
    "-q -F -b 4096 -I 256 -i 8192 -m 0 -O ^has_journal -E lazy_itable_init=1,nodiscard,root_owner=0:0";
const XFS: &str = "-q -f -K";

/// Makes an empty file system in a new sparse file.
pub(super) fn format(image: &Path, file_system: FileSystem, size_bytes: u64) -> io::Result<()> {
    let arguments = match file_system {
        FileSystem::Ext4 => EXT4,
        FileSystem::Xfs => XFS,
        FileSystem::Erofs => return Err(io::Error::other("erofs is made of a folder, and never empty")),
    };
    File::create_new(image)?.set_len(size_bytes)?;
    make(file_system, arguments, &[image])
}

/// Makes a file system of all that is in a folder, in a new file.
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
        false => Err(io::Error::other(format!("{program}: {}", said(&output.stderr)))),
    }
}

/// Mounts a device.
pub(super) fn mount(node: &Path, target: &Path, file_system: FileSystem, flushes: Flushes) -> io::Result<()> {
    let options = match (file_system, flushes) {
        (FileSystem::Ext4, Flushes::Discard) => "noinit_itable,nobarrier,noauto_da_alloc",
        (FileSystem::Ext4, Flushes::Keep) => "noinit_itable",
        // All roots of an image have the same number.
        (FileSystem::Xfs, _) => "nouuid",
        (FileSystem::Erofs, _) => "",
    };
    let node = node.to_str().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let read_only = if file_system.is_written() { 0 } else { libc::MS_RDONLY };
    let flags = libc::MS_NOATIME | libc::MS_NOSUID | libc::MS_NODEV | read_only;
    system::mount(node, target, file_system.name(), flags, options)
}

/// Takes a mount away; where flushes are discarded, without writing what was not written yet. Waits for who looks at it from
/// outside.
pub(super) fn unmount(target: &Path, flushes: Flushes) -> io::Result<()> {
    // Nobody answers where a server was killed.
    let device = std::fs::metadata(target).map(|metadata| metadata.dev());
    if flushes == Flushes::Discard {
        go_down(target)?;
    }
    let path = system::c_path(target)?;
    let is_gone = holders::wait_until(|| {
        // SAFETY: the string lives to the end of the call.
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

/// Tells a file system that its device is as good as gone.
fn go_down(target: &Path) -> io::Result<()> {
    let folder = File::open(target)?;
    // SAFETY: the descriptor is open and the number lives to the end of the call.
    system::check(unsafe { libc::ioctl(folder.as_raw_fd(), GO_DOWN as _, &WITHOUT_LOG) })?;
    Ok(())
}

pub(super) fn missing(program: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{program} is not installed"))
}

/// What a program said last.
pub(super) fn said(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it says nothing").trim().to_owned()
}
