//! The memory functions that the compiler calls.
//!
//! libc's functions would be looked up at each exec of a program, by name and in every library: the compiler calls
//! them through a table that is filled when a library is loaded, and these few account for a quarter of the extra
//! cost of an exec with this library. Only the linker knows the functions here by libc's names (`build.rs`), so
//! programs continue to use libc's. They process short data.

use core::arch::asm;
use core::ffi::{c_char, c_int};

#[unsafe(no_mangle)]
unsafe extern "C" fn kilnyard_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller's memory; at function entry the direction flag is clear, so the copy ascends (System V
    // ABI).
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kilnyard_memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= bytes {
        // SAFETY: the caller's memory; no byte is written before it is read.
        return unsafe { kilnyard_memcpy(to, from, bytes) };
    }
    // SAFETY: the caller's memory, at least one byte, copied downwards from its end; the direction flag is cleared
    // again.
    unsafe {
        asm!(
            "std",
            "rep movsb",
            "cld",
            inout("rcx") bytes => _,
            inout("rdi") to.add(bytes - 1) => _,
            inout("rsi") from.add(bytes - 1) => _,
            options(nostack),
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kilnyard_memset(to: *mut u8, value: c_int, bytes: usize) -> *mut u8 {
    // SAFETY: as in `kilnyard_memcpy`.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") bytes => _,
            inout("rdi") to => _,
            in("al") value as u8,
            options(nostack, preserves_flags),
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kilnyard_bcmp(one: *const u8, other: *const u8, bytes: usize) -> c_int {
    for at in 0..bytes {
        // SAFETY: the caller's memory. Volatile, because the compiler would replace the loop with a call of this
        // function.
        let (one, other) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if one != other {
            return 1;
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kilnyard_strlen(text: *const c_char) -> usize {
    let mut bytes = 0;
    // SAFETY: the caller's NUL-terminated text; volatile as in `kilnyard_bcmp`.
    while unsafe { text.add(bytes).read_volatile() } != 0 {
        bytes += 1;
    }
    bytes
}
