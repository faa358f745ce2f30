//! The session of this process, opened when it is first needed.

use crate::environment;
use crate::next::next;
use crate::shared::kernel;
use crate::shared::layout::{HEADER_ANSWERED, PATH_BYTES_MAX};
use crate::shared::mapping::{Mapping, Room};
use crate::shared::memory::Memory;
use crate::shared::table::Table;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU8, Ordering};

/// The linker's script knows it by its section.
#[unsafe(link_section = ".room")]
static ROOM: Room = Room::empty();

static TABLE: Table<Mapping> = Table::new(Mapping::closed());
static STATE: AtomicU8 = AtomicU8::new(UNASKED);
const UNASKED: u8 = 0;
const OPEN: u8 = 1;
const NONE: u8 = 2;

/// The session's table; none if this process is in no session, and then everything is as it is.
#[inline]
pub fn table() -> Option<&'static Table<Mapping>> {
    match STATE.load(Ordering::Acquire) {
        OPEN => Some(&TABLE),
        NONE => None,
        _ => open(),
    }
}

/// The path of the session's file; empty without one.
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
    // The launcher does it all where a program without the library has started this one.
    let is_answered =
        is_open && TABLE.memory().load(HEADER_ANSWERED, Ordering::Acquire) != 0 && kernel::is_answered();
    STATE.store(if is_open && !is_answered { OPEN } else { NONE }, Ordering::Release);
    (is_open && !is_answered).then_some(&TABLE)
}

/// Opens a session by its key, where it is not the one that the library was loaded from.
fn open_by(key: &CStr) -> bool {
    /// The path: the environment may be freed by the program. Threads that open the session at once write the
    /// same bytes.
    static PATH: [AtomicU8; PATH_BYTES_MAX] = [const { AtomicU8::new(0) }; PATH_BYTES_MAX];
    let key = key.to_bytes();
    if key.len() >= PATH_BYTES_MAX {
        return false;
    }
    for (place, byte) in PATH.iter().zip(key) {
        place.store(*byte, Ordering::Relaxed);
    }
    // SAFETY: a zero follows the bytes, and nobody writes other ones. Nobody else knows the room.
    let opened = unsafe { TABLE.memory().open_over(CStr::from_ptr(PATH.as_ptr().cast()), &ROOM) };
    if opened.is_err() {
        kernel::complain(
            b"fakeroot: the session is gone (its launcher has ended); owners are real from here on\n",
        );
    }
    opened.is_ok()
}

/// Makes ready for changes behind a call that takes the session's file its name.
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
