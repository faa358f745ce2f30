//! `execl` and its siblings, whose words are arguments one after the other, with a null behind them.
//!
//! What is in registers is put on the stack before what is there already, so that all of it becomes one list; the
//! functions with a list do the rest. The return address lies in between on one machine, and is put elsewhere for the
//! time.

use crate::program::{self, List};
use core::ffi::{c_char, c_int};

macro_rules! by_list {
    ($($name:ident $by_list:ident;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                // A place where calls may arrive.
                "endbr64",
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // With it the stack is aligned for the call.
                "push rax",
                "call {begin}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                begin = sym $by_list,
            );
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                // A place where calls may arrive (bti c).
                "hint #34",
                "sub sp, sp, #80",
                "stp x29, x30, [sp]",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {begin}",
                "ldp x29, x30, [sp]",
                "add sp, sp, #80",
                "ret",
                begin = sym $by_list,
            );
        }
    )*};
}
by_list! {
    execl by_path;
    execlp by_name;
    execle with_environment;
}

unsafe extern "C" fn by_path(path: *const c_char, words: List) -> c_int {
    // SAFETY: the caller's, with a null at the end.
    unsafe { program::execv(path, words) }
}

unsafe extern "C" fn by_name(name: *const c_char, words: List) -> c_int {
    // SAFETY: the caller's, with a null at the end.
    unsafe { program::execvp(name, words) }
}

/// The environment stands behind the null.
unsafe extern "C" fn with_environment(path: *const c_char, words: List) -> c_int {
    let mut end = words;
    // SAFETY: the caller's list, with a null at its end and one more behind it.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        program::execve(path, words, *end.add(1).cast::<List>())
    }
}
