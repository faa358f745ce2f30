//! The preload library: what programs of a session call instead of libc.
//!
//! Each function does the real call, by the next library that has it, and changes what is seen of it or
//! notes it in the session's table; the rules are in `shared/operations.rs`.
//!
//! What must hold: nothing happens when the library is loaded, since every exec pays for it; the session is opened
//! and functions are looked up at their first use, or once for all children. No memory is taken, no thread's own
//! storage is used and no library is needed, so that it works in a child of vfork and in signal handlers. `errno` is
//! left alone where a call succeeds.
//!
//! What it cannot do: see what programs do by system calls of their own, and what libc does inside
//! (`fts`, `nftw`, `exec`, `system` and `popen` are therefore here).

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

/// Nothing here panics knowingly; where it does, the program must not go on with wrong owners.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    /// What a shell tells of a process that aborted: 128 and SIGABRT.
    const ABORTED: usize = 134;
    shared::kernel::complain(b"fakeroot: a bug in the preload library\n");
    shared::kernel::exit(ABORTED)
}
