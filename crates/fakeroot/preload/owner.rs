//! `chown` and `chmod`.

use crate::environment;
use crate::facts::Named;
use crate::next::{EINVAL, ENOTSUP, EPERM, errno, fail, next, result, set_errno};
use crate::session;
use crate::shared::abi::AT_SYMLINK_NOFOLLOW;
use crate::shared::kernel;
use crate::shared::ownership::{FOLDER, LINK, TYPE, mode_on_disk};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Whether the real call is tried, because it may succeed: by root, unless FAKEROOTDONTTRYCHOWN is set. For other
/// users it would be refused.
fn is_tried() -> bool {
    static TRIED: AtomicU8 = AtomicU8::new(0);
    match TRIED.load(Relaxed) {
        1 => true,
        2 => false,
        _ => {
            let is_tried = kernel::real_effective_user() == 0
                && environment::get(b"FAKEROOTDONTTRYCHOWN").is_none_or(|value| value.is_empty());
            TRIED.store(if is_tried { 1 } else { 2 }, Relaxed);
            is_tried
        }
    }
}

pub fn change_owner(file: Named, user: u32, group: u32, real: impl FnOnce() -> c_int) -> c_int {
    let Some(table) = session::table() else { return real() };
    let Some(facts) = file.facts_to_keep(table) else { return -1 };
    if is_tried() {
        let before = errno();
        // A user namespace that does not map these ids reports them as not valid.
        if real() != 0 && errno() != EPERM && errno() != EINVAL {
            return -1;
        }
        set_errno(before);
    }
    result(table.chown(&facts, user, group))
}

pub fn change_mode(file: Named, mode: u32, real: impl FnOnce(u32) -> c_int) -> c_int {
    const SET_GROUP: u32 = 0o2000;
    let Some(table) = session::table() else { return real(mode) };
    let Some(mut facts) = file.facts() else { return -1 };
    if facts.mode & TYPE == LINK {
        return fail(ENOTSUP);
    }
    let given = mode_on_disk(mode, facts.mode & TYPE == FOLDER) & 0o7777;
    let before = errno();
    if real(given) == 0 {
        facts.mode = facts.mode & TYPE | given;
        // The kernel clears the set-group-id bit unless the process is in the group; and in an overlay the chmod
        // may have replaced the inode.
        if (given & SET_GROUP != 0 || file.is_layered(table, facts.key))
            && let Some(after) = file.facts()
        {
            facts = after;
        }
    } else if errno() == EPERM {
        set_errno(before);
        facts = file.facts_to_keep(table).unwrap_or(facts);
    } else {
        return -1;
    }
    result(table.chmod(&facts, mode))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chown(path: *const c_char, user: u32, group: u32) -> c_int {
    change_owner(
        Named::path(path, 0),
        user,
        group,
        || next!(chown(path => *const c_char, user => u32, group => u32)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lchown(path: *const c_char, user: u32, group: u32) -> c_int {
    change_owner(
        Named::path(path, AT_SYMLINK_NOFOLLOW),
        user,
        group,
        || next!(lchown(path => *const c_char, user => u32, group => u32)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchown(descriptor: c_int, user: u32, group: u32) -> c_int {
    change_owner(
        Named::open(descriptor),
        user,
        group,
        || next!(fchown(descriptor => c_int, user => u32, group => u32)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchownat(
    folder: c_int,
    path: *const c_char,
    user: u32,
    group: u32,
    flags: c_int,
) -> c_int {
    change_owner(
        Named { folder, path, flags },
        user,
        group,
        || next!(fchownat(folder => c_int, path => *const c_char, user => u32, group => u32, flags => c_int)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chmod(path: *const c_char, mode: u32) -> c_int {
    change_mode(Named::path(path, 0), mode, |mode| next!(chmod(path => *const c_char, mode => u32)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lchmod(path: *const c_char, mode: u32) -> c_int {
    change_mode(
        Named::path(path, AT_SYMLINK_NOFOLLOW),
        mode,
        |mode| next!(lchmod(path => *const c_char, mode => u32)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchmod(descriptor: c_int, mode: u32) -> c_int {
    change_mode(Named::open(descriptor), mode, |mode| next!(fchmod(descriptor => c_int, mode => u32)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchmodat(folder: c_int, path: *const c_char, mode: u32, flags: c_int) -> c_int {
    change_mode(
        Named { folder, path, flags },
        mode,
        |mode| next!(fchmodat(folder => c_int, path => *const c_char, mode => u32, flags => c_int)),
    )
}
