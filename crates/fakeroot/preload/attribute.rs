//! Extended attributes and access lists.
//!
//! `shared/attributes.rs` decides which of them the table keeps. The `acl_*` functions fail as these attributes do.

use crate::facts::Named;
use crate::next::{E2BIG, EEXIST, EINVAL, ENODATA, ENOSPC, ENOTSUP, ERANGE, errno, fail, next, set_errno};
use crate::session;
use crate::shared::abi::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use crate::shared::attributes::{Keeper, NAME_BYTES_MAX, VALUE_BYTES_MAX, is_kept_for_disk, keeper};
use crate::shared::operations::{Known, Refused, SetWhen};
use core::ffi::{CStr, c_char, c_int, c_long, c_void};

/// The real call, in the variant for how the file is named.
fn real_get(file: Named, name: *const c_char, to: *mut c_void, room: usize) -> isize {
    if file.flags & AT_EMPTY_PATH != 0 {
        next!(fgetxattr(file.folder => c_int, name => *const c_char, to => *mut c_void, room => usize) -> isize, or -1)
    } else if file.flags & AT_SYMLINK_NOFOLLOW != 0 {
        next!(lgetxattr(file.path => *const c_char, name => *const c_char, to => *mut c_void, room => usize) -> isize,
            or -1)
    } else {
        next!(getxattr(file.path => *const c_char, name => *const c_char, to => *mut c_void, room => usize) -> isize,
            or -1)
    }
}

fn real_list(file: Named, to: *mut c_char, room: usize) -> isize {
    if file.flags & AT_EMPTY_PATH != 0 {
        next!(flistxattr(file.folder => c_int, to => *mut c_char, room => usize) -> isize, or -1)
    } else if file.flags & AT_SYMLINK_NOFOLLOW != 0 {
        next!(llistxattr(file.path => *const c_char, to => *mut c_char, room => usize) -> isize, or -1)
    } else {
        next!(listxattr(file.path => *const c_char, to => *mut c_char, room => usize) -> isize, or -1)
    }
}

fn real_set(file: Named, name: *const c_char, value: *const c_void, bytes: usize, flags: c_int) -> c_int {
    if file.flags & AT_EMPTY_PATH != 0 {
        next!(fsetxattr(file.folder => c_int, name => *const c_char, value => *const c_void, bytes => usize,
            flags => c_int))
    } else if file.flags & AT_SYMLINK_NOFOLLOW != 0 {
        next!(lsetxattr(file.path => *const c_char, name => *const c_char, value => *const c_void, bytes => usize,
            flags => c_int))
    } else {
        next!(setxattr(file.path => *const c_char, name => *const c_char, value => *const c_void, bytes => usize,
            flags => c_int))
    }
}

fn real_remove(file: Named, name: *const c_char) -> c_int {
    if file.flags & AT_EMPTY_PATH != 0 {
        next!(fremovexattr(file.folder => c_int, name => *const c_char))
    } else if file.flags & AT_SYMLINK_NOFOLLOW != 0 {
        next!(lremovexattr(file.path => *const c_char, name => *const c_char))
    } else {
        next!(removexattr(file.path => *const c_char, name => *const c_char))
    }
}

fn name_of<'a>(name: *const c_char) -> Result<&'a [u8], c_int> {
    // SAFETY: the caller's NUL-terminated string.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX { Err(ERANGE) } else { Ok(bytes) }
}

fn get(file: Named, name: *const c_char, to: *mut c_void, room: usize) -> isize {
    let Some(table) = session::table() else { return real_get(file, name, to, room) };
    let bytes = match name_of(name) {
        Ok(bytes) => bytes,
        Err(number) => return fail(number) as isize,
    };
    if keeper(bytes) == Keeper::Nowhere {
        return fail(ENOTSUP) as isize;
    }
    if !table.is_untouched() {
        let Some(facts) = file.facts() else { return -1 };
        let buffer = match room {
            0 => &mut [][..],
            // SAFETY: the caller's buffer has this much room; without room it may be null.
            _ => unsafe { core::slice::from_raw_parts_mut(to.cast(), room) },
        };
        match table.attribute(&facts, bytes, buffer) {
            Known::Nothing => {}
            Known::Absent => return fail(ENODATA) as isize,
            Known::Bytes(length) if room != 0 && length > room => return fail(ERANGE) as isize,
            Known::Bytes(length) => return length as isize,
        }
    }
    real_get(file, name, to, room)
}

fn refused(why: Refused) -> c_int {
    fail(match why {
        Refused::Missing => ENODATA,
        Refused::Exists => EEXIST,
        Refused::Full => ENOSPC,
    })
}

/// Whether the disk has an attribute of this name.
fn is_on_disk(file: Named, name: *const c_char) -> bool {
    let before = errno();
    let there = real_get(file, name, core::ptr::null_mut(), 0) >= 0;
    set_errno(before);
    there
}

