//! Removing and replacing names. As long as the table was never written to, only the real call is made.

use crate::facts::Named;
use crate::next::{errno, next, set_errno};
use crate::session;
use crate::shared::abi::AT_SYMLINK_NOFOLLOW;
use crate::shared::ownership::Facts;
use core::ffi::{c_char, c_int, c_uint};

/// The facts of a file that will lose a name, if it may have an entry.
fn known(folder: c_int, path: *const c_char) -> Option<Facts> {
    let table = session::table().filter(|table| !table.is_untouched())?;
    let before = errno();
    let facts = Named { folder, path, flags: AT_SYMLINK_NOFOLLOW }.facts();
    set_errno(before);
    facts.filter(|facts| table.may_have(facts.key))
}

pub fn remove_name(folder: c_int, path: *const c_char, real: impl FnOnce() -> c_int) -> c_int {
    let known = known(folder, path);
    let result = real();
    if result == 0
        && let (Some(facts), Some(table)) = (known, session::table())
    {
        table.name_removed(&facts);
    }
    result
}

pub fn replace_name(
    old: (c_int, *const c_char),
    new: (c_int, *const c_char),
    flags: c_uint,
    real: impl FnOnce() -> c_int,
) -> c_int {
    const RENAME_EXCHANGE: c_uint = 2;
    let replaced = if flags & RENAME_EXCHANGE != 0 { None } else { known(new.0, new.1) };
    // The kernel does nothing if both names belong to one file.
    let replaced = replaced.filter(|facts| known(old.0, old.1).is_none_or(|moved| moved.key != facts.key));
    let result = real();
    if result == 0
        && let (Some(facts), Some(table)) = (replaced, session::table())
    {
        table.name_removed(&facts);
    }
    result
}

const HERE: c_int = crate::shared::abi::AT_FDCWD;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    remove_name(HERE, path, || next!(unlink(path => *const c_char)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    remove_name(folder, path, || next!(unlinkat(folder => c_int, path => *const c_char, flags => c_int)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    remove_name(HERE, path, || next!(rmdir(path => *const c_char)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    remove_name(HERE, path, || next!(remove(path => *const c_char)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    replace_name((HERE, old), (HERE, new), 0, || next!(rename(old => *const c_char, new => *const c_char)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    old_folder: c_int,
    old: *const c_char,
    new_folder: c_int,
    new: *const c_char,
) -> c_int {
    replace_name(
        (old_folder, old),
        (new_folder, new),
        0,
        || next!(renameat(old_folder => c_int, old => *const c_char, new_folder => c_int, new => *const c_char)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    old_folder: c_int,
    old: *const c_char,
    new_folder: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    replace_name((old_folder, old), (new_folder, new), flags, || {
        next!(renameat2(old_folder => c_int, old => *const c_char, new_folder => c_int, new => *const c_char,
            flags => c_uint))
    })
}
