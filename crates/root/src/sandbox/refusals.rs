//! System calls that are refused to commands in a root: those that builds do not need and that attacks on a kernel
//! start from.
//!
//! Most of these calls need a capability that commands do not have. But a process has a full set of capabilities in a
//! user namespace that it creates: a command that can create one reaches the code behind these calls. The filter
//! therefore refuses new namespaces too, and with them everything that only they make possible. The list follows the
//! default profiles of container engines and of systemd (`SystemCallFilter=@system-service`, systemd.exec(5)).
//!
//! A refused call fails with the error of a kernel that does not have it, or does not allow it: programs are prepared
//! for both. It is counted, and the log of the stage names it; see [`super::refused`].

use super::filter::{ARCHITECTURE, NUMBER, allow, answer, argument, equal, has_bits, load};
use serde::{Deserialize, Serialize};

/// Whether commands may create namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nesting {
    /// They may not create namespaces, nor mount.
    #[default]
    Refused,
    /// They may create user namespaces and do all that those allow, for packages whose tests need it. Refused calls are
    /// not counted then, since such tests also install their own filters, and a counting filter would be in their way.
    Allowed,
}

/// The reason why a call is in the list, which decides how it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A facility that kernels may lack: `ENOSYS`.
    Absent,
    /// Administration of the machine: `EPERM`.
    Denied,
    /// Useful only in new namespaces: `EPERM`, unless nesting is allowed.
    Namespaces,
}
use Kind::{Absent, Denied, Namespaces};

/// The architecture does not have the call.
const NONE: u32 = u32::MAX;

/// The architectures, as `AUDIT_ARCH_*` (linux/audit.h), each with its column of numbers. Calls of any other
/// architecture are allowed: kernels of these architectures do not run programs of others, and on another machine no
/// call is refused (docs/security.md).
const ARCHITECTURES: [(u32, usize); 7] = [
    (0xC000_003E, 0), // x86_64
    (0x4000_0003, 1), // i386
    (0xC000_00B7, 2), // aarch64
    (0xC000_00F3, 2), // riscv64: the same generic numbers
    (0x4000_0028, 3), // arm
    (0xC000_0015, 4), // powerpc64le
    (0x8000_0016, 5), // s390x
];

/// x32 has the architecture of x86_64 and a bit in the number (`__X32_SYSCALL_BIT`). Distributions disable it, and it
/// bypasses filters that do not handle it.
const X32_BIT: u32 = 0x4000_0000;
const X86_64: u32 = 0xC000_003E;
const S390X: u32 = 0x8000_0016;

/// Numbers for each column of [`ARCHITECTURES`], from the kernel's tables.
type Numbers = [u32; 6];

