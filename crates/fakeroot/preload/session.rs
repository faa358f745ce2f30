//! The session of this process, opened when it is first needed.

use crate::environment;
use crate::shared::kernel;
use crate::shared::layout::HEADER_ANSWERED;
use crate::shared::mapping::{Mapping, Room};
use crate::shared::memory::Memory;
use crate::shared::table::Table;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

/// The linker's script knows it by its section: it is mapped with the library, at no cost.
#[unsafe(link_section = ".room")]
static ROOM: Room = Room::of_zeros();

static TABLE: Table<Mapping> = Table::new(Mapping::closed());
static STATE: AtomicU8 = AtomicU8::new(UNASKED);
const UNASKED: u8 = 0;
const OPEN: u8 = 1;
const NONE: u8 = 2;

/// Bytes of a session's path at most, with the zero.
pub const PATH_BYTES_MAX: usize = 512;

/// The path: the environment may be freed by the program. Threads that open the session at once write the
/// same bytes.
static PATH: [AtomicU8; PATH_BYTES_MAX] = [const { AtomicU8::new(0) }; PATH_BYTES_MAX];

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
    // SAFETY: a zero follows the bytes, and nobody writes other ones.
    unsafe { CStr::from_ptr(PATH.as_ptr().cast()) }
}

#[cold]
fn open() -> Option<&'static Table<Mapping>> {
    let key = environment::get(b"FAKEROOTKEY").map_or(&[][..], CStr::to_bytes);
    // Another fakeroot's key is a number.
    if key.first() != Some(&b'/') || key.len() >= PATH_BYTES_MAX {
        STATE.store(NONE, Ordering::Release);
        return None;
    }
    for (place, byte) in PATH.iter().zip(key) {
        place.store(*byte, Ordering::Relaxed);
    }
    // SAFETY: nobody else knows it.
    match unsafe { TABLE.memory().open_over(path(), &ROOM) } {
        // The launcher does it all where a program without the library has started this one.
        Ok(()) if TABLE.memory().load(HEADER_ANSWERED, Ordering::Acquire) != 0 && kernel::is_answered() => {
            STATE.store(NONE, Ordering::Release);
            None
        }
        Ok(()) => {
            STATE.store(OPEN, Ordering::Release);
            Some(&TABLE)
        }
        Err(_) => {
            STATE.store(NONE, Ordering::Release);
            kernel::complain(
                b"fakeroot: the session is gone (its launcher has ended); owners are real from here on\n",
            );
            None
        }
    }
}
