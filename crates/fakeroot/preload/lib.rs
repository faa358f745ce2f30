//! The preload library: the functions that programs of a session call instead of libc's.
//!
//! Each function makes the real call, through the next library that has it, and changes the result or records it in
//! the session's table; the rules are in `shared/operations.rs`.
//!
//! Invariants: nothing happens when the library is loaded, because every exec would pay for it; the session is opened
//! and functions are looked up at first use, or once for all children. The library allocates no memory, uses no
//! thread-local storage and needs no other library, so that it works in a child of vfork and in signal handlers.
//! `errno` stays unchanged if a call succeeds.
//!
//! What it cannot do: intercept programs that make their own system calls, and calls that libc makes internally
//! (this is why `fts`, `nftw`, `exec`, `system` and `popen` are here).

#![no_std]
#![warn(clippy::all, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::missing_safety_doc, reason = "each function is libc's, with libc's contract")]

#[allow(dead_code, reason = "the launcher uses the rest")]
#[path = "../src/shared/mod.rs"]
mod shared;

mod attribute;
mod environment;
mod facts;
mod gate;
mod identity;
mod list;
mod make;
#[cfg(target_arch = "x86_64")]
mod memory;
mod name;
mod next;
mod owner;
mod program;
mod raw;
mod session;
mod shell;
mod signals;
mod stat;
mod walk;

/// No code here is expected to panic; if it does, the program must not continue with wrong owners.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    /// The exit status that a shell reports for an aborted process: 128 plus SIGABRT.
    const ABORTED: usize = 134;
    shared::kernel::complain(b"fakeroot: a bug in the preload library\n");
    shared::kernel::exit(ABORTED)
}