const CALLS: [(&str, Kind, Numbers); 49] = [
    // I/O rings, and page faults handled by a program: much kernel code behind one call.
    ("io_uring_setup", Absent, [425, 425, 425, 425, 425, 425]),
    ("io_uring_enter", Absent, [426, 426, 426, 426, 426, 426]),
    ("io_uring_register", Absent, [427, 427, 427, 427, 427, 427]),
    ("userfaultfd", Absent, [323, 374, 282, 388, 364, 355]),
    // Keyrings belong to users, and two builds may have the same user.
    ("keyctl", Absent, [250, 288, 219, 311, 271, 280]),
    ("add_key", Absent, [248, 286, 217, 309, 269, 278]),
    ("request_key", Absent, [249, 287, 218, 310, 270, 279]),
    ("acct", Denied, [163, 51, 89, 51, 51, 51]),
    ("bpf", Denied, [321, 357, 280, 386, 361, 351]),
    ("clock_settime", Denied, [227, 264, 112, 262, 245, 259]),
    ("create_module", Denied, [174, 127, NONE, NONE, 127, 127]),
    ("delete_module", Denied, [176, 129, 106, 129, 129, 129]),
    ("finit_module", Denied, [313, 350, 273, 379, 353, 344]),
    ("get_kernel_syms", Denied, [177, 130, NONE, NONE, 130, 130]),
    ("init_module", Denied, [175, 128, 105, 128, 128, 128]),
    ("ioperm", Denied, [173, 101, NONE, NONE, 101, NONE]),
    ("iopl", Denied, [172, 110, NONE, NONE, 110, NONE]),
    ("kexec_file_load", Denied, [320, NONE, 294, 401, 382, 381]),
    ("kexec_load", Denied, [246, 283, 104, 347, 268, 277]),
    ("lookup_dcookie", Denied, [212, 253, 18, 249, 235, 110]),
    ("nfsservctl", Denied, [180, 169, 42, 169, 168, 169]),
    ("open_by_handle_at", Denied, [304, 342, 265, 371, 346, 336]),
    ("perf_event_open", Denied, [298, 336, 241, 364, 319, 331]),
    ("query_module", Denied, [178, 167, NONE, NONE, 166, 167]),
    ("quotactl", Denied, [179, 131, 60, 131, 131, 131]),
    ("quotactl_fd", Denied, [443, 443, 443, 443, 443, 443]),
    ("reboot", Denied, [169, 88, 142, 88, 88, 88]),
    ("settimeofday", Denied, [164, 79, 170, 79, 79, 79]),
    ("stime", Denied, [NONE, 25, NONE, NONE, 25, NONE]),
    ("swapoff", Denied, [168, 115, 225, 115, 115, 115]),
    ("swapon", Denied, [167, 87, 224, 87, 87, 87]),
    ("syslog", Denied, [103, 103, 116, 103, 103, 103]),
    ("uselib", Denied, [134, 86, NONE, 86, 86, 86]),
    ("vhangup", Denied, [153, 111, 58, 111, 111, 111]),
    ("vm86", Denied, [NONE, 166, NONE, NONE, 113, NONE]),
    ("vm86old", Denied, [NONE, 113, NONE, NONE, NONE, NONE]),
    ("_sysctl", Denied, [156, 149, NONE, 149, 149, 149]),
    ("setns", Namespaces, [308, 346, 268, 375, 350, 339]),
    ("mount", Namespaces, [165, 21, 40, 21, 21, 21]),
    ("umount", Namespaces, [NONE, 22, NONE, NONE, 22, 22]),
    ("umount2", Namespaces, [166, 52, 39, 52, 52, 52]),
    ("pivot_root", Namespaces, [155, 217, 41, 218, 203, 217]),
    ("fsopen", Namespaces, [430, 430, 430, 430, 430, 430]),
    ("fsconfig", Namespaces, [431, 431, 431, 431, 431, 431]),
    ("fsmount", Namespaces, [432, 432, 432, 432, 432, 432]),
    ("fspick", Namespaces, [433, 433, 433, 433, 433, 433]),
    ("move_mount", Namespaces, [429, 429, 429, 429, 429, 429]),
    ("open_tree", Namespaces, [428, 428, 428, 428, 428, 428]),
    ("mount_setattr", Namespaces, [442, 442, 442, 442, 442, 442]),
];

// Calls that are refused for some arguments only.
const UNSHARE: Numbers = [272, 310, 97, 337, 282, 303];
const CLONE: Numbers = [56, 120, 220, 120, 120, 120];
/// Its flags are in memory, where a filter cannot see them. Libraries fall back to clone.
const CLONE3: Numbers = [435; 6];
const SOCKET: Numbers = [41, 359, 198, 281, 326, 359];
/// Multiplexes all socket calls, with the arguments in memory.
const SOCKETCALL: Numbers = [NONE, 102, NONE, NONE, 102, 102];

/// `CLONE_NEW*` (clone(2)). To clone, the bit of a time namespace is a part of the exit signal.
const NEW_NAMESPACES: u32 = 0x7E02_0000;
const NEW_TIME_NAMESPACE: u32 = 0x80;
/// The number of socket(2) in `socketcall`.
const SOCKETCALL_SOCKET: u32 = 1;

/// How the filter treats a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It fails.
    Fail,
    /// Process 1 is notified; it counts the call and makes it fail.
    Ask,
}

/// The filter program. With `has_socketcall`, programs of the root may create sockets by `socketcall`, whose socket
/// families a filter cannot see.
pub(super) fn program(nesting: Nesting, verdict: Verdict, has_socketcall: bool) -> Vec<libc::sock_filter> {
    let mut program = vec![load(ARCHITECTURE)];
    for (architecture, column) in ARCHITECTURES {
        let part = part(architecture, column, nesting, verdict, has_socketcall || architecture == S390X);
        let length = u8::try_from(part.len()).expect("a part is shorter than a jump");
        program.push(equal(architecture, 0, length));
        program.extend(part);
    }
    program.push(allow());
    program
}

