//! The gate: a small static program that starts programs without the preload library. It asks the session's
//! launcher to answer their system calls, installs the filter that hands them over, and executes the program.
//!
//! `gate SOCKET PROGRAM ARGUMENT...`, where the first argument is the program's own name.
//!
//! ```text
//! gate      the address of eight bytes               can you read my memory?
//! launcher  one byte                                 yes, or no and the launcher prints the reason
//! gate      the filter's descriptor, or the error    with the filter, no call works without the launcher
//! launcher  one byte                                 calls are answered from now on
//! ```
//!
//! Invariants: the gate allocates no memory and needs no library. Without a launcher, or if the kernel does not allow
//! the filter, the program is started anyway, and then sees the real owners.

#![no_std]
#![no_main]
#![warn(clippy::all, clippy::undocumented_unsafe_blocks)]

#[allow(dead_code, reason = "the launcher and the preload library use the rest")]
#[path = "../src/shared/mod.rs"]
mod shared;

use core::ffi::c_char;
use shared::kernel::{call, check, complain, exit, number};
use shared::watched::{FILTER, FILTER_LENGTH, Instruction};

/// The launcher reads this to check that it can.
static PROBE: u64 = shared::layout::MAGIC;

/// The exit status for a program that cannot be started, as in shells.
const CANNOT_START: usize = 126;
/// The exit status for a program that is not found.
const NOT_THERE: usize = 127;

core::arch::global_asm!(
    ".globl _start",
    "_start:",
    #[cfg(target_arch = "x86_64")]
    "xor ebp, ebp; mov rdi, rsp; and rsp, -16; call {begin}; ud2",
    #[cfg(target_arch = "aarch64")]
    "mov x29, #0; mov x0, sp; and sp, x0, #-16; bl {begin}; brk #1",
    begin = sym begin,
);

/// The kernel's initial stack: the number of arguments, the arguments, a null, the environment.
unsafe extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: this is the kernel's stack layout.
    let (count, arguments) = unsafe { (*stack, stack.add(1).cast::<*const c_char>()) };
    const OWN: usize = 3;
    if count <= OWN {
        complain(b"fakeroot: the gate is for use by a session only\n");
        exit(CANNOT_START);
    }
    // SAFETY: there are more than three arguments, followed by a null and the environment.
    unsafe {
        ask(*arguments.add(1));
        let (program, own, environment) = (*arguments.add(2), arguments.add(OWN), arguments.add(count + 1));
        let result = call(number::EXECVE, [program as usize, own as usize, environment as usize, 0, 0, 0]);
        complain(b"fakeroot: failed to start a program that makes its own system calls\n");
        const ENOENT: isize = -2;
        exit(if result == ENOENT { NOT_THERE } else { CANNOT_START })
    }
}

#[repr(C)]
struct Address {
    family: u16,
    path: [u8; 108],
}

/// Asks the launcher to answer this process's calls from now on.
///
/// # Safety
/// The path must be NUL-terminated.
unsafe fn ask(path: *const c_char) {
    const UNIX: usize = 1;
    const STREAM_CLOSED_ON_EXEC: usize = 1 | 0o2_000_000;
    let mut address = Address { family: UNIX as u16, path: [0; 108] };
    for (at, place) in address.path[..107].iter_mut().enumerate() {
        // SAFETY: nothing is read after the NUL.
        let byte = unsafe { *path.add(at) } as u8;
        if byte == 0 {
            break;
        }
        *place = byte;
    }
    // SAFETY: no argument is a pointer.
    let socket = unsafe { call(number::SOCKET, [UNIX, STREAM_CLOSED_ON_EXEC, 0, 0, 0, 0]) };
    const EMFILE: i32 = 24;
    let socket = match check(socket) {
        Ok(socket) => socket,
        Err(EMFILE) => {
            complain(
                b"fakeroot: a program that makes its own system calls sees real owners: it has no descriptor left to reach \
                  the launcher (ulimit -n)\n",
            );
            return;
        }
        Err(_) => return alone(),
    };
    let to = [socket, &raw const address as usize, size_of::<Address>(), 0, 0, 0];
    // SAFETY: the address outlives the call.
    if check(unsafe { call(number::CONNECT, to) }).is_err() {
        return alone();
    }
    let probe = &raw const PROBE as usize as u64;
    send(socket, probe, None);
    if receive(socket) != Some(1) {
        return;
    }
    match install() {
        Ok(listener) => send(socket, 0, Some(listener)),
        Err(error) => send(socket, error as u64, None),
    };
    receive(socket);
}

