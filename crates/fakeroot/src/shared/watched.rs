//! The system calls of programs without the library that the launcher answers, and the filter by which the kernel
//! hands them over (seccomp(2), `SECCOMP_RET_USER_NOTIF`).
//!
//! A call of another word length is handed over too, whatever it is: the launcher refuses the program. Calls that
//! would go past all this, or whose arguments nobody here knows yet, are not there for the program, as on
//! an older kernel; programs have another way for each.

/// The machine that this is compiled for, as the kernel's audit numbers it.
#[cfg(target_arch = "x86_64")]
pub const ARCHITECTURE: u32 = 0xc000_003e;
/// The machine that this is compiled for, as the kernel's audit numbers it.
#[cfg(target_arch = "aarch64")]
pub const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls from this number on are of another word length too (x32); there are none on other machines.
pub const FOREIGN_CALLS_FROM: u32 = 0x4000_0000;

/// Calls that are answered, as the kernel's headers number them.
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
/// Calls that are answered, as the kernel's headers number them.
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

/// Those of them that are about names alone: a program that makes them itself loses nothing by it, as an inode that
/// is used again is told by its birth.
#[cfg(target_arch = "x86_64")]
const OF_NAMES: [u32; 8] = [83, 258, 87, 263, 84, 82, 264, 316];
/// Those of them that are about names alone: a program that makes them itself loses nothing by it, as an inode that
/// is used again is told by its birth.
#[cfg(target_arch = "aarch64")]
const OF_NAMES: [u32; 4] = [34, 35, 38, 276];

/// Whether a program that makes this call itself sees or changes what is real.
pub fn matters(number: u32) -> bool {
    ANSWERED.contains(&number) && !OF_NAMES.contains(&number)
}

/// Calls that are not there: `io_uring_setup`, and `setxattrat` to `removexattrat`. The same on all machines.
pub const MISSING: [u32; 5] = [425, 463, 464, 465, 466];

/// What a process asks `getresuid` with to know whether it is answered: places where nothing can be.
pub const QUESTION: usize = 0xfa6e_0001;
/// The answer. Without a launcher it is an error.
pub const ANSWER: isize = 0x6b79;

/// An instruction of the kernel's packet filter: `struct sock_filter`.
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

/// How many instructions the filter has.
pub const FILTER_LENGTH: usize = CHECKS + ANSWERED.len() + MISSING.len() + ENDS;

const fn jump(code: u16, value: u32, from: usize, to: usize) -> Instruction {
    // The kernel counts from the next one on. The filter is shorter than a jump can be.
    Instruction { code, if_true: (to - from - 1) as u8, if_false: 0, value }
}

const fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

/// The filter. Its calls that are let through cost nothing: the kernel finds out once which they are.
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
