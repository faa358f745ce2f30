//! What the kernel knows of a file, with its birth.

use crate::next::{ENOSYS, errno, next};
use crate::shared::abi::{AT_EMPTY_PATH, AT_NO_AUTOMOUNT, STATX_BASIC, STATX_BIRTH, Stat, Statx};
use crate::shared::ownership::Facts;
use core::ffi::{c_char, c_int};

/// A file as calls name it.
#[derive(Clone, Copy)]
pub struct Named {
    /// The folder that the path is relative to, or the file itself if the path is empty.
    pub folder: c_int,
    /// The path.
    pub path: *const c_char,
    /// `AT_SYMLINK_NOFOLLOW` and `AT_EMPTY_PATH`.
    pub flags: c_int,
}

impl Named {
    /// A path, with flags.
    pub fn path(path: *const c_char, flags: c_int) -> Named {
        Named { folder: crate::shared::abi::AT_FDCWD, path, flags }
    }

    /// An open file.
    pub fn open(descriptor: c_int) -> Named {
        Named { folder: descriptor, path: c"".as_ptr(), flags: AT_EMPTY_PATH }
    }

    /// What `statx` says; `None` if it fails, with `errno` set.
    pub fn statx(self) -> Option<Statx> {
        let mut statx = Statx::default();
        let flags = self.flags | AT_NO_AUTOMOUNT;
        let mask = STATX_BASIC | STATX_BIRTH;
        let result = next!(statx(self.folder => c_int, self.path => *const c_char, flags => c_int, mask => u32,
            &raw mut statx => *mut Statx));
        if result == 0 {
            return Some(statx);
        }
        // A kernel, a sandbox or a libc that does not know statx.
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

    /// What the table has to know; `None` if the file cannot be looked at, with `errno` set.
    pub fn facts(self) -> Option<Facts> {
        self.statx().map(|statx| statx.facts())
    }
}
