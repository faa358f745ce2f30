//! Seccomp filter programs (seccomp(2)): the few instructions that the filters of a root use.

use super::system::check;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Offset of the system call number.
pub(super) const NUMBER: u32 = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
/// Offset of the architecture that the number belongs to: one of `AUDIT_ARCH_*`.
pub(super) const ARCHITECTURE: u32 = std::mem::offset_of!(libc::seccomp_data, arch) as u32;

/// Offset of the low half of an argument; arguments are counted from 0.
pub(super) const fn argument(index: u32) -> u32 {
    let low_half = if cfg!(target_endian = "big") { 4 } else { 0 };
    std::mem::offset_of!(libc::seccomp_data, args) as u32 + 8 * index + low_half
}

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Loads 32 bits of the call's data.
pub(super) const fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

/// Skips `yes` instructions if the loaded value equals this one, else `no` instructions.
pub(super) const fn equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value)
}

/// Skips `yes` instructions if the loaded value has any of these bits, else `no` instructions.
pub(super) const fn has_bits(bits: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, bits)
}

/// Allows the call.
pub(super) const fn allow() -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW)
}

/// Makes the call return this error number, or success if it is 0.
pub(super) const fn answer(number: libc::c_int) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | number as u32)
}

/// Passes the call to the process that holds the listening descriptor, which answers it.
pub(super) const fn ask() -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF)
}

/// Installs a filter with [`ask`] instructions for this process and all its descendants. Returns the listening
/// descriptor.
pub(super) fn install_listening(filter: &mut [libc::sock_filter]) -> io::Result<OwnedFd> {
    let length = libc::c_ushort::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program and its filter outlive the call, which copies them; the returned descriptor has no
    // other owner.
    unsafe {
        let listener = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program);
        Ok(OwnedFd::from_raw_fd(check(listener as libc::c_int)?))
    }
}

/// Installs a filter for this process and all its descendants. Requires CAP_SYS_ADMIN or no_new_privs.
pub(super) fn install(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let length = libc::c_ushort::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter outlive the call, which copies them.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) })?;
    Ok(())
}

/// Simulates the kernel: the result of a filter program for one call.
#[cfg(test)]
pub(super) fn verdict(
    program: &[libc::sock_filter],
    architecture: u32,
    number: u32,
    arguments: [u32; 3],
) -> u32 {
    let (mut at, mut value) = (0, 0);
    loop {
        let step = program[at];
        at += 1;
        match u32::from(step.code) & 0x07 {
            libc::BPF_LD => {
                value = match step.k {
                    ARCHITECTURE => architecture,
                    NUMBER => number,
                    offset => {
                        let index =
                            (0..3).find(|index| argument(*index) == offset).expect("a known argument");
                        arguments[index as usize]
                    }
                }
            }
            libc::BPF_JMP => {
                let is_taken = match u32::from(step.code) & 0xf0 {
                    libc::BPF_JEQ => value == step.k,
                    _ => value & step.k != 0,
                };
                at += usize::from(if is_taken { step.jt } else { step.jf });
            }
            _ => return step.k,
        }
    }
}
