//! `fts` and `nftw`, which call `stat` inside libc.

use crate::facts::Named;
use crate::next::{ENOMEM, fail, next};
use crate::session;
use crate::shared::abi::{AT_SYMLINK_NOFOLLOW, Stat};
use crate::stat::show;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// `FTSENT`, as fts.h defines it.
#[repr(C)]
struct Ftsent {
    cycle: *mut Ftsent,
    parent: *mut Ftsent,
    link: *mut Ftsent,
    number: i64,
    pointer: *mut c_void,
    accessible_path: *const c_char,
    path: *const c_char,
    error: c_int,
    start: c_int,
    path_length: u16,
    name_length: u16,
    inode: u64,
    device: u64,
    #[cfg(target_arch = "x86_64")]
    links: u64,
    #[cfg(target_arch = "aarch64")]
    links: u32,
    level: i16,
    info: u16,
    flags: u16,
    instructions: u16,
    stat: *mut Stat,
}

/// Shows a file as the session does. A record without a `stat` stays unchanged.
fn show_found(found: *mut Ftsent) {
    const WITHOUT_STAT: [u16; 3] = [10, 11, 7];
    // SAFETY: the walk's own record, or null at its end.
    let (Some(table), Some(found)) = (session::table(), unsafe { found.as_mut() }) else { return };
    if found.stat.is_null() || WITHOUT_STAT.contains(&found.info) {
        return;
    }
    // SAFETY: libc has filled the record's stat.
    let stat = unsafe { &mut *found.stat };
    show(table, Named::path(found.accessible_path, AT_SYMLINK_NOFOLLOW), stat);
}

macro_rules! fts {
    ($($read:ident $children:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $read(walk: *mut c_void) -> *mut c_void {
            let found = next!($read(walk => *mut c_void) -> *mut c_void, or core::ptr::null_mut());
            show_found(found.cast());
            found
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $children(walk: *mut c_void, options: c_int) -> *mut c_void {
            let first = next!($children(walk => *mut c_void, options => c_int) -> *mut c_void,
                or core::ptr::null_mut());
            let mut at: *mut Ftsent = first.cast();
            while !at.is_null() {
                show_found(at);
                // SAFETY: the walk's own list.
                at = unsafe { (*at).link };
            }
            first
        }
    )*};
}
fts! {
    fts_read fts_children;
    fts64_read fts64_children;
}

/// A callback of nftw(3), or of ftw(3), which receives one argument less; the extra one does no harm.
type Visit = unsafe extern "C" fn(*const c_char, *mut Stat, c_int, *mut c_void) -> c_int;

/// How many walks a process can run at once, including nested ones and those of other threads; one more fails with
/// ENOMEM.
const WALKS_MAX: usize = 32;
static VISITS: [AtomicPtr<c_void>; WALKS_MAX] = [const { AtomicPtr::new(core::ptr::null_mut()) }; WALKS_MAX];

/// The function that libc calls in place of the callback. Each walk has its own, because no argument identifies the
/// walk.
unsafe extern "C" fn visit<const WALK: usize>(
    path: *const c_char,
    stat: *mut Stat,
    kind: c_int,
    place: *mut c_void,
) -> c_int {
    const WITHOUT_STAT: c_int = 3;
    if kind != WITHOUT_STAT
        && let Some(table) = session::table()
    {
        // A walk that changes directory passes paths that are not valid there; the birth time then stays unknown.
        // SAFETY: libc's own record.
        show(table, Named::path(path, AT_SYMLINK_NOFOLLOW), unsafe { &mut *stat });
    }
    // SAFETY: the walk's callback was stored before it started.
    unsafe {
        let visit: Visit = core::mem::transmute(VISITS[WALK].load(Ordering::Acquire));
        visit(path, stat, kind, place)
    }
}

macro_rules! thunks {
    ($($walk:literal)*) => { [$(visit::<$walk>),*] };
}
static THUNKS: [Visit; WALKS_MAX] =
    thunks!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

fn walk(callback: *mut c_void, real: impl FnOnce(*mut c_void) -> c_int) -> c_int {
    if session::table().is_none() || callback.is_null() {
        return real(callback);
    }
    let free = |place: &AtomicPtr<c_void>| {
        place.compare_exchange(core::ptr::null_mut(), callback, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let Some(walk) = VISITS.iter().position(free) else { return fail(ENOMEM) };
    let result = real(THUNKS[walk] as *mut c_void);
    VISITS[walk].store(core::ptr::null_mut(), Ordering::Release);
    result
}

macro_rules! walks {
    ($($tree:ident $flat:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $tree(
            path: *const c_char,
            callback: *mut c_void,
            descriptors: c_int,
            flags: c_int,
        ) -> c_int {
            walk(callback, |callback| {
                next!($tree(path => *const c_char, callback => *mut c_void, descriptors => c_int, flags => c_int))
            })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $flat(path: *const c_char, callback: *mut c_void, descriptors: c_int) -> c_int {
            walk(callback, |callback| {
                next!($flat(path => *const c_char, callback => *mut c_void, descriptors => c_int))
            })
        }
    )*};
}
walks! {
    nftw ftw;
    nftw64 ftw64;
}
