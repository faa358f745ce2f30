//! Performs one operation. Paths are relative to the folder that the sandbox started in.

use super::overlay::overlay;
use super::system::{c_path, check, mount};
use crate::{Access, Operation};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) fn execute(operation: &Operation) -> io::Result<()> {
    match operation {
        Operation::Overlay { lower, upper, work, target, flushes } => {
            overlay(lower, upper, work, target, *flushes)
        }
        Operation::Layers { lower, target } => super::overlay::layers(lower, target),
        Operation::Bind { source, target, access } => bind(source, target, *access),
        Operation::StandIn { root, program, with, real } => stand_in(root, program, with, real),
        Operation::Tmpfs { target, mode, size_bytes_max } => {
            let data = format!("mode={mode:o},size={size_bytes_max}");
            mount("tmpfs", target, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &data)
        }
        Operation::Device { name, folder } => {
            let path = folder.join(name);
            std::fs::File::create(&path)?;
            mount(&format!("/dev/{name}"), &path, "", libc::MS_BIND, "")
        }
        Operation::Proc { target } => {
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            mount("proc", target, "proc", flags, "")
        }
        Operation::Sys { target } => {
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
            // Where sysfs is partly masked, the kernel refuses this mount; builds do not need it.
            mount("sysfs", target, "sysfs", flags, "").or(Ok(()))
        }
        Operation::Terminals { target } => {
            let terminals = |group: &str| {
                let data = format!("newinstance,ptmxmode=0666,mode=620{group}");
                mount("devpts", target, "devpts", libc::MS_NOSUID | libc::MS_NOEXEC, &data)
            };
            // A root with only one id has no tty group.
            terminals(",gid=5").or_else(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => terminals(""),
                _ => Err(error),
            })
        }
        Operation::Link { content, path } => std::os::unix::fs::symlink(content, path),
        Operation::Copy { lower, target, content } => super::copy::copy_layers(lower, target, *content),
        Operation::Unmount { target } => unmount(target),
        Operation::Remove { path } => crate::tree::remove_tree(path),
        Operation::Folder { path } => std::fs::create_dir_all(path),
        Operation::Format { .. }
        | Operation::Pack { .. }
        | Operation::Show { .. }
        | Operation::Hide { .. }
        | Operation::Serve { .. }
        | Operation::Stop { .. }
        | Operation::Attach { .. }
        | Operation::Detach { .. }
        | Operation::Mount { .. }
        | Operation::Drop { .. }
        | Operation::Stamp { .. } => Err(io::Error::other("only a root's keeper can perform it")),
        Operation::Hostname { name } => {
            // SAFETY: pointer and length are those of a string that outlives the call.
            check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
            Ok(())
        }
        Operation::Loopback => loopback_up(),
        Operation::Pivot { target } => pivot(target),
        Operation::HandOver { folder, from, to } => hand_over(folder, *from, *to),
        Operation::Seal { open } => seal(open),
    }
}

fn bind(source: &Path, target: &Path, access: Access) -> io::Result<()> {
    let source = source.to_str().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    mount(source, target, "", libc::MS_BIND, "")?;
    match access {
        Access::Write => Ok(()),
        Access::Read => {
            let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
            mount("", target, "", flags, "")
        }
    }
}

fn stand_in(root: &Path, program: &Path, with: &Path, real: &Path) -> io::Result<()> {
    // A symbolic link in the root would be resolved outside the root.
    let mut path = root.to_owned();
    for part in program.components() {
        path.push(part);
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) if !metadata.is_symlink() => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    bind(&path, real, Access::Write)?;
    bind(with, &path, Access::Read)
}

fn unmount(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::umount2(path.as_ptr(), 0) })?;
    Ok(())
}

/// Makes `target` the root and detaches the old one, so that no path leads back (pivot_root(2)).
fn pivot(target: &Path) -> io::Result<()> {
    std::env::set_current_dir(target)?;
    // SAFETY: both strings are constants. The old root is mounted over the new one and detached next.
    let result = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) };
    check(result as libc::c_int)?;
    // SAFETY: the string is a constant.
    check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
    std::env::set_current_dir("/")
}

fn hand_over(folder: &Path, from: u32, to: u32) -> io::Result<()> {
    match std::fs::symlink_metadata(folder) {
        Ok(metadata) if metadata.is_dir() && metadata.uid() == from => {
            std::os::unix::fs::lchown(folder, Some(to), Some(to))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the files of `/` read-only, except in these folders (mount(2)).
fn seal(open: &[PathBuf]) -> io::Result<()> {
    let is_folder = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    for path in open.iter().filter(|path| is_folder(path)) {
        bind(path, path, Access::Write)?;
    }
    // SAFETY: an all-zero structure is valid, and is overwritten.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the string is a constant, and the structure outlives the call.
    check(unsafe { libc::statvfs(c"/".as_ptr(), &raw mut facts) })?;
    // Keep the flags of the machine's mount; `ST_*` and `MS_*` have the same values.
    let kept = facts.f_flag & (libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    mount("", Path::new("/"), "", libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | kept, "")
}

/// Sets the flag `IFF_UP` of the device `lo` (netdevice(7)).
fn loopback_up() -> io::Result<()> {
    // SAFETY: the call takes only integers.
    let socket = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: an all-zero request is valid; name and flags are set next.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call and has the type that the ioctl takes.
    let result = check(unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request) });
    // SAFETY: the socket is open and has no other owner.
    unsafe { libc::close(socket) };
    result.map(|_| ())
}
