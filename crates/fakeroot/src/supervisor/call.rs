//! Decodes system calls into requests, with one request for all variants of a call. Pure: number and arguments in.

use crate::shared::abi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW};
use crate::shared::identity::IdChange;
use std::ffi::c_int;

/// A file as a call names it. Addresses are in the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The folder that the path is relative to, or the file if there is no path.
    pub folder: c_int,
    /// The address of the path; `None` for an open file.
    pub path: Option<u64>,
    /// `AT_SYMLINK_NOFOLLOW` and `AT_EMPTY_PATH`.
    pub flags: c_int,
}

/// The request that a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `stat`; the result goes to this address.
    Stat(Named, u64),
    /// `statx` with flags and mask; the result goes to this address.
    Statx(Named, c_int, u32, u64),
    /// `chown` to this user and group.
    ChangeOwner(Named, u32, u32),
    /// `chmod`.
    ChangeMode(Named, u32),
    /// `mkdir`.
    MakeFolder(Named, u32),
    /// `mknod` with a mode and a device number.
    MakeNode(Named, u32, u64),
    /// `unlink` with these flags.
    Remove(Named, c_int),
    /// `rename` with these flags.
    Rename(Named, Named, u32),
    /// An id: the user's or the group's, effective or real.
    Id { is_user: bool, is_effective: bool },
    /// Real, effective and saved id; the results go to these addresses.
    Ids { is_user: bool, to: [u64; 3] },
    /// A change of ids.
    IdChange { is_user: bool, asked: IdChange },
    /// Supplementary groups: room for this many, and the address.
    Groups { room: c_int, to: u64 },
    /// Sets supplementary groups: their number, and the address.
    SetGroups { count: u64, from: u64 },
    /// `capset`, which root may call, with no visible effect afterwards.
    Grant,
    /// `setpriority`: which, who, priority.
    SetPriority(c_int, u32, c_int),
    /// Reads an attribute: name, buffer, its length.
    Attribute(Named, u64, u64, u64),
    /// Lists attributes: buffer, its length.
    Attributes(Named, u64, u64),
    /// Sets an attribute: name, value, its length, flags.
    SetAttribute(Named, [u64; 3], c_int),
    /// Removes an attribute: name.
    RemoveAttribute(Named, u64),
}

/// The libc crate does not define this number on every machine.
const FCHMODAT2: i64 = 452;

