//! The variants of `execl`, whose words are consecutive arguments with a null at the end.
//!
//! The words in registers are pushed below the words on the stack, so that all of them form one list; the functions
//! that take a list do the rest. On one machine the return address is in between, and is kept elsewhere during the
//! call.

use crate::program::{self, List};
use core::ffi::{c_char, c_int};

macro_rules! by_list {
    ($($name:ident $by_list:ident;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                // A valid target of indirect calls.
                "endbr64",
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // This aligns the stack for the call.
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
                // A valid target of indirect calls (bti c).
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
    // SAFETY: the caller's arguments, with a null at the end.
    unsafe { program::execv(path, words) }
}

unsafe extern "C" fn by_name(name: *const c_char, words: List) -> c_int {
    // SAFETY: the caller's arguments, with a null at the end.
    unsafe { program::execvp(name, words) }
}

/// The environment follows the null.
unsafe extern "C" fn with_environment(path: *const c_char, words: List) -> c_int {
    let mut end = words;
    // SAFETY: the caller's list, which ends with a null that one more argument follows.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        program::execve(path, words, *end.add(1).cast::<List>())
    }
}
