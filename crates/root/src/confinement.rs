//! Confines a process of Kilnyard itself that holds secrets: it keeps one folder, and loses everything else.
//!
//! The process calls [`confine`] on itself, before it reads a key. Then it has a root file system with only that folder
//! and the paths that it named, no network, no privilege and no way to gain one; no process of its user can trace it, and no
//! core file of it is written.

use crate::sandbox::system::{self, c_path, check, mount, unshare};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr,
};
use std::io;
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};

/// What a confined process keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The folder that it reads and writes. It has the same path afterwards.
    pub folder: PathBuf,
    /// Files and folders that it only reads, under the same paths. Those that do not exist are left out.
    pub readable: Vec<PathBuf>,
    /// Files and folders that it reads and writes as well, such as sockets.
    pub writable: Vec<PathBuf>,
    /// The user and group that it becomes, if it is root. The folder is given to them.
    pub user: Option<(u32, u32)>,
    /// Whether it keeps the machine's network.
    pub has_network: bool,
}

/// How a process is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    /// As a user of its own.
    OwnUser,
    /// In a user namespace with one id.
    OneId,
}

/// Confines the calling process, which must have one thread.
///
/// # Errors
/// The kernel refuses a step. The process must end then.
pub fn confine(confinement: &Confinement) -> io::Result<Confined> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
    // SAFETY: the call has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let network = if confinement.has_network { 0 } else { libc::CLONE_NEWNET };
    let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | network;
    let user = confinement.user.filter(|_| is_root && unshare(spaces).is_ok());
    if user.is_none() {
        let (user, group) = own_ids();
        // A user of the signer that is gone leaves it its files.
        if is_root {
            give(&confinement.folder, user, group)?;
        }
        // The maps of a process that cannot be traced belong to root.
        // SAFETY: prctl with these arguments touches no memory.
        check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) })?;
        unshare(libc::CLONE_NEWUSER | spaces)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1\n"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1\n"))?;
        // SAFETY: as above.
        check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
    }
    change_root(confinement)?;
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    if let Some((user, group)) = user {
        give(&confinement.folder, user, group)?;
        system::become_user(user, group)?;
    }
    restrict(confinement)?;
    drop_capabilities()?;
    // A change of the user makes it traceable by that user again.
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
    Ok(if user.is_some() { Confined::OwnUser } else { Confined::OneId })
}

fn own_ids() -> (u32, u32) {
    // SAFETY: the calls have no preconditions.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Makes a root file system with the kept paths alone.
fn change_root(confinement: &Confinement) -> io::Result<()> {
    // Mounts stay here, and those of the machine no longer arrive.
    mount("", Path::new("/"), "", libc::MS_REC | libc::MS_PRIVATE, "")?;
    // Any folder that exists: it is hidden only here.
    let stage = ["/tmp", "/run", "/mnt"].into_iter().map(Path::new).find(|path| path.is_dir());
    let stage =
        stage.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no folder /tmp, /run or /mnt"))?;
    let kept: Vec<(PathBuf, bool, std::fs::File)> = std::iter::once((&confinement.folder, true))
        .chain(confinement.writable.iter().map(|path| (path, true)))
        .chain(confinement.readable.iter().map(|path| (path, false)))
        .filter_map(|(path, is_writable)| {
            use std::os::unix::fs::OpenOptionsExt;
            let opened = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
                .open(path);
            Some((path.clone(), is_writable, opened.ok()?))
        })
        .collect();
    if kept.first().is_none_or(|(path, ..)| *path != confinement.folder) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no folder {}", confinement.folder.display()),
        ));
    }
    mount("tmpfs", stage, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC, "mode=755,size=1m")?;
    for (path, is_writable, opened) in &kept {
        use std::os::fd::AsRawFd;
        let target = stage.join(path.strip_prefix("/").unwrap_or(path));
        // It may be in a folder that is there already, and only readable.
        if !target.exists() {
            if opened.metadata()?.is_dir() {
                std::fs::create_dir_all(&target)?;
            } else {
                std::fs::create_dir_all(target.parent().unwrap_or(stage))?;
                std::fs::write(&target, "")?;
            }
        }
        let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
        mount(&source, &target, "", libc::MS_BIND | libc::MS_REC, "")?;
        if !is_writable {
            let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
            mount("", &target, "", flags | kept_flags(&target)?, "")?;
        }
    }
    drop(kept);
    std::env::set_current_dir(stage)?;
    // SAFETY: both strings are constants. The old root is mounted over the new one and detached next.
    let result = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) };
    check(result as libc::c_int)?;
    let old = c_path(Path::new("."))?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::umount2(old.as_ptr(), libc::MNT_DETACH) })?;
    std::env::set_current_dir("/")
}

/// The flags of a mount that a remount in a user namespace must keep (mount_namespaces(7)).
fn kept_flags(path: &Path) -> io::Result<libc::c_ulong> {
    use rustix::fs::StatVfsMountFlags as Flags;
    let found = rustix::fs::statvfs(path)?.f_flag;
    let flags = [
        (Flags::NOEXEC, libc::MS_NOEXEC),
        (Flags::NOATIME, libc::MS_NOATIME),
        (Flags::NODIRATIME, libc::MS_NODIRATIME),
        (Flags::RELATIME, libc::MS_RELATIME),
    ];
    Ok(flags.into_iter().filter(|(flag, _)| found.contains(*flag)).fold(0, |all, (_, flag)| all | flag))
}

/// Gives a folder and the files in it, and in its folders, to a user. Links are not followed.
fn give(folder: &Path, user: u32, group: u32) -> io::Result<()> {
    lchown(folder, Some(user), Some(group))?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => give(&entry.path(), user, group)?,
            false => lchown(entry.path(), Some(user), Some(group))?,
        }
    }
    Ok(())
}

/// Landlock (landlock(7)), as far as the kernel has it: no TCP, and files only as they are mounted.
fn restrict(confinement: &Confinement) -> io::Result<()> {
    let abi = ABI::V5;
    let rules = || -> Result<(), landlock::RulesetError> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?;
        let rules = match confinement.has_network {
            true => rules,
            false => rules.handle_access(AccessNet::from_all(abi))?,
        };
        let mut rules = rules.create()?;
        let writable = std::iter::once(&confinement.folder).chain(&confinement.writable);
        let readable = confinement.readable.iter();
        let accesses = writable
            .map(|path| (path, AccessFs::from_all(abi)))
            .chain(readable.map(|path| (path, AccessFs::from_read(abi))));
        for (path, access) in accesses {
            // What does not exist is not mounted either.
            let Ok(opened) = PathFd::new(path) else { continue };
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(abi) };
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
        rules.restrict_self().map(drop)
    };
    rules().map_err(io::Error::other)
}

/// Drops all capabilities (capabilities(7)).
fn drop_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        process: libc::c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, process: 0 };
    // Effective, permitted and inheritable, each of 64 bits in two halves.
    let none = [0_u32; 6];
    // SAFETY: both outlive the call, and have the sizes of version 3.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) } as libc::c_int)?;
    Ok(())
}
