//! Project quotas: the kernel's own limit on the content of a folder, on file systems mounted with `prjquota` (XFS, or
//! ext4 made with `-O quota,project`).
//!
//! Each inode has a project id. New inodes inherit it from their folder (`FS_XFLAG_PROJINHERIT`,
//! ioctl_xfs_fsgetxattr(2)), and a process in another user namespace cannot change it. statvfs(3) of such a folder
//! reports the project's usage and limit. Only root of the machine can assign folders to a project.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR` of linux/fs.h.
const GET_ATTRIBUTES: u32 = 0x801c_581f;
const SET_ATTRIBUTES: u32 = 0x401c_5820;
/// `FS_XFLAG_PROJINHERIT` of linux/fs.h.
const INHERIT: u32 = 0x200;
/// `QCMD(Q_GETQUOTA, PRJQUOTA)` and `QCMD(Q_SETQUOTA, PRJQUOTA)` of linux/quota.h.
const GET_QUOTA: u32 = (0x80_0007 << 8) | 2;
const SET_QUOTA: u32 = (0x80_0008 << 8) | 2;
/// `QIF_BLIMITS` of linux/quota.h.
const BLOCK_LIMITS: u32 = 1;
/// The unit of limits (quotactl(2)).
const BLOCK_BYTES: u64 = 1024;

/// The largest limit that ext4 accepts: it counts bytes in 63 bits.
const BLOCKS_MAX: u64 = i64::MAX as u64 / BLOCK_BYTES;
/// `QCMD(Q_XGETQSTATV, PRJQUOTA)`, `FS_QSTATV_VERSION1` and `FS_QUOTA_PDQ_ENFD` of linux/dqblk_xfs.h.
const GET_STATE: u32 = (0x5808 << 8) | 2;
const STATE_VERSION: i8 = 1;
const IS_ENFORCED: u16 = 0x20;

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk` of linux/quota.h.
#[repr(C)]
#[derive(Default)]
struct Limits {
    blocks_hard: u64,
    blocks_soft: u64,
    used_bytes: u64,
    inodes_hard: u64,
    inodes_soft: u64,
    inodes: u64,
    block_time: u64,
    inode_time: u64,
    valid: u32,
}

/// The beginning of `struct fs_quota_statv` of linux/dqblk_xfs.h.
#[repr(C)]
struct State {
    version: i8,
    padding: u8,
    flags: u16,
    others: [u64; 32],
}

/// A group of folders whose content the kernel counts and limits together. Dropping it lifts the limit.
#[derive(Debug)]
pub struct Project {
    number: u32,
    folder: File,
    /// Space used by earlier holders of the same project id: kept roots of their builds.
    before_bytes: u64,
}

impl Project {
    /// Assigns empty folders of one file system to the project with this id (not 0). `None` if the file system does not
    /// enforce project quotas, or this process may not use them.
    pub fn begin(folders: &[&Path], number: u32) -> io::Result<Option<Project>> {
        let open = |folder: &&Path| fs_err::File::open(folder).map(File::from);
        let opened = folders.iter().map(open).collect::<io::Result<Vec<File>>>()?;
        let Some(folder) = opened.first().map(File::try_clone).transpose()? else { return Ok(None) };
        if !is_enforced(&folder) {
            return Ok(None);
        }
        let before_bytes = limits(&folder, number)?.used_bytes;
        let project = Project { number, folder, before_bytes };
        // A limit left by an earlier process would apply to this build.
        project.bound(u64::MAX)?;
        opened.iter().try_for_each(|folder| join(folder, number))?;
        Ok(Some(project))
    }

    /// Limits the content of all folders together, from now on.
    pub fn bound(&self, bytes_max: u64) -> io::Result<()> {
        let blocks = bytes_max.saturating_add(self.before_bytes).div_ceil(BLOCK_BYTES);
        self.set(blocks.clamp(1, BLOCKS_MAX))
    }

    /// Space used by the content of the folders, without that of earlier holders of the project id.
    ///
    /// # Errors
    /// Fails if the file system has lost its quota.
    pub fn used_bytes(&self) -> io::Result<u64> {
        Ok(limits(&self.folder, self.number)?.used_bytes.saturating_sub(self.before_bytes))
    }

    fn set(&self, blocks_hard: u64) -> io::Result<()> {
        let mut wanted = Limits { blocks_hard, valid: BLOCK_LIMITS, ..Limits::default() };
        quotactl(&self.folder, SET_QUOTA, self.number, &mut wanted)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        // 0 means no limit. If this fails, the old limit holds for this project id until a build uses the id again.
        let _ = self.set(0);
    }
}

/// Whether the file system of a folder enforces project limits: it may also be set up for accounting only.
fn is_enforced(folder: &File) -> bool {
    let mut state = State { version: STATE_VERSION, padding: 0, flags: 0, others: [0; 32] };
    quotactl(folder, GET_STATE, 0, &mut state).is_ok() && state.flags & IS_ENFORCED != 0
}

/// Assigns a folder, and everything created in it from now on, to a project.
fn join(folder: &File, number: u32) -> io::Result<()> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes a structure of this size (linux/fs.h); the request number encodes the size.
    let found =
        unsafe { libc::ioctl(folder.as_raw_fd(), GET_ATTRIBUTES as _, std::ptr::from_mut(&mut attributes)) };
    check(found.into())?;
    attributes.project = number;
    attributes.flags |= INHERIT;
    // SAFETY: the kernel reads a structure of this size.
    check(
        unsafe { libc::ioctl(folder.as_raw_fd(), SET_ATTRIBUTES as _, std::ptr::from_ref(&attributes)) }
            .into(),
    )
}

fn limits(folder: &File, number: u32) -> io::Result<Limits> {
    let mut found = Limits::default();
    match quotactl(folder, GET_QUOTA, number, &mut found) {
        // This project id was never used (quotactl(2)).
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Limits::default()),
        other => other.map(|()| found),
    }
}

/// quotactl_fd(2), since Linux 5.14. `Argument` is the structure that the command takes.
fn quotactl<Argument>(folder: &File, command: u32, number: u32, argument: &mut Argument) -> io::Result<()> {
    let argument = std::ptr::from_mut(argument);
    // SAFETY: the kernel reads or writes the structure that the command takes, and `Argument` has its layout.
    check(unsafe { libc::syscall(libc::SYS_quotactl_fd, folder.as_raw_fd(), command, number, argument) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
