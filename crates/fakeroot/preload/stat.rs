//! `stat` and its variants.
//!
//! Almost all files have no entry, and then the real call and a check of the filter are enough. They are also enough if
//! there is an entry and the inode is unchanged since it was written. Otherwise the birth time is needed, which only
//! `statx` reports: a second call. If the last file needed it, the process calls `statx` first for the next one, and
//! makes only one call.

use crate::facts::Named;
use crate::next::next;
use crate::session;
use crate::shared::abi::{AT_SYMLINK_NOFOLLOW, STATX_BASIC, STATX_BIRTH, Stat, Statx};
use crate::shared::mapping::Mapping;
use crate::shared::ownership::{self, Unknown};
use crate::shared::table::Table;
use core::ffi::{c_char, c_int, c_uint};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the last file had an entry whose birth time had to be compared.
static LAST_WAS_COMPARED: AtomicBool = AtomicBool::new(false);

/// Stats a file with the real call, or with `statx`.
#[inline]
pub fn look(file: Named, to: *mut Stat, real: impl FnOnce() -> c_int) -> c_int {
    let Some(table) = session::table() else { return real() };
    if LAST_WAS_COMPARED.load(Relaxed) {
        return look_by_statx(table, file, to);
    }
    let result = real();
    if result == 0 {
        // SAFETY: the caller's buffer, which the real call has filled.
        show(table, file, unsafe { &mut *to });
    }
    result
}

/// Overwrites the result of a real call with what the session shows.
#[inline]
pub fn show(table: &Table<Mapping>, file: Named, stat: &mut Stat) {
    match table.trace(stat.key()) {
        Some(trace) => match table.certain_view(trace, stat.mode, stat.change()) {
            Some(look) => stat.show(look),
            None => show_known(table, file, stat),
        },
        None if table.unknown() == Unknown::Root => {
            stat.user = 0;
            stat.group = 0;
        }
        None => {}
    }
}

#[cold]
fn show_known(table: &Table<Mapping>, file: Named, stat: &mut Stat) {
    let mut facts = stat.facts();
    let look = match table.find(facts.key) {
        None => table.unknown().view(&facts),
        Some(entry) if ownership::is_certainly_of(&entry, &facts) => ownership::view(&entry),
        Some(_) => {
            let before = crate::next::errno();
            // The name may refer to another file by now.
            match file.facts() {
                Some(born) if born.key == facts.key => facts.birth = born.birth,
                _ => crate::next::set_errno(before),
            }
            let entry = table.entry(&facts);
            LAST_WAS_COMPARED.store(entry.is_some(), Relaxed);
            entry.map_or_else(|| table.unknown().view(&facts), |entry| ownership::view(&entry))
        }
    };
    stat.show(look);
}

#[cold]
fn look_by_statx(table: &Table<Mapping>, file: Named, to: *mut Stat) -> c_int {
    let Some(mut statx) = file.statx() else { return -1 };
    let facts = statx.facts();
    let look = match table.entry(&facts) {
        Some(entry) => {
            if ownership::is_certainly_of(&entry, &facts) {
                LAST_WAS_COMPARED.store(false, Relaxed);
            }
            ownership::view(&entry)
        }
        None => {
            LAST_WAS_COMPARED.store(false, Relaxed);
            table.unknown().view(&facts)
        }
    };
    statx.show(look);
    // SAFETY: the caller's buffer.
    unsafe { (*to).fill(&statx) };
    0
}

macro_rules! by_path {
    ($($name:ident $versioned:ident $flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, to: *mut Stat) -> c_int {
            look(Named::path(path, $flags), to, || next!($name(path => *const c_char, to => *mut Stat)))
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $versioned(version: c_int, path: *const c_char, to: *mut Stat) -> c_int {
            look(Named::path(path, $flags), to, || {
                next!($versioned(version => c_int, path => *const c_char, to => *mut Stat))
            })
        }
    )*};
}
by_path! {
    stat __xstat 0;
    stat64 __xstat64 0;
    lstat __lxstat AT_SYMLINK_NOFOLLOW;
    lstat64 __lxstat64 AT_SYMLINK_NOFOLLOW;
}

macro_rules! by_descriptor {
    ($($name:ident $versioned:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(descriptor: c_int, to: *mut Stat) -> c_int {
            look(Named::open(descriptor), to, || next!($name(descriptor => c_int, to => *mut Stat)))
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $versioned(version: c_int, descriptor: c_int, to: *mut Stat) -> c_int {
            look(Named::open(descriptor), to, || {
                next!($versioned(version => c_int, descriptor => c_int, to => *mut Stat))
            })
        }
    )*};
}
by_descriptor! {
    fstat __fxstat;
    fstat64 __fxstat64;
}

macro_rules! by_folder {
    ($($name:ident $versioned:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(folder: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int {
            look(Named { folder, path, flags }, to, || {
                next!($name(folder => c_int, path => *const c_char, to => *mut Stat, flags => c_int))
            })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $versioned(
            version: c_int,
            folder: c_int,
            path: *const c_char,
            to: *mut Stat,
            flags: c_int,
        ) -> c_int {
            look(Named { folder, path, flags }, to, || {
                next!($versioned(version => c_int, folder => c_int, path => *const c_char, to => *mut Stat,
                    flags => c_int))
            })
        }
    )*};
}
by_folder! {
    fstatat __fxstatat;
    fstatat64 __fxstatat64;
}

/// `statx` with the caller's flags; the mask additionally includes what the table needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut Statx,
) -> c_int {
    let Some(table) = session::table() else {
        return next!(statx(folder => c_int, path => *const c_char, flags => c_int, mask => c_uint,
            to => *mut Statx));
    };
    let known = if table.is_untouched() { 0 } else { STATX_BASIC | STATX_BIRTH };
    let result = next!(statx(folder => c_int, path => *const c_char, flags => c_int, mask | known => c_uint,
        to => *mut Statx));
    if result == 0 {
        // SAFETY: the caller's buffer, which the real call has filled.
        let statx = unsafe { &mut *to };
        let facts = statx.facts();
        if table.may_have(facts.key) {
            statx.show(table.view(&facts));
        } else if table.unknown() == Unknown::Root {
            statx.user = 0;
            statx.group = 0;
        }
    }
    result
}