fn set(file: Named, name: *const c_char, value: *const c_void, bytes: usize, flags: c_int) -> c_int {
    const CREATE: c_int = 1;
    const REPLACE: c_int = 2;
    let Some(table) = session::table() else { return real_set(file, name, value, bytes, flags) };
    let name_bytes = match name_of(name) {
        Ok(bytes) => bytes,
        Err(number) => return fail(number),
    };
    if bytes > VALUE_BYTES_MAX {
        return fail(E2BIG);
    }
    let when = match flags {
        0 => SetWhen::Any,
        CREATE => SetWhen::Create,
        REPLACE => SetWhen::Replace,
        _ => return fail(EINVAL),
    };
    match keeper(name_bytes) {
        Keeper::Nowhere => return fail(ENOTSUP),
        Keeper::Disk => {
            let result = real_set(file, name, value, bytes, flags);
            if result == 0 || errno() != ENOTSUP || !is_kept_for_disk(name_bytes) {
                return result;
            }
        }
        Keeper::Table => {}
    }
    let Some(facts) = file.facts_to_keep(table) else { return -1 };
    // SAFETY: the caller's value has this many bytes; an empty one may be null.
    let value = if bytes == 0 { &[] } else { unsafe { core::slice::from_raw_parts(value.cast(), bytes) } };
    match table.set_attribute(&facts, name_bytes, Some(value), when, is_on_disk(file, name)) {
        Ok(()) => 0,
        Err(why) => refused(why),
    }
}

fn remove(file: Named, name: *const c_char) -> c_int {
    let Some(table) = session::table() else { return real_remove(file, name) };
    let bytes = match name_of(name) {
        Ok(bytes) => bytes,
        Err(number) => return fail(number),
    };
    match keeper(bytes) {
        Keeper::Nowhere => return fail(ENOTSUP),
        Keeper::Disk => {
            let result = real_remove(file, name);
            if result == 0 || errno() != ENOTSUP || !is_kept_for_disk(bytes) {
                return result;
            }
        }
        Keeper::Table => {}
    }
    let Some(facts) = file.facts_to_keep(table) else { return -1 };
    match table.set_attribute(&facts, bytes, None, SetWhen::Replace, is_on_disk(file, name)) {
        Ok(()) => 0,
        Err(why) => refused(why),
    }
}

fn list(file: Named, to: *mut c_char, room: usize) -> isize {
    let Some(table) = session::table().filter(|table| !table.is_untouched()) else {
        return real_list(file, to, room);
    };
    let Some(facts) = file.facts() else { return -1 };
    let before = errno();
    let mut on_disk = real_list(file, to, room);
    if on_disk < 0 {
        if errno() != ENOTSUP {
            return -1;
        }
        set_errno(before);
        on_disk = 0;
    }
    if room == 0 {
        // Names in both lists count twice: the result only has to be large enough.
        let mut bytes = on_disk as usize;
        table.attribute_names(&facts, |name, is_there| bytes += usize::from(is_there) * (name.len() + 1));
        return bytes as isize;
    }
    // SAFETY: the caller's buffer has this much room.
    let buffer: &mut [u8] = unsafe { core::slice::from_raw_parts_mut(to.cast(), room) };
    table
        .merge_names(&facts, buffer, on_disk as usize)
        .map_or_else(|| fail(ERANGE) as isize, |end| end as isize)
}

macro_rules! calls {
    ($($get:ident $list:ident $set:ident $remove:ident ($file:ident: $kind:ty) $named:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $get($file: $kind, name: *const c_char, to: *mut c_void, room: usize) -> isize {
            get($named, name, to, room)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $list($file: $kind, to: *mut c_char, room: usize) -> isize {
            list($named, to, room)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $set(
            $file: $kind,
            name: *const c_char,
            value: *const c_void,
            bytes: usize,
            flags: c_int,
        ) -> c_int {
            set($named, name, value, bytes, flags)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $remove($file: $kind, name: *const c_char) -> c_int {
            remove($named, name)
        }
    )*};
}
calls! {
    getxattr listxattr setxattr removexattr (path: *const c_char) Named::path(path, 0);
    lgetxattr llistxattr lsetxattr lremovexattr (path: *const c_char) Named::path(path, AT_SYMLINK_NOFOLLOW);
    fgetxattr flistxattr fsetxattr fremovexattr (descriptor: c_int) Named::open(descriptor);
}

/// The calls in the kernel's order: set, get, list and remove, each by path, by link and by descriptor.
pub fn by_position(which: usize, [a, b, c, d, e, _]: [c_long; 6]) -> c_long {
    const WAYS: usize = 3;
    let file = match which % WAYS {
        0 => Named::path(a as *const c_char, 0),
        1 => Named::path(a as *const c_char, AT_SYMLINK_NOFOLLOW),
        _ => Named::open(a as c_int),
    };
    let name = b as *const c_char;
    match which / WAYS {
        0 => set(file, name, c as *const c_void, d as usize, e as c_int).into(),
        1 => get(file, name, c as *mut c_void, d as usize) as c_long,
        2 => list(file, b as *mut c_char, c as usize) as c_long,
        _ => remove(file, name).into(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acl_get_fd(descriptor: c_int) -> *mut c_void {
    if session::table().is_none() {
        return next!(acl_get_fd(descriptor => c_int) -> *mut c_void, or core::ptr::null_mut());
    }
    set_errno(ENOTSUP);
    core::ptr::null_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acl_get_file(path: *const c_char, kind: c_int) -> *mut c_void {
    if session::table().is_none() {
        return next!(acl_get_file(path => *const c_char, kind => c_int) -> *mut c_void, or core::ptr::null_mut());
    }
    set_errno(ENOTSUP);
    core::ptr::null_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acl_set_fd(descriptor: c_int, list: *mut c_void) -> c_int {
    if session::table().is_none() {
        return next!(acl_set_fd(descriptor => c_int, list => *mut c_void));
    }
    fail(ENOTSUP)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acl_set_file(path: *const c_char, kind: c_int, list: *mut c_void) -> c_int {
    if session::table().is_none() {
        return next!(acl_set_file(path => *const c_char, kind => c_int, list => *mut c_void));
    }
    fail(ENOTSUP)
}
