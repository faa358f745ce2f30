//! Arguments for starting a program through the gate: the gate's own words, followed by the caller's.

use crate::next::{ENOMEM, fail};
use crate::program::List;
use crate::session;
use crate::shared::kernel;
use crate::shared::layout::{GATE_BYTES_MAX, HEADER_GATE, PATH_BYTES_MAX, WORD_BYTES};
use crate::shared::memory::Memory;
use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering;

/// The gate's own words: its name, the socket, the program.
const OWN: usize = 3;
/// How many words fit on the stack; a longer list is allocated.
const WORDS_ON_STACK: usize = 1024;
/// The extension of the socket, which replaces that of the session file.
const ENDING: &[u8] = b".socket\0";
const SESSION_ENDING: &[u8] = b".so";

/// Calls `start` with the gate and its words for this program and the caller's words. Works in a child of vfork.
/// Separate, because of its stack usage: a program that is started directly would pay for the pages.
#[cold]
#[inline(never)]
pub fn with(path: *const c_char, arguments: List, start: impl FnOnce(*const c_char, List) -> c_int) -> c_int {
    let Some(table) = session::table() else { return -1 };
    let mut gate = [0; GATE_BYTES_MAX];
    for (at, place) in gate.chunks_exact_mut(WORD_BYTES).enumerate() {
        let word = table.memory().load(HEADER_GATE + at, Ordering::Relaxed);
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let mut socket = [0; PATH_BYTES_MAX + ENDING.len()];
    let session = session::path().to_bytes();
    let session = session.strip_suffix(SESSION_ENDING).unwrap_or(session);
    socket[..session.len()].copy_from_slice(session);
    socket[session.len()..session.len() + ENDING.len()].copy_from_slice(ENDING);
    let own = [gate.as_ptr(), socket.as_ptr(), path.cast::<u8>()];
    let count = length(arguments);
    let all = OWN + count.max(1) + 1;
    let mut on_stack = [core::ptr::null_mut(); WORDS_ON_STACK];
    let bytes = all * size_of::<*mut c_char>();
    let words: &mut [*mut c_char] = if all <= WORDS_ON_STACK {
        &mut on_stack[..all]
    } else {
        let Ok(address) = kernel::map_memory(bytes) else { return fail(ENOMEM) };
        // SAFETY: fresh memory of this length, to which no other pointer exists.
        unsafe { core::slice::from_raw_parts_mut(address as *mut *mut c_char, all) }
    };
    for (place, word) in words.iter_mut().zip(own) {
        *place = word.cast_mut().cast();
    }
    if count == 0 {
        // Every program needs a name; here, its path.
        words[OWN] = path.cast_mut();
    }
    for at in 0..count {
        // SAFETY: the list has this many words.
        words[OWN + at] = unsafe { *arguments.add(at) };
    }
    let result = start(gate.as_ptr().cast(), words.as_ptr());
    if all > WORDS_ON_STACK {
        kernel::unmap(words.as_ptr() as usize, bytes);
    }
    result
}

fn length(list: List) -> usize {
    let mut length = 0;
    // SAFETY: a null-terminated list, or null.
    while !list.is_null() && unsafe { !(*list.add(length)).is_null() } {
        length += 1;
    }
    length
}
