//! Discards flushes in a root: system calls that flush data to the disk return success immediately.
//!
//! A root is discarded if the machine goes down, so its data need not reach the disk early, and package managers
//! flush thousands of times. The filter applies to every process of the root, including static programs and
//! privileged ones, and to no other process.
//!
//! Two cases get around the filter. A file opened with `O_SYNC` or `O_DSYNC` is flushed by each write: a filter
//! cannot remove these flags, and refusing the call would break the caller. An overlay mounted `volatile` removes
//! them itself (`ovl_write_iter`), memory has nothing to flush, and a served device discards flushes; so such files
//! are as slow as on the machine only in a root that is a folder on the disk. The other case is io_uring, which
//! flushes without a system call; the same applies to it.

use super::filter::{self, ARCHITECTURE, NUMBER, allow, answer, argument, equal, has_bits, load};
use std::io;

/// The system calls of one architecture.
struct Calls {
    /// `AUDIT_ARCH_*` (linux/audit.h).
    architecture: u32,
    /// fsync, fdatasync, sync, syncfs, sync_file_range (or sync_file_range2).
    flushing: [u32; 5],
    /// Flushes only with `MS_SYNC`.
    msync: u32,
}

/// System call numbers, from the kernel's tables. A kernel may run programs of more than one architecture, each with
/// its own numbers. Calls of an architecture that is not in the list are allowed.
const CALLS: [Calls; 7] = [
    Calls { architecture: 0xC000_003E, flushing: [74, 75, 162, 306, 277], msync: 26 }, // x86_64
    Calls { architecture: 0x4000_0003, flushing: [118, 148, 36, 344, 314], msync: 144 }, // i386
    Calls { architecture: 0xC000_00B7, flushing: [82, 83, 81, 267, 84], msync: 227 },  // aarch64
    Calls { architecture: 0x4000_0028, flushing: [118, 148, 36, 373, 341], msync: 144 }, // arm
    Calls { architecture: 0xC000_00F3, flushing: [82, 83, 81, 267, 84], msync: 227 },  // riscv64
    Calls { architecture: 0xC000_0015, flushing: [118, 148, 36, 348, 308], msync: 144 }, // powerpc64le
    Calls { architecture: 0x8000_0016, flushing: [118, 148, 36, 338, 307], msync: 144 }, // s390x
];

/// x32 has the architecture of x86_64 and is marked by a bit of the number (`__X32_SYSCALL_BIT`).
const X32_BIT: u32 = 0x4000_0000;
const X86_64: u32 = 0xC000_003E;

/// Discards the flushes of this process and all its descendants.
pub(super) fn discard() -> io::Result<()> {
    filter::install(&mut program())
}

fn program() -> Vec<libc::sock_filter> {
    let mut program = vec![load(ARCHITECTURE)];
    for calls in &CALLS {
        let mut part = numbers(calls, 0);
        if calls.architecture == X86_64 {
            part.extend(numbers(calls, X32_BIT));
        }
        // Each part ends with a verdict.
        let part_length = part.len() as u8 + 2;
        program.push(equal(calls.architecture, 0, part_length));
        program.push(load(NUMBER));
        program.extend(part);
        program.push(allow());
    }
    program.push(allow());
    program
}

/// Answers the calls of one table. Other calls continue behind it, with the number still loaded.
fn numbers(calls: &Calls, bit: u32) -> Vec<libc::sock_filter> {
    let mut part: Vec<libc::sock_filter> = Vec::new();
    for call in calls.flushing {
        part.extend([equal(call | bit, 0, 1), answer(0)]);
    }
    // Without MS_SYNC, programs use msync to check whether memory is mapped.
    part.extend([
        equal(calls.msync | bit, 0, 4),
        load(argument(2)),
        has_bits(libc::MS_SYNC as u32, 0, 1),
        answer(0),
        allow(),
    ]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(architecture: u32, number: u32, flags: u32) -> u32 {
        filter::verdict(&program(), architecture, number, [0, 0, flags])
    }

    #[test]
    fn flushes_of_every_architecture_are_answered_and_nothing_else_is() {
        let flushes =
            [(X86_64, 74), (X86_64, 277), (X86_64, 74 | X32_BIT), (0x4000_0003, 118), (0xC000_00B7, 267)];
        for (architecture, number) in flushes {
            assert_eq!(
                verdict(architecture, number, 0),
                libc::SECCOMP_RET_ERRNO,
                "{architecture:x} {number}"
            );
        }
        // The same numbers are other calls on other architectures.
        let others =
            [(X86_64, 118), (0x4000_0003, 74), (0x4000_0003, 118 | X32_BIT), (0xC000_00B7, 74), (1, 74)];
        for (architecture, number) in others {
            assert_eq!(
                verdict(architecture, number, 0),
                libc::SECCOMP_RET_ALLOW,
                "{architecture:x} {number}"
            );
        }
        for (number, architecture) in [(26, X86_64), (26 | X32_BIT, X86_64), (144, 0x4000_0003)] {
            assert_eq!(verdict(architecture, number, libc::MS_SYNC as u32), libc::SECCOMP_RET_ERRNO);
            assert_eq!(verdict(architecture, number, libc::MS_ASYNC as u32), libc::SECCOMP_RET_ALLOW);
        }
    }

    #[test]
    fn numbers_are_those_of_this_machine() {
        let own = if cfg!(target_arch = "x86_64") {
            X86_64
        } else if cfg!(target_arch = "aarch64") {
            0xC000_00B7
        } else {
            return;
        };
        let calls = CALLS.iter().find(|calls| calls.architecture == own).unwrap();
        let numbers = [
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_sync,
            libc::SYS_syncfs,
            libc::SYS_sync_file_range,
        ];
        assert_eq!(calls.flushing.map(i64::from), numbers);
        assert_eq!(i64::from(calls.msync), libc::SYS_msync);
    }
}