/// The part for one architecture: every path through it ends with a verdict.
fn part(
    architecture: u32,
    column: usize,
    nesting: Nesting,
    verdict: Verdict,
    has_socketcall: bool,
) -> Vec<libc::sock_filter> {
    let refuse = |number| match verdict {
        Verdict::Fail => answer(number),
        Verdict::Ask => super::filter::ask(),
    };
    let mut part = vec![load(NUMBER)];
    if architecture == X86_64 {
        part.extend([has_bits(X32_BIT, 0, 1), answer(libc::ENOSYS)]);
    }
    for (_, kind, numbers) in CALLS {
        if numbers[column] != NONE && !(kind == Namespaces && nesting == Nesting::Allowed) {
            part.extend([equal(numbers[column], 0, 1), refuse(error_of(kind))]);
        }
    }
    part.extend([equal(CLONE3[column], 0, 1), answer(libc::ENOSYS)]);
    if nesting == Nesting::Refused {
        // s390x takes the stack first (clone(2)).
        let flags_of_clone = u32::from(architecture == S390X);
        for (number, flags, bits) in [
            (UNSHARE[column], 0, NEW_NAMESPACES | NEW_TIME_NAMESPACE),
            (CLONE[column], flags_of_clone, NEW_NAMESPACES),
        ] {
            part.extend([
                equal(number, 0, 4),
                load(argument(flags)),
                has_bits(bits, 0, 1),
                refuse(libc::EPERM),
                allow(),
            ]);
        }
    }
    if SOCKETCALL[column] != NONE && !has_socketcall {
        part.extend([
            equal(SOCKETCALL[column], 0, 4),
            load(argument(0)),
            equal(SOCKETCALL_SOCKET, 0, 1),
            refuse(libc::EAFNOSUPPORT),
            allow(),
        ]);
    }
    part.extend([
        equal(SOCKET[column], 0, 9),
        load(argument(0)),
        equal(libc::AF_UNIX as u32, 6, 0),
        equal(libc::AF_INET as u32, 5, 0),
        equal(libc::AF_INET6 as u32, 4, 0),
        equal(libc::AF_NETLINK as u32, 0, 2),
        // The only allowed netlink protocol: libraries list addresses with it.
        load(argument(2)),
        equal(libc::NETLINK_ROUTE as u32, 1, 0),
        refuse(libc::EAFNOSUPPORT),
        allow(),
    ]);
    part.push(allow());
    part
}

fn error_of(kind: Kind) -> libc::c_int {
    match kind {
        Absent => libc::ENOSYS,
        Denied | Namespaces => libc::EPERM,
    }
}

