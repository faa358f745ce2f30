//! The functions on memory that the compiler calls.
//!
//! libc's would be looked up at each exec of a program, by name and in every library: the compiler calls them by a table
//! that is filled when a library is loaded, and these few are a quarter of what an exec costs more with this library. The
//! ones here are known by these names to the linker alone (`build.rs`), so that programs go on with libc's. What they are
//! given is short.

use core::arch::asm;
use core::ffi::{c_char, c_int};

#[unsafe(no_mangle)]
unsafe extern "C" fn kilnyard_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller's memory; strings go upwards in every function (System V ABI, "direction flag").
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
        // SAFETY: nothing is written that is read later.
        return unsafe { kilnyard_memcpy(to, from, bytes) };
    }
    // SAFETY: the caller's memory, of a byte at the least, downwards from its end; strings go upwards again behind it.
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
    // SAFETY: as of `kilnyard_memcpy`.
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
        // SAFETY: the caller's memory. Read as if it mattered how: the compiler would call this function for it.
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
    // SAFETY: the caller's text, which ends with a zero; read as in `kilnyard_bcmp`.
    while unsafe { text.add(bytes).read_volatile() } != 0 {
        bytes += 1;
    }
    bytes
}
