//! The kernel's facts about a file, including its birth time.

use crate::next::{ENOSYS, errno, next, set_errno};
use crate::shared::abi::{AT_EMPTY_PATH, AT_NO_AUTOMOUNT, STATX_BASIC, STATX_BIRTH, Stat, Statx, Time};
use crate::shared::kernel;
use crate::shared::mapping::Mapping;
use crate::shared::ownership::Facts;
use crate::shared::table::{FileId, Table};
use core::ffi::{c_char, c_int};

/// A file as calls name it.
#[derive(Clone, Copy)]
pub struct Named {
    /// The folder that the path is relative to, or the file itself if the path is empty.
    pub folder: c_int,
    /// The path, which may be empty.
    pub path: *const c_char,
    /// `AT_SYMLINK_NOFOLLOW` and `AT_EMPTY_PATH`.
    pub flags: c_int,
}

impl Named {
    /// A file by its path, with flags.
    pub fn path(path: *const c_char, flags: c_int) -> Named {
        Named { folder: crate::shared::abi::AT_FDCWD, path, flags }
    }

    /// An open file, by its descriptor.
    pub fn open(descriptor: c_int) -> Named {
        Named { folder: descriptor, path: c"".as_ptr(), flags: AT_EMPTY_PATH }
    }

    /// The result of `statx`; `None` if it fails, with `errno` set.
    pub fn statx(self) -> Option<Statx> {
        let mut statx = Statx::default();
        let flags = self.flags | AT_NO_AUTOMOUNT;
        let mask = STATX_BASIC | STATX_BIRTH;
        let result = next!(statx(self.folder => c_int, self.path => *const c_char, flags => c_int, mask => u32,
            &raw mut statx => *mut Statx));
        if result == 0 {
            return Some(statx);
        }
        // A kernel, a sandbox or a libc without statx.
        if errno() == ENOSYS { self.stat() } else { None }
    }

    fn stat(self) -> Option<Statx> {
        let mut stat = Stat::default();
        let result = next!(fstatat(self.folder => c_int, self.path => *const c_char, &raw mut stat => *mut Stat,
            self.flags => c_int));
        if result != 0 {
            return None;
        }
        Some(Statx::from(&stat))
    }

    /// The facts that the table needs; `None` on error, with `errno` set.
    pub fn facts(self) -> Option<Facts> {
        self.statx().map(|statx| statx.facts().settled(false))
    }

    /// The facts for an entry that will be written: they stay the same as long as the file exists.
    pub fn facts_to_keep(self, table: &Table<Mapping>) -> Option<Facts> {
        const REALTIME_COARSE: c_int = 5;
        let statx = self.statx()?;
        let mut now = Time::default();
        let result = next!(clock_gettime(REALTIME_COARSE => c_int, &raw mut now => *mut Time));
        let facts = statx.facts().settled(result == 0 && statx.is_settled(now));
        let is_known = || table.find(facts.key).is_some_and(|entry| entry.birth == facts.birth);
        if self.is_layered(table, facts.key) && !is_known() { Some(self.raised(facts)) } else { Some(facts) }
    }

    /// Whether the file is in an overlayfs.
    pub fn is_layered(self, table: &Table<Mapping>, key: FileId) -> bool {
        table.is_layered(key.device, || kernel::file_system(self.folder, self.path, self.flags))
    }

    /// The facts of a file in an overlayfs once it is certainly in the upper layer, where its birth time stays. A
    /// chown that changes nothing copies it there, as root's chown would.
    fn raised(self, facts: Facts) -> Facts {
        use crate::shared::ownership::UNCHANGED;
        let before = errno();
        let result = next!(fchownat(self.folder => c_int, self.path => *const c_char, UNCHANGED => u32,
            UNCHANGED => u32, self.flags => c_int));
        let after = self.facts().filter(|_| result == 0);
        set_errno(before);
        match after {
            Some(after) => Facts { key: after.key, birth: after.birth, ..facts }.settled(false),
            // The file is identified by its inode number alone.
            None => Facts { birth: 0, ..facts }.settled(false),
        }
    }
}
