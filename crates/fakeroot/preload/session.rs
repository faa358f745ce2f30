//! The session of this process, opened when first needed.

use crate::environment;
use crate::next::next;
use crate::shared::kernel;
use crate::shared::layout::{HEADER_ANSWERED, PATH_BYTES_MAX};
use crate::shared::mapping::{Mapping, Room};
use crate::shared::memory::Memory;
use crate::shared::table::Table;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU8, Ordering};

/// The linker script refers to it by its section.
#[unsafe(link_section = ".room")]
static ROOM: Room = Room::empty();

static TABLE: Table<Mapping> = Table::new(Mapping::closed());
static STATE: AtomicU8 = AtomicU8::new(UNASKED);
const UNASKED: u8 = 0;
const OPEN: u8 = 1;
const NONE: u8 = 2;

/// The session's table; `None` if this process is not in a session, and then no call is changed.
#[inline]
pub fn table() -> Option<&'static Table<Mapping>> {
    match STATE.load(Ordering::Acquire) {
        OPEN => Some(&TABLE),
        NONE => None,
        _ => open(),
    }
}

/// The path of the session's file; empty without a session.
pub fn path() -> &'static CStr {
    TABLE.memory().path()
}

#[cold]
fn open() -> Option<&'static Table<Mapping>> {
    // Another fakeroot's key is a number.
    let key = environment::get(b"FAKEROOTKEY").filter(|key| key.to_bytes().starts_with(b"/"));
    let is_open = match key {
        Some(key) => TABLE.memory().open_in_place(key, &ROOM) || open_by(key),
        None => false,
    };
    // If a program without the library has started this one, the launcher answers all calls.
    let is_answered =
        is_open && TABLE.memory().load(HEADER_ANSWERED, Ordering::Acquire) != 0 && kernel::is_answered();
    STATE.store(if is_open && !is_answered { OPEN } else { NONE }, Ordering::Release);
    (is_open && !is_answered).then_some(&TABLE)
}

/// Opens a session by its key, if it is not the one that the library was loaded from.
fn open_by(key: &CStr) -> bool {
    /// A copy of the path, because the program may free the environment. Threads that open the session at the same
    /// time write the same bytes.
    static PATH: [AtomicU8; PATH_BYTES_MAX] = [const { AtomicU8::new(0) }; PATH_BYTES_MAX];
    let key = key.to_bytes();
    if key.len() >= PATH_BYTES_MAX {
        return false;
    }
    for (place, byte) in PATH.iter().zip(key) {
        place.store(*byte, Ordering::Relaxed);
    }
    // SAFETY: the bytes are NUL-terminated, and no thread writes other ones. Only this table uses the room.
    let opened = unsafe { TABLE.memory().open_over(CStr::from_ptr(PATH.as_ptr().cast()), &ROOM) };
    if opened.is_err() {
        kernel::complain(
            b"fakeroot: the session is gone (its launcher has ended); programs see real owners from now on\n",
        );
    }
    opened.is_ok()
}

/// Maps for writing before a call after which the session's file may no longer have its name.
pub fn prepare() {
    if let Some(table) = table() {
        table.memory().prepare();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    prepare();
    next!(chroot(path => *const c_char))
}