/// The name of a refused call and its error number.
pub(super) fn refused(architecture: u32, number: u32) -> (&'static str, libc::c_int) {
    let column = ARCHITECTURES.iter().find(|(known, _)| *known == architecture).map(|(_, column)| *column);
    let Some(column) = column else { return ("a call", libc::EPERM) };
    if let Some((name, kind, _)) = CALLS.iter().find(|(.., numbers)| numbers[column] == number) {
        return (name, error_of(*kind));
    }
    if number == SOCKET[column] || number == SOCKETCALL[column] {
        ("socket", libc::EAFNOSUPPORT)
    } else if number == UNSHARE[column] {
        ("unshare", libc::EPERM)
    } else {
        ("clone", libc::EPERM)
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::verdict;
    use super::*;

    fn error(number: libc::c_int) -> u32 {
        libc::SECCOMP_RET_ERRNO | number as u32
    }

    fn strict(architecture: u32, number: u32, arguments: [u32; 3]) -> u32 {
        verdict(&program(Nesting::Refused, Verdict::Fail, false), architecture, number, arguments)
    }

    const I386: u32 = 0x4000_0003;

    #[test]
    fn calls_are_refused_by_the_numbers_of_each_architecture() {
        for (architecture, column) in ARCHITECTURES {
            for (name, kind, numbers) in CALLS.iter().filter(|(.., numbers)| numbers[column] != NONE) {
                let found = strict(architecture, numbers[column], [0; 3]);
                assert_eq!(found, error(error_of(*kind)), "{name} of {architecture:x}");
                assert_eq!(refused(architecture, numbers[column]).1, error_of(*kind));
            }
        }
        // read(2), and a call of an architecture that is not in the list.
        assert_eq!(strict(X86_64, 0, [0; 3]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(strict(1, 321, [0; 3]), libc::SECCOMP_RET_ALLOW);
        // All calls of x32 fail.
        assert_eq!(strict(X86_64, X32_BIT, [0; 3]), error(libc::ENOSYS));
    }

    #[test]
    fn processes_can_be_created_and_namespaces_cannot() {
        let fork = 0x0120_0011;
        let thread = 0x003d_0f00;
        for flags in [fork, thread] {
            assert_eq!(strict(X86_64, 56, [flags, 0, 0]), libc::SECCOMP_RET_ALLOW);
            assert_eq!(strict(S390X, 120, [0x7ff0_0000, flags, 0]), libc::SECCOMP_RET_ALLOW);
        }
        for namespace in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWCGROUP] {
            let flags = namespace as u32;
            assert_eq!(strict(X86_64, 56, [flags | 17, 0, 0]), error(libc::EPERM));
            assert_eq!(strict(S390X, 120, [0, flags, 0]), error(libc::EPERM));
            assert_eq!(strict(X86_64, 272, [flags, 0, 0]), error(libc::EPERM));
        }
        assert_eq!(strict(X86_64, 272, [libc::CLONE_FS as u32, 0, 0]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(strict(X86_64, 435, [0; 3]), error(libc::ENOSYS));
        let nesting = program(Nesting::Allowed, Verdict::Fail, false);
        let user = libc::CLONE_NEWUSER as u32;
        for (number, arguments) in [(56, [user, 0, 0]), (272, [user, 0, 0]), (165, [0; 3])] {
            assert_eq!(verdict(&nesting, X86_64, number, arguments), libc::SECCOMP_RET_ALLOW);
        }
        assert_eq!(verdict(&nesting, X86_64, 321, [0; 3]), error(libc::EPERM));
    }

    #[test]
    fn only_socket_families_that_builds_need_are_allowed() {
        let socket = |family: libc::c_int, protocol| strict(X86_64, 41, [family as u32, 3, protocol]);
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
            assert_eq!(socket(family, 0), libc::SECCOMP_RET_ALLOW);
        }
        let others = [(libc::AF_ALG, 0), (libc::AF_VSOCK, 0), (libc::AF_PACKET, 0), (libc::AF_NETLINK, 9)];
        for (family, protocol) in others {
            assert_eq!(socket(family, protocol), error(libc::EAFNOSUPPORT));
        }
        let call = |has_socketcall, operation| {
            let program = program(Nesting::Refused, Verdict::Fail, has_socketcall);
            verdict(&program, I386, 102, [operation, 0, 0])
        };
        assert_eq!(call(false, 1), error(libc::EAFNOSUPPORT));
        assert_eq!([call(false, 3), call(true, 1)], [libc::SECCOMP_RET_ALLOW; 2]);
    }

    #[test]
    fn numbers_are_those_of_this_machine() {
        let column = if cfg!(target_arch = "x86_64") {
            0
        } else if cfg!(any(target_arch = "aarch64", target_arch = "riscv64")) {
            2
        } else {
            return;
        };
        let known = [
            ("keyctl", libc::SYS_keyctl),
            ("bpf", libc::SYS_bpf),
            ("perf_event_open", libc::SYS_perf_event_open),
            ("mount", libc::SYS_mount),
            ("userfaultfd", libc::SYS_userfaultfd),
            ("open_by_handle_at", libc::SYS_open_by_handle_at),
            ("finit_module", libc::SYS_finit_module),
            ("syslog", libc::SYS_syslog),
        ];
        for (name, number) in known {
            let row = CALLS.iter().find(|(call, ..)| *call == name).unwrap();
            assert_eq!(i64::from(row.2[column]), number, "{name}");
        }
        let partly = [
            (UNSHARE, libc::SYS_unshare),
            (CLONE, libc::SYS_clone),
            (CLONE3, libc::SYS_clone3),
            (SOCKET, libc::SYS_socket),
        ];
        for (numbers, number) in partly {
            assert_eq!(i64::from(numbers[column]), number);
        }
    }
}
