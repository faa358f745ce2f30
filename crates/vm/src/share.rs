//! Folders shared with a guest.
//!
//! virtiofsd runs in a mount namespace of its own, in which its folder has nothing but what is shared, each at its own
//! path below; what the guest only reads is mounted read-only there.

use crate::emulator::program;
use crate::frame::Shared;
use crate::machine::Ended;
use crate::users;
use rustix::fs::StatVfsMountFlags;
use rustix::io::FdFlags;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use rustix::process::{Pid, Resource, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal};
use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The socket, in the machine's folder.
const SOCKET: &str = "share.socket";
/// The mount point, in the machine's folder.
const FOLDER: &str = "share";

/// Starts virtiofsd, in the user namespace of a descriptor if there is one. Paths of `shared` must exist.
///
/// # Errors
/// It cannot be started, or something cannot be mounted.
pub(crate) fn start(
    folder: &Path,
    shared: &[Shared],
    space: Option<RawFd>,
) -> io::Result<(Ended, UnixStream)> {
    let parent = getpid();
    let path = program("virtiofsd").ok_or_else(|| io::Error::other("virtiofsd is not installed"))?;
    let at = folder.join(FOLDER);
    fs_err::create_dir(&at)?;
    let mut mounts = Vec::new();
    for Shared { path, is_folder, is_written } in shared {
        let target = at.join(path.strip_prefix("/").unwrap_or(path));
        match is_folder {
            true => fs_err::create_dir_all(&target)?,
            false => {
                fs_err::create_dir_all(target.parent().unwrap_or(&at))?;
                fs_err::OpenOptions::new().create(true).append(true).open(&target)?;
            }
        }
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
        mounts.push((text(path)?, text(&target)?, *is_written, kept_flags(path)?));
    }
    let mut command = Command::new(&path);
    // Passed on as it is: a program that makes the socket itself also locks a file by the socket's name.
    let listener = listen(folder, SOCKET)?;
    let number = listener.as_raw_fd();
    // The newer program understands the options of the older one.
    let source = format!("source={}", at.display());
    command
        .arg(format!("--fd={number}"))
        .args(["-o", &source, "-o", "cache=always", "-o", "sandbox=chroot", "-o", "xattr"])
        // One for each file that the guest knows: other builds need some, too.
        .arg(format!("--rlimit-nofile={}", open_files_max()))
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs_err::File::create(folder.join("share.said"))?.into_parts().0);
    let kept = kept_flags(&at)?;
    let at = CString::new(at.as_os_str().as_bytes())?;
    let prepare = move || {
        if let Some(space) = space {
            users::enter(space)?;
        }
        // virtiofsd makes files as the guest's users, who could not use the work folder of an overlay, whose mode is 0. The
        // guest's kernel judges permissions; a guest that does not could call itself root here anyway.
        set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
        // SAFETY: the descriptor is open in the parent until the child runs its program.
        rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::empty())?;
        // SAFETY: the process has one thread here.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        // The folders between the mount points are not for the guest to write to.
        let harmless = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
        mount_bind(at.as_c_str(), at.as_c_str())?;
        for (source, target, is_written, kept) in &mounts {
            mount_bind(source.as_c_str(), target.as_c_str())?;
            let flags = if *is_written { harmless } else { harmless | MountFlags::RDONLY } | *kept;
            mount_remount(target.as_c_str(), flags, c"")?;
        }
        mount_remount(at.as_c_str(), harmless | MountFlags::RDONLY | kept, c"")?;
        die_with(parent)
    };
    // SAFETY: the closure makes only system calls, with paths that were made before.
    unsafe { command.pre_exec(prepare) };
    let child = Ended(command.spawn()?);
    drop(listener);
    let within = fs_err::File::open(folder)?;
    let client = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", within.as_raw_fd()))?;
    Ok((child, client))
}

/// The flags of a path's mount that a user namespace cannot take away.
fn kept_flags(path: &Path) -> io::Result<MountFlags> {
    let flags = rustix::fs::statvfs(path)?.f_flag;
    let is_kept = flags.contains(StatVfsMountFlags::NOEXEC);
    Ok(if is_kept { MountFlags::NOEXEC } else { MountFlags::empty() })
}

/// The most files that virtiofsd may open: only root can have more than the limit of this process.
fn open_files_max() -> u64 {
    const WANTED: u64 = 65_536;
    match rustix::process::geteuid().is_root() {
        true => WANTED,
        false => getrlimit(Resource::Nofile).maximum.unwrap_or(WANTED).min(WANTED),
    }
}

/// Has the kernel kill this process when the one that started it ends. Any change of the user must come before.
pub(crate) fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match getppid() == Some(parent) {
        true => Ok(()),
        // It has ended already.
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// A socket in a folder, whose path may be longer than the address of a socket.
fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let within = fs_err::File::open(folder)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{name}", within.as_raw_fd()))
}
