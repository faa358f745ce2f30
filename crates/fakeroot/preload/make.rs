//! `mkdir` and `mknod`.

use crate::facts::Named;
use crate::identity;
use crate::next::{EPERM, errno, fail, next, result};
use crate::session;
use crate::shared::abi::{AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use crate::shared::ownership::{
    REGULAR, TYPE, is_device, mode_of_new_folder, mode_on_disk, narrow_number, pack_number, view_of_new,
};
use core::ffi::{c_char, c_int};

unsafe extern "C" {
    fn umask(mask: u32) -> u32;
}

/// The process's umask, which clears permission bits of new files. It can only be read by setting it.
fn mask() -> u32 {
    const OWNERS: u32 = 0o022;
    // SAFETY: umask has no preconditions.
    unsafe {
        let mask = umask(OWNERS);
        umask(mask);
        mask
    }
}

pub fn make_folder(file: Named, mode: u32, real: impl FnOnce(u32) -> c_int) -> c_int {
    let Some(table) = session::table() else { return real(mode) };
    let result_of_real = real(mode_on_disk(mode, true));
    // A folder of root's with the mode that it has on the disk needs no entry.
    if result_of_real != 0 || (mode & 0o700 == 0o700 && identity::makes_as_root()) {
        return result_of_real;
    }
    let Some(facts) = file.facts() else { return -1 };
    let mode = mode_of_new_folder(facts.mode, mode, mask());
    let unknown = table.unknown().view(&facts);
    result(table.made(&facts, view_of_new(unknown, identity::new_file_owner(), mode, facts.number)))
}

fn make_node(file: Named, mode: u32, number: u64, real: impl FnOnce(u32, u64) -> c_int) -> c_int {
    let Some(table) = session::table() else { return real(mode, number) };
    let kind = if mode & TYPE == 0 { REGULAR } else { mode & TYPE };
    let on_disk = mode_on_disk(mode & 0o777, false);
    // On the disk, a device is an empty regular file.
    let result_of_real =
        if is_device(kind) { real(REGULAR | on_disk, 0) } else { real(kind | on_disk, number) };
    if result_of_real != 0 {
        // For example, a node of type folder.
        return if errno() == EPERM { fail(EPERM) } else { result_of_real };
    }
    let Some(facts) = file.facts() else { return -1 };
    let (major, minor) = narrow_number(number);
    let packed = if is_device(kind) { pack_number(major, minor) } else { facts.number };
    let mode = kind | mode & 0o7777 & !mask();
    let unknown = table.unknown().view(&facts);
    result(table.made(&facts, view_of_new(unknown, identity::new_file_owner(), mode, packed)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: u32) -> c_int {
    make_folder(
        Named::path(path, AT_SYMLINK_NOFOLLOW),
        mode,
        |mode| next!(mkdir(path => *const c_char, mode => u32)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(folder: c_int, path: *const c_char, mode: u32) -> c_int {
    make_folder(
        Named { folder, path, flags: AT_SYMLINK_NOFOLLOW },
        mode,
        |mode| next!(mkdirat(folder => c_int, path => *const c_char, mode => u32)),
    )
}

/// Every variant of `mknod` uses this: older libcs only have it under another name.
pub fn make_node_at(folder: c_int, path: *const c_char, mode: u32, number: u64) -> c_int {
    make_node(Named { folder, path, flags: AT_SYMLINK_NOFOLLOW }, mode, number, |mode, number| {
        const VERSION: c_int = 0;
        let mut number = number;
        let result = next!(mknodat(folder => c_int, path => *const c_char, mode => u32, number => u64));
        if result != 0 && errno() == crate::next::ENOSYS {
            return next!(__xmknodat(VERSION => c_int, folder => c_int, path => *const c_char, mode => u32,
                &raw mut number => *mut u64));
        }
        result
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mknod(path: *const c_char, mode: u32, number: u64) -> c_int {
    make_node_at(AT_FDCWD, path, mode, number)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mknodat(folder: c_int, path: *const c_char, mode: u32, number: u64) -> c_int {
    make_node_at(folder, path, mode, number)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknod(_: c_int, path: *const c_char, mode: u32, number: *const u64) -> c_int {
    // SAFETY: the caller's number.
    make_node_at(AT_FDCWD, path, mode, unsafe { *number })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknodat(
    _: c_int,
    folder: c_int,
    path: *const c_char,
    mode: u32,
    number: *const u64,
) -> c_int {
    // SAFETY: the caller's number.
    make_node_at(folder, path, mode, unsafe { *number })
}