impl Call {
    /// The request of a call; `None` for a call that is not answered.
    pub fn of(number: i64, arguments: [u64; 6]) -> Option<Call> {
        let [a, b, c, d, e, _] = arguments;
        let at = |flags: u64| Named {
            folder: a as c_int,
            path: Some(b),
            flags: flags as c_int & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH),
        };
        let open = || Named { folder: a as c_int, path: None, flags: AT_EMPTY_PATH };
        let path = |flags| Named { folder: AT_FDCWD, path: Some(a), flags };
        let new = || Named { folder: c as c_int, path: Some(d), flags: AT_SYMLINK_NOFOLLOW };
        let nofollow = AT_SYMLINK_NOFOLLOW as u64;
        let user = |asked| Some(Call::IdChange { is_user: true, asked });
        let group = |asked| Some(Call::IdChange { is_user: false, asked });
        let (a32, b32, c32) = (a as u32, b as u32, c as u32);
        #[cfg(target_arch = "x86_64")]
        match number {
            libc::SYS_stat => return Some(Call::Stat(path(0), b)),
            libc::SYS_lstat => return Some(Call::Stat(path(AT_SYMLINK_NOFOLLOW), b)),
            libc::SYS_chown => return Some(Call::ChangeOwner(path(0), b32, c32)),
            libc::SYS_lchown => return Some(Call::ChangeOwner(path(AT_SYMLINK_NOFOLLOW), b32, c32)),
            libc::SYS_chmod => return Some(Call::ChangeMode(path(0), b32)),
            libc::SYS_mkdir => return Some(Call::MakeFolder(path(AT_SYMLINK_NOFOLLOW), b32)),
            libc::SYS_mknod => return Some(Call::MakeNode(path(AT_SYMLINK_NOFOLLOW), b32, c)),
            libc::SYS_unlink => return Some(Call::Remove(path(AT_SYMLINK_NOFOLLOW), 0)),
            libc::SYS_rmdir => {
                return Some(Call::Remove(path(AT_SYMLINK_NOFOLLOW), crate::shared::abi::AT_REMOVEDIR));
            }
            libc::SYS_rename => {
                let new = Named { folder: AT_FDCWD, path: Some(b), flags: AT_SYMLINK_NOFOLLOW };
                return Some(Call::Rename(path(AT_SYMLINK_NOFOLLOW), new, 0));
            }
            _ => {}
        }
        match number {
            libc::SYS_newfstatat => Some(Call::Stat(at(d), c)),
            libc::SYS_fstat => Some(Call::Stat(open(), b)),
            libc::SYS_statx => Some(Call::Statx(at(c), c as c_int, d as u32, e)),
            libc::SYS_fchownat => Some(Call::ChangeOwner(at(e), c32, d as u32)),
            libc::SYS_fchown => Some(Call::ChangeOwner(open(), b32, c32)),
            libc::SYS_fchmodat => Some(Call::ChangeMode(at(0), c32)),
            libc::SYS_fchmod => Some(Call::ChangeMode(open(), b32)),
            FCHMODAT2 => Some(Call::ChangeMode(at(d), c32)),
            libc::SYS_mkdirat => Some(Call::MakeFolder(at(nofollow), c32)),
            libc::SYS_mknodat => Some(Call::MakeNode(at(nofollow), c32, d)),
            libc::SYS_unlinkat => Some(Call::Remove(at(nofollow), c as c_int)),
            libc::SYS_renameat => Some(Call::Rename(at(nofollow), new(), 0)),
            libc::SYS_renameat2 => Some(Call::Rename(at(nofollow), new(), e as u32)),
            libc::SYS_getuid => Some(Call::Id { is_user: true, is_effective: false }),
            libc::SYS_geteuid => Some(Call::Id { is_user: true, is_effective: true }),
            libc::SYS_getgid => Some(Call::Id { is_user: false, is_effective: false }),
            libc::SYS_getegid => Some(Call::Id { is_user: false, is_effective: true }),
            libc::SYS_getresuid => Some(Call::Ids { is_user: true, to: [a, b, c] }),
            libc::SYS_getresgid => Some(Call::Ids { is_user: false, to: [a, b, c] }),
            libc::SYS_setuid => user(IdChange::One(a32)),
            libc::SYS_setgid => group(IdChange::One(a32)),
            libc::SYS_setreuid => user(IdChange::Two(a32, b32)),
            libc::SYS_setregid => group(IdChange::Two(a32, b32)),
            libc::SYS_setresuid => user(IdChange::Three(a32, b32, c32)),
            libc::SYS_setresgid => group(IdChange::Three(a32, b32, c32)),
            libc::SYS_setfsuid => user(IdChange::ForFiles(a32)),
            libc::SYS_setfsgid => group(IdChange::ForFiles(a32)),
            libc::SYS_getgroups => Some(Call::Groups { room: a as c_int, to: b }),
            libc::SYS_setgroups => Some(Call::SetGroups { count: a, from: b }),
            libc::SYS_capset => Some(Call::Grant),
            libc::SYS_setpriority => Some(Call::SetPriority(a as c_int, b32, c as c_int)),
            libc::SYS_getxattr => Some(Call::Attribute(path(0), b, c, d)),
            libc::SYS_lgetxattr => Some(Call::Attribute(path(AT_SYMLINK_NOFOLLOW), b, c, d)),
            libc::SYS_fgetxattr => Some(Call::Attribute(open(), b, c, d)),
            libc::SYS_listxattr => Some(Call::Attributes(path(0), b, c)),
            libc::SYS_llistxattr => Some(Call::Attributes(path(AT_SYMLINK_NOFOLLOW), b, c)),
            libc::SYS_flistxattr => Some(Call::Attributes(open(), b, c)),
            libc::SYS_setxattr => Some(Call::SetAttribute(path(0), [b, c, d], e as c_int)),
            libc::SYS_lsetxattr => Some(Call::SetAttribute(path(AT_SYMLINK_NOFOLLOW), [b, c, d], e as c_int)),
            libc::SYS_fsetxattr => Some(Call::SetAttribute(open(), [b, c, d], e as c_int)),
            libc::SYS_removexattr => Some(Call::RemoveAttribute(path(0), b)),
            libc::SYS_lremovexattr => Some(Call::RemoveAttribute(path(AT_SYMLINK_NOFOLLOW), b)),
            libc::SYS_fremovexattr => Some(Call::RemoveAttribute(open(), b)),
            _ => None,
        }
    }
}

/// The flags of `statx` that do not select the file.
pub const fn other_flags(flags: c_int) -> c_int {
    flags & !(AT_SYMLINK_NOFOLLOW | AT_SYMLINK_FOLLOW | AT_EMPTY_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::identity::UNCHANGED;
    use crate::shared::watched::{ANSWERED, MISSING};

    #[test]
    fn every_answered_call_is_decoded() {
        for number in ANSWERED {
            assert!(Call::of(number.into(), [0; 6]).is_some(), "{number}");
        }
        for number in MISSING {
            assert_eq!(Call::of(number.into(), [0; 6]), None);
        }
        let mut numbers = [&ANSWERED[..], &MISSING].concat();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ANSWERED.len() + MISSING.len());
    }

    /// Decoding any other call would mean that the filter does not hand it over.
    #[test]
    fn only_answered_calls_are_decoded() {
        for number in 0..1024 {
            let is_answered = ANSWERED.contains(&(number as u32));
            assert_eq!(Call::of(number, [0; 6]).is_some(), is_answered, "{number}");
        }
    }

    #[test]
    fn variants_of_a_call_make_the_same_request() {
        let (at, name) = (AT_FDCWD as u64, 4096);
        let nofollow = AT_SYMLINK_NOFOLLOW as u64;
        let named = Named { folder: AT_FDCWD, path: Some(name), flags: AT_SYMLINK_NOFOLLOW };
        let by_folder = Call::of(libc::SYS_newfstatat, [at, name, 8192, nofollow, 0, 0]);
        assert_eq!(by_folder, Some(Call::Stat(named, 8192)));
        let owner = Call::of(libc::SYS_fchownat, [at, name, 1, u64::MAX, nofollow, 0]);
        assert_eq!(owner, Some(Call::ChangeOwner(named, 1, UNCHANGED)));
        #[cfg(target_arch = "x86_64")]
        {
            assert_eq!(Call::of(libc::SYS_lstat, [name, 8192, 0, 0, 0, 0]), by_folder);
            assert_eq!(Call::of(libc::SYS_lchown, [name, 1, u64::MAX, 0, 0, 0]), owner);
        }
    }
}
