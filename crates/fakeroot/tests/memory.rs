//! The preload library's own memory functions.

#![cfg(target_arch = "x86_64")]

#[path = "../preload/memory.rs"]
mod memory;

use std::ffi::{c_char, c_int};

unsafe extern "C" {
    fn kilnyard_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn kilnyard_memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn kilnyard_memset(to: *mut u8, value: c_int, bytes: usize) -> *mut u8;
    fn kilnyard_bcmp(one: *const u8, other: *const u8, bytes: usize) -> c_int;
    fn kilnyard_strlen(text: *const c_char) -> usize;
}

const LENGTH: usize = 40;

fn numbers() -> Vec<u8> {
    (1..=LENGTH as u8).collect()
}

#[test]
fn overlapping_moves_keep_every_byte() {
    for (to, from) in (0..LENGTH).flat_map(|to| (0..LENGTH).map(move |from| (to, from))) {
        for bytes in 0..=LENGTH - to.max(from) {
            let (mut seen, mut expected) = (numbers(), numbers());
            expected.copy_within(from..from + bytes, to);
            let at = seen.as_mut_ptr();
            // SAFETY: both ranges lie in the list.
            let moved = unsafe { kilnyard_memmove(at.add(to), at.add(from), bytes) };
            assert_eq!((moved as usize - at as usize, &seen), (to, &expected), "{from} {bytes}");
        }
    }
}

#[test]
fn pieces_are_copied_filled_and_compared() {
    for bytes in 0..=LENGTH {
        let (source, mut copy) = (numbers(), vec![0; LENGTH]);
        // SAFETY: both lists have this length.
        unsafe {
            assert_eq!(kilnyard_memcpy(copy.as_mut_ptr(), source.as_ptr(), bytes), copy.as_mut_ptr());
            assert_eq!(kilnyard_bcmp(copy.as_ptr(), source.as_ptr(), bytes), 0);
        }
        assert_eq!((&copy[..bytes], &copy[bytes..]), (&source[..bytes], &vec![0; LENGTH - bytes][..]));
        if bytes > 0 {
            copy[bytes - 1] ^= 0x80;
            // SAFETY: both lists have this length.
            unsafe {
                assert_ne!(kilnyard_bcmp(copy.as_ptr(), source.as_ptr(), bytes), 0);
                assert_eq!(kilnyard_bcmp(copy.as_ptr(), source.as_ptr(), bytes - 1), 0);
            }
        }
        // SAFETY: the list has this length. Only the low byte of the value is used.
        unsafe { kilnyard_memset(copy.as_mut_ptr(), 0x1ff, bytes) };
        assert_eq!((&copy[..bytes], &copy[bytes..]), (&vec![0xff; bytes][..], &vec![0; LENGTH - bytes][..]));
    }
}

#[test]
fn strlen_agrees_with_libc() {
    for text in [c"", c"a", c"a longer one, with \xff in it"] {
        // SAFETY: the texts are NUL-terminated.
        assert_eq!(unsafe { kilnyard_strlen(text.as_ptr()) }, text.count_bytes());
    }
}
