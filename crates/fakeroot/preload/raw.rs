//! `syscall`: calls by number, for calls for which libc has no function, or had none when the program was written.
//! Calls that matter here are dispatched to the functions of this library; all others are passed through.

use crate::attribute;
use crate::facts::Named;
use crate::identity;
use crate::name;
use crate::next::next;
use crate::owner::{self, change_mode};
use crate::shared::abi::{AT_SYMLINK_NOFOLLOW, Stat, Statx};
use crate::{make, program, session, stat};
use core::ffi::{c_char, c_int, c_long};

#[cfg(target_arch = "x86_64")]
mod number {
    use core::ffi::c_long;
    pub const STAT: c_long = 4;
    pub const FSTAT: c_long = 5;
    pub const LSTAT: c_long = 6;
    pub const EXECVE: c_long = 59;
    pub const RENAME: c_long = 82;
    pub const MKDIR: c_long = 83;
    pub const RMDIR: c_long = 84;
    pub const UNLINK: c_long = 87;
    pub const CHMOD: c_long = 90;
    pub const FCHMOD: c_long = 91;
    pub const CHOWN: c_long = 92;
    pub const FCHOWN: c_long = 93;
    pub const LCHOWN: c_long = 94;
    pub const GETUID: c_long = 102;
    pub const GETGID: c_long = 104;
    pub const SETUID: c_long = 105;
    pub const SETGID: c_long = 106;
    pub const GETEUID: c_long = 107;
    pub const GETEGID: c_long = 108;
    pub const SETREUID: c_long = 113;
    pub const SETREGID: c_long = 114;
    pub const GETGROUPS: c_long = 115;
    pub const SETGROUPS: c_long = 116;
    pub const SETRESUID: c_long = 117;
    pub const GETRESUID: c_long = 118;
    pub const SETRESGID: c_long = 119;
    pub const GETRESGID: c_long = 120;
    pub const SETFSUID: c_long = 122;
    pub const SETFSGID: c_long = 123;
    pub const CAPSET: c_long = 126;
    pub const MKNOD: c_long = 133;
    pub const SETPRIORITY: c_long = 141;
    pub const PIVOT_ROOT: c_long = 155;
    pub const CHROOT: c_long = 161;
    /// `setxattr`, which eleven related calls follow.
    pub const ATTRIBUTES: c_long = 188;
    pub const MKDIRAT: c_long = 258;
    pub const MKNODAT: c_long = 259;
    pub const FCHOWNAT: c_long = 260;
    pub const FSTATAT: c_long = 262;
    pub const UNLINKAT: c_long = 263;
    pub const RENAMEAT: c_long = 264;
    pub const FCHMODAT: c_long = 268;
    pub const RENAMEAT2: c_long = 316;
    pub const EXECVEAT: c_long = 322;
    pub const STATX: c_long = 332;
}

#[cfg(target_arch = "aarch64")]
mod number {
    use core::ffi::c_long;
    /// `setxattr`, which eleven related calls follow.
    pub const ATTRIBUTES: c_long = 5;
    pub const MKNODAT: c_long = 33;
    pub const MKDIRAT: c_long = 34;
    pub const UNLINKAT: c_long = 35;
    pub const RENAMEAT: c_long = 38;
    pub const PIVOT_ROOT: c_long = 41;
    pub const CHROOT: c_long = 51;
    pub const FCHMOD: c_long = 52;
    pub const FCHMODAT: c_long = 53;
    pub const FCHOWNAT: c_long = 54;
    pub const FCHOWN: c_long = 55;
    pub const FSTATAT: c_long = 79;
    pub const FSTAT: c_long = 80;
    pub const CAPSET: c_long = 91;
    pub const SETPRIORITY: c_long = 140;
    pub const SETREGID: c_long = 143;
    pub const SETGID: c_long = 144;
    pub const SETREUID: c_long = 145;
    pub const SETUID: c_long = 146;
    pub const SETRESUID: c_long = 147;
    pub const GETRESUID: c_long = 148;
    pub const SETRESGID: c_long = 149;
    pub const GETRESGID: c_long = 150;
    pub const SETFSUID: c_long = 151;
    pub const SETFSGID: c_long = 152;
    pub const GETGROUPS: c_long = 158;
    pub const SETGROUPS: c_long = 159;
    pub const GETUID: c_long = 174;
    pub const GETEUID: c_long = 175;
    pub const GETGID: c_long = 176;
    pub const GETEGID: c_long = 177;
    pub const EXECVE: c_long = 221;
    pub const RENAMEAT2: c_long = 276;
    pub const EXECVEAT: c_long = 281;
    pub const STATX: c_long = 291;
}

/// The number is the same on all machines.
const FCHMODAT2: c_long = 452;

type Arguments = [c_long; 6];

/// Makes the call unchanged; -1 with `errno` on error, as libc's `syscall`.
fn real(number: c_long, arguments: Arguments) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    next!(syscall(number => c_long, a => c_long, b => c_long, c => c_long, d => c_long, e => c_long, f => c_long)
        -> c_long, or -1)
}

/// Receives as many arguments as the call has; the others are leftover register contents.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if session::table().is_none() {
        return real(number, [a, b, c, d, e, f]);
    }
    // SAFETY: the arguments are those of the call with this number.
    unsafe { dispatch(number, [a, b, c, d, e, f]) }
}

