//! `system` and `popen`, which start a shell inside libc.
//!
//! If the shell needs the gate, its first command replaces it with a shell that the gate starts. Otherwise libc
//! handles the call.

use crate::gate;
use crate::next::{ENOMEM, next, set_errno};
use crate::program::{List, needs_gate};
use crate::session;
use crate::shared::kernel;
use core::ffi::{CStr, c_char, c_int, c_void};

const SHELL: &CStr = c"/bin/sh";

/// Calls `run` with the command, or with one that restarts the shell through the gate. Returns `failed` if no
/// memory is left.
fn with_command<R>(command: *const c_char, failed: R, run: impl FnOnce(*const c_char) -> R) -> R {
    if command.is_null() || session::table().is_none() || !needs_gate(SHELL) {
        return run(command);
    }
    let words =
        [c"sh".as_ptr().cast_mut(), c"-c".as_ptr().cast_mut(), command.cast_mut(), core::ptr::null_mut()];
    let mut run = Some(run);
    let mut result = None;
    gate::with(SHELL.as_ptr(), words.as_ptr(), |gate, words| {
        result = with_line(gate, words, |line| run.take().map(|run| run(line)));
        0
    });
    result.unwrap_or_else(|| {
        set_errno(ENOMEM);
        failed
    })
}

/// Builds one shell command line from a program and its words, valid during `run`. The first word is the program's
/// name, which the shell sets itself.
fn with_line<R>(
    program: *const c_char,
    words: List,
    run: impl FnOnce(*const c_char) -> Option<R>,
) -> Option<R> {
    const BEGIN: &[u8] = b"exec";
    const BYTES_EACH: usize = 4;
    // SAFETY: NUL-terminated strings, and a null-terminated list.
    let text = |word: *const c_char| unsafe { CStr::from_ptr(word) }.to_bytes();
    let rest = || {
        (1..).map_while(|at| {
            // SAFETY: nothing is read after the null.
            let word = unsafe { *words.add(at) };
            (!word.is_null()).then(|| text(word))
        })
    };
    let all = || core::iter::once(text(program)).chain(rest());
    let bytes = BEGIN.len() + all().map(|word| word.len() * BYTES_EACH + BYTES_EACH).sum::<usize>() + 1;
    let address = kernel::map_memory(bytes).ok()?;
    // SAFETY: fresh memory of this length, to which no other pointer exists; it ends with zeros.
    let line = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, bytes) };
    let mut end = 0;
    let mut put = |part: &[u8]| {
        line[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    };
    put(BEGIN);
    for word in all() {
        put(b" '");
        for byte in word {
            match byte {
                b'\'' => put(b"'\\''"),
                other => put(&[*other]),
            }
        }
        put(b"'");
    }
    let result = run(address as *const c_char);
    kernel::unmap(address, bytes);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    with_command(command, -1, |command| next!(system(command => *const c_char)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    with_command(
        command,
        core::ptr::null_mut(),
        |command| next!(popen(command => *const c_char, mode => *const c_char) -> *mut c_void, or core::ptr::null_mut()),
    )
}