fn alone() {
    complain(
        b"fakeroot: the launcher has ended: a program that makes its own system calls sees real owners\n",
    );
}

/// Installs the filter; returns the descriptor for answering its calls.
fn install() -> Result<usize, i32> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const Instruction,
    }
    const SET_NO_NEW_PRIVILEGES: usize = 38;
    const SET_FILTER: usize = 1;
    const NEW_LISTENER: usize = 1 << 3;
    // Since Linux 5.19: a signal does not restart a call that was handed over, which some calls (mkdir, rename)
    // would not survive.
    const WAIT_KILLABLE: usize = 1 << 5;
    const EINVAL: i32 = 22;
    let program = Program { length: FILTER_LENGTH as u16, filter: FILTER.as_ptr() };
    // SAFETY: no argument is a pointer.
    check(unsafe { call(number::PRCTL, [SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0, 0]) })?;
    let set = |flags| {
        // SAFETY: the program has the filter's length.
        check(unsafe { call(number::SECCOMP, [SET_FILTER, flags, &raw const program as usize, 0, 0, 0]) })
    };
    match set(NEW_LISTENER | WAIT_KILLABLE) {
        Err(EINVAL) => set(NEW_LISTENER),
        other => other,
    }
}

/// Sends a number, and optionally a descriptor.
fn send(socket: usize, value: u64, descriptor: Option<usize>) {
    #[repr(C)]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        descriptor: i32,
        padding: i32,
    }
    const SOCKET_LEVEL: i32 = 1;
    const RIGHTS: i32 = 1;
    const NO_SIGNAL: usize = 0x4000;
    let control = Control {
        length: size_of::<Control>() - size_of::<i32>(),
        level: SOCKET_LEVEL,
        kind: RIGHTS,
        descriptor: descriptor.unwrap_or_default() as i32,
        padding: 0,
    };
    let part = [&raw const value as usize, size_of::<u64>()];
    let (control, bytes) = match descriptor {
        Some(_) => (&raw const control as usize, size_of::<Control>()),
        None => (0, 0),
    };
    // `struct msghdr`: name and its length, parts and their number, control and its length, flags.
    let message: [usize; 7] = [0, 0, &raw const part as usize, 1, control, bytes, 0];
    // SAFETY: everything that the message points to outlives the call.
    unsafe { call(number::SENDMSG, [socket, message.as_ptr() as usize, NO_SIGNAL, 0, 0, 0]) };
}

fn receive(socket: usize) -> Option<u8> {
    let mut byte = 0u8;
    // SAFETY: the buffer is one byte long.
    let result = unsafe { call(number::READ, [socket, &raw mut byte as usize, 1, 0, 0, 0]) };
    (result == 1).then_some(byte)
}

/// Functions that the compiler may call to copy memory; there is no libc here.
mod memory {
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        for at in 0..bytes {
            // SAFETY: the caller guarantees the ranges. Volatile, so that the compiler does not turn the loop into
            // a call of this function.
            unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
        for at in 0..bytes {
            // SAFETY: as above.
            unsafe { to.add(at).write_volatile(value as u8) };
        }
        to
    }
}

/// Required; no code here is expected to panic.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    complain(b"fakeroot: a bug in the gate\n");
    exit(CANNOT_START)
}
