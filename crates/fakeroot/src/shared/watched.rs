//! The system calls that the launcher answers for programs without the library, and the seccomp filter by which the
//! kernel hands them over (seccomp(2), `SECCOMP_RET_USER_NOTIF`).
//!
//! A call of another word size is handed over as well, whichever it is, and the launcher rejects the program.
//! Calls that would bypass all this, or whose arguments are not supported yet, fail as on an older kernel that does
//! not have them; programs have a fallback for each.

/// The machine that this is compiled for, as the kernel's audit system numbers it.
#[cfg(target_arch = "x86_64")]
pub const ARCHITECTURE: u32 = 0xc000_003e;
/// The machine that this is compiled for, as the kernel's audit system numbers it.
#[cfg(target_arch = "aarch64")]
pub const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls from this number on have another word size too (x32); other machines have no such calls.
pub const FOREIGN_CALLS_FROM: u32 = 0x4000_0000;

/// Calls that are answered, numbered as in the kernel's headers.
#[cfg(target_arch = "x86_64")]
pub const ANSWERED: [u32; 53] = [
    // stat, fstat, lstat, newfstatat, statx
    4, 5, 6, 262, 332, // chown, fchown, lchown, fchownat
    92, 93, 94, 260, // chmod, fchmod, fchmodat, fchmodat2
    90, 91, 268, 452, // mkdir, mkdirat, mknod, mknodat
    83, 258, 133, 259, // unlink, unlinkat, rmdir, rename, renameat, renameat2
    87, 263, 84, 82, 264, 316, // getuid, getgid, geteuid, getegid, setuid, setgid, setreuid, setregid
    102, 104, 107, 108, 105, 106, 113,
    114, // getgroups, setgroups, set- and getresuid, set- and getresgid
    115, 116, 117, 118, 119, 120, // setfsuid, setfsgid, capset, setpriority
    122, 123, 126, 141, // setxattr to fremovexattr
    188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198, 199,
];
/// Calls that are answered, numbered as in the kernel's headers.
#[cfg(target_arch = "aarch64")]
pub const ANSWERED: [u32; 43] = [
    // newfstatat, fstat, statx
    79, 80, 291, // fchownat, fchown
    54, 55, // fchmodat, fchmod, fchmodat2
    53, 52, 452, // mkdirat, mknodat
    34, 33, // unlinkat, renameat, renameat2
    35, 38, 276, // getuid, geteuid, getgid, getegid, setregid, setgid, setreuid, setuid
    174, 175, 176, 177, 143, 144, 145,
    146, // set- and getresuid, set- and getresgid, setfsuid, setfsgid
    147, 148, 149, 150, 151, 152, // getgroups, setgroups, capset, setpriority
    158, 159, 91, 140, // setxattr to fremovexattr
    5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
];

/// The answered calls that only concern names. A program that makes them itself loses nothing, because a reused
/// inode is recognized by its birth time.
#[cfg(target_arch = "x86_64")]
const NAME_CALLS: [u32; 8] = [83, 258, 87, 263, 84, 82, 264, 316];
/// The answered calls that only concern names. A program that makes them itself loses nothing, because a reused
/// inode is recognized by its birth time.
#[cfg(target_arch = "aarch64")]
const NAME_CALLS: [u32; 4] = [34, 35, 38, 276];

/// Whether a program that makes this call itself sees or changes real owners, modes or attributes.
pub fn matters(number: u32) -> bool {
    ANSWERED.contains(&number) && !NAME_CALLS.contains(&number)
}

/// Calls that fail as if missing: `io_uring_setup`, and `setxattrat` through `removexattrat`. The same on all
/// machines.
pub const MISSING: [u32; 5] = [425, 463, 464, 465, 466];

/// The arguments that a process passes to `getresuid` to learn whether it is answered: addresses where nothing can
/// be mapped.
pub const QUESTION: usize = 0xfa6e_0001;
/// The result of that call in a session. Without a launcher the call fails.
pub const ANSWER: isize = 0x6b79;

/// An instruction of the kernel's packet filter, `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;

const OFFSET_OF_NUMBER: u32 = 0;
const OFFSET_OF_ARCHITECTURE: u32 = 4;

const ALLOW: u32 = 0x7fff_0000;
const ASK: u32 = 0x7fc0_0000;
const FAIL_WITH_ENOSYS: u32 = 0x0005_0000 | 38;

const CHECKS: usize = 4;
const ENDS: usize = 3;

/// The number of instructions in the filter.
pub const FILTER_LENGTH: usize = CHECKS + ANSWERED.len() + MISSING.len() + ENDS;

const fn jump(code: u16, value: u32, from: usize, to: usize) -> Instruction {
    // The kernel counts from the next instruction. The filter is shorter than the longest jump.
    Instruction { code, if_true: (to - from - 1) as u8, if_false: 0, value }
}

const fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

/// The filter. Calls that it allows cost nothing: the kernel determines once which these are.
pub const FILTER: [Instruction; FILTER_LENGTH] = {
    let (allow, missing, ask) = (FILTER_LENGTH - 3, FILTER_LENGTH - 2, FILTER_LENGTH - 1);
    let mut filter = [plain(RETURN, ALLOW); FILTER_LENGTH];
    filter[0] = plain(LOAD, OFFSET_OF_ARCHITECTURE);
    filter[1] =
        Instruction { code: JUMP_IF_EQUAL, if_true: 0, if_false: (ask - 2) as u8, value: ARCHITECTURE };
    filter[2] = plain(LOAD, OFFSET_OF_NUMBER);
    filter[3] = jump(JUMP_IF_NOT_BELOW, FOREIGN_CALLS_FROM, 3, ask);
    let mut at = CHECKS;
    let mut next = 0;
    while next < ANSWERED.len() {
        filter[at] = jump(JUMP_IF_EQUAL, ANSWERED[next], at, ask);
        next += 1;
        at += 1;
    }
    next = 0;
    while next < MISSING.len() {
        filter[at] = jump(JUMP_IF_EQUAL, MISSING[next], at, missing);
        next += 1;
        at += 1;
    }
    assert!(at == allow && ask < 256);
    filter[missing] = plain(RETURN, FAIL_WITH_ENOSYS);
    filter[ask] = plain(RETURN, ASK);
    filter
};