/// Dispatches a call to its function.
///
/// # Safety
/// The requirements of the call itself apply.
unsafe fn dispatch(number: c_long, arguments: Arguments) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let (folder, path) = (a as c_int, b as *const c_char);
    let file = |flags: c_long| Named { folder, path, flags: flags as c_int };
    let with_mode = |mode: u32| real(number, [a, b, mode.into(), d, e, f]) as c_int;
    // SAFETY: the caller's arguments.
    let result = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            number::STAT..=number::LSTAT
            | number::RENAME..=number::RMDIR
            | number::UNLINK
            | number::CHMOD
            | number::CHOWN
            | number::LCHOWN
            | number::MKNOD => by_path(number, a as *const c_char, [b, c]),
            #[cfg(not(target_arch = "x86_64"))]
            number::FSTAT => stat::fstat(folder, b as *mut Stat),
            number::CHROOT => session::chroot(a as *const c_char),
            number::PIVOT_ROOT => {
                session::prepare();
                real(number, arguments) as c_int
            }
            number::FSTATAT => stat::fstatat(folder, path, c as *mut Stat, d as c_int),
            number::STATX => stat::statx(folder, path, c as c_int, d as u32, e as *mut Statx),
            number::FCHOWNAT => owner::fchownat(folder, path, c as u32, d as u32, e as c_int),
            number::FCHOWN => owner::fchown(folder, b as u32, c as u32),
            FCHMODAT2 => change_mode(file(d), c as u32, with_mode),
            number::FCHMODAT => change_mode(file(0), c as u32, with_mode),
            number::FCHMOD => owner::fchmod(folder, b as u32),
            number::MKDIRAT => make::make_folder(file(AT_SYMLINK_NOFOLLOW.into()), c as u32, with_mode),
            number::MKNODAT => make::make_node_at(folder, path, c as u32, d as u64),
            number::UNLINKAT => name::unlinkat(folder, path, c as c_int),
            number::RENAMEAT => {
                name::replace_name((folder, path), (c as c_int, d as *const c_char), 0, || {
                    real(number, arguments) as c_int
                })
            }
            number::RENAMEAT2 => {
                name::replace_name((folder, path), (c as c_int, d as *const c_char), e as u32, || {
                    real(number, arguments) as c_int
                })
            }
            number::EXECVE => program::execve(a as *const c_char, b as program::List, c as program::List),
            number::EXECVEAT => {
                program::execveat(folder, path, c as program::List, d as program::List, e as c_int)
            }
            first if (number::ATTRIBUTES..number::ATTRIBUTES + 12).contains(&first) => {
                return attribute::by_position((number - number::ATTRIBUTES) as usize, arguments);
            }
            _ => return identities(number, arguments),
        }
    };
    result.into()
}

/// The calls that only take a path, which newer machines do not have.
///
/// # Safety
/// The requirements of the call itself apply.
#[cfg(target_arch = "x86_64")]
unsafe fn by_path(number: c_long, path: *const c_char, [b, c]: [c_long; 2]) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match number {
            number::STAT => stat::stat(path, b as *mut Stat),
            number::FSTAT => stat::fstat(path as usize as c_int, b as *mut Stat),
            number::LSTAT => stat::lstat(path, b as *mut Stat),
            number::RENAME => name::rename(path, b as *const c_char),
            number::MKDIR => make::mkdir(path, b as u32),
            number::RMDIR => name::rmdir(path),
            number::UNLINK => name::unlink(path),
            number::CHMOD => owner::chmod(path, b as u32),
            number::CHOWN => owner::chown(path, b as u32, c as u32),
            number::LCHOWN => owner::lchown(path, b as u32, c as u32),
            _ => make::mknod(path, b as u32, c as u64),
        }
    }
}

/// The calls for the process's ids.
///
/// # Safety
/// The requirements of the call itself apply.
unsafe fn identities(number: c_long, arguments: Arguments) -> c_long {
    let [a, b, c, ..] = arguments;
    let (a32, b32, c32) = (a as u32, b as u32, c as u32);
    // SAFETY: the caller's arguments.
    unsafe {
        match number {
            number::GETUID => identity::getuid().into(),
            number::GETEUID => identity::geteuid().into(),
            number::GETGID => identity::getgid().into(),
            number::GETEGID => identity::getegid().into(),
            number::SETUID => identity::setuid(a32).into(),
            number::SETGID => identity::setgid(a32).into(),
            number::SETREUID => identity::setreuid(a32, b32).into(),
            number::SETREGID => identity::setregid(a32, b32).into(),
            number::SETRESUID => identity::setresuid(a32, b32, c32).into(),
            number::SETRESGID => identity::setresgid(a32, b32, c32).into(),
            number::SETFSUID => identity::setfsuid(a32).into(),
            number::SETFSGID => identity::setfsgid(a32).into(),
            number::GETRESUID => identity::getresuid(a as *mut u32, b as *mut u32, c as *mut u32).into(),
            number::GETRESGID => identity::getresgid(a as *mut u32, b as *mut u32, c as *mut u32).into(),
            number::GETGROUPS => identity::getgroups(a as c_int, b as *mut u32).into(),
            number::SETGROUPS => identity::setgroups(a as usize, b as *const u32).into(),
            number::SETPRIORITY => identity::setpriority(a as c_int, b32, c as c_int).into(),
            number::CAPSET => identity::capset(a as *mut u8, b as *const u8).into(),
            _ => real(number, arguments),
        }
    }
}
