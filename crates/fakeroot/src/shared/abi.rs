//! Structures that libc and the kernel pass to calls, as their headers define them.
//! `tests/layout.rs` compares them with the `libc` crate.

use super::ownership::{Change, Facts, View, narrow_number, pack_number, unpack_number, wide_number};
use super::table::FileId;

/// Relative to the current directory.
pub const AT_FDCWD: i32 = -100;
/// Do not follow a symbolic link.
pub const AT_SYMLINK_NOFOLLOW: i32 = 0x100;
/// `unlinkat` removes a directory.
pub const AT_REMOVEDIR: i32 = 0x200;
/// Follow a symbolic link.
pub const AT_SYMLINK_FOLLOW: i32 = 0x400;
/// Do not trigger an automount.
pub const AT_NO_AUTOMOUNT: i32 = 0x800;
/// Operate on the descriptor itself.
pub const AT_EMPTY_PATH: i32 = 0x1000;
/// The fields that every `stat` reports.
pub const STATX_BASIC: u32 = 0x7ff;
/// The birth time.
pub const STATX_BIRTH: u32 = 0x800;

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// `struct stat`, which is `struct stat64` on these machines.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Stat {
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    padding: u32,
    pub number: u64,
    pub size: i64,
    pub block_size: i64,
    pub blocks: i64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    unused: [i64; 3],
}

/// `struct stat`, which is `struct stat64` on these machines.
#[cfg(target_arch = "aarch64")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Stat {
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    pub links: u32,
    pub user: u32,
    pub group: u32,
    pub number: u64,
    padding: u64,
    pub size: i64,
    pub block_size: i32,
    padding_more: i32,
    pub blocks: i64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    unused: [u32; 2],
}

/// `struct statx_timestamp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct StatxTime {
    pub seconds: i64,
    pub nanoseconds: u32,
    padding: i32,
}

/// `struct statx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Statx {
    pub mask: u32,
    pub block_size: u32,
    pub attributes: u64,
    pub links: u32,
    pub user: u32,
    pub group: u32,
    pub mode: u16,
    padding: u16,
    pub inode: u64,
    pub size: u64,
    pub blocks: u64,
    pub attributes_mask: u64,
    pub accessed: StatxTime,
    pub born: StatxTime,
    pub changed: StatxTime,
    pub modified: StatxTime,
    pub number_major: u32,
    pub number_minor: u32,
    pub device_major: u32,
    pub device_minor: u32,
    unused: [u64; 14],
}

impl Statx {
    /// The facts that the table needs.
    pub fn facts(&self) -> Facts {
        let birth = if self.mask & STATX_BIRTH != 0 {
            (self.born.seconds as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(u64::from(self.born.nanoseconds))
        } else {
            0
        };
        Facts {
            key: FileId { device: wide_number(self.device_major, self.device_minor), inode: self.inode },
            mode: u32::from(self.mode),
            user: self.user,
            group: self.group,
            links: u64::from(self.links),
            number: pack_number(self.number_major, self.number_minor),
            birth,
            change: Change::of(self.changed.seconds, self.changed.nanoseconds.into()),
        }
    }

    /// Whether the inode was last changed at least [`Change::SETTLED_NANOSECONDS`] before `now`.
    pub fn is_settled(&self, now: Time) -> bool {
        let seconds = now.seconds.wrapping_sub(self.changed.seconds);
        let nanoseconds = now.nanoseconds.wrapping_sub(self.changed.nanoseconds.into());
        let more = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
        more >= Change::SETTLED_NANOSECONDS
    }

    /// Overwrites owner, mode and device number with what the session shows.
    pub fn show(&mut self, look: View) {
        self.user = look.user;
        self.group = look.group;
        self.mode = look.mode as u16;
        (self.number_major, self.number_minor) = unpack_number(look.number);
    }
}

impl Stat {
    /// The inode.
    #[inline]
    pub fn key(&self) -> FileId {
        FileId { device: self.device, inode: self.inode }
    }

    /// The facts that the table needs; `struct stat` has no birth time.
    pub fn facts(&self) -> Facts {
        let (major, minor) = narrow_number(self.number);
        Facts {
            key: self.key(),
            mode: self.mode,
            user: self.user,
            group: self.group,
            #[allow(clippy::unnecessary_cast, reason = "the width depends on the architecture")]
            links: self.links as u64,
            number: pack_number(major, minor),
            birth: 0,
            change: self.change(),
        }
    }

    /// The folded time of the inode's last change.
    pub fn change(&self) -> Change {
        Change::of(self.changed.seconds, self.changed.nanoseconds)
    }

    /// Overwrites owner, mode and device number with what the session shows.
    pub fn show(&mut self, look: View) {
        self.user = look.user;
        self.group = look.group;
        self.mode = look.mode;
        let (major, minor) = unpack_number(look.number);
        self.number = wide_number(major, minor);
    }

    /// Fills this with the result of a `statx`.
    pub fn fill(&mut self, statx: &Statx) {
        let time = |time: StatxTime| Time { seconds: time.seconds, nanoseconds: i64::from(time.nanoseconds) };
        *self = Stat {
            device: wide_number(statx.device_major, statx.device_minor),
            inode: statx.inode,
            links: statx.links.into(),
            mode: statx.mode.into(),
            user: statx.user,
            group: statx.group,
            number: wide_number(statx.number_major, statx.number_minor),
            size: statx.size as i64,
            block_size: statx.block_size as _,
            blocks: statx.blocks as i64,
            accessed: time(statx.accessed),
            modified: time(statx.modified),
            changed: time(statx.changed),
            ..Stat::default()
        };
    }
}

impl From<&Stat> for Statx {
    /// Converts everything except the times.
    fn from(stat: &Stat) -> Statx {
        let (device_major, device_minor) = narrow_number(stat.device);
        let (number_major, number_minor) = narrow_number(stat.number);
        Statx {
            links: stat.links as u32,
            user: stat.user,
            group: stat.group,
            mode: stat.mode as u16,
            inode: stat.inode,
            number_major,
            number_minor,
            device_major,
            device_minor,
            size: stat.size as u64,
            blocks: stat.blocks as u64,
            block_size: stat.block_size as u32,
            ..Statx::default()
        }
    }
}
