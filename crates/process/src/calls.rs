//! System calls that a process may wait in, by their numbers on this architecture.

/// The meaning of a call's first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// A file descriptor.
    Descriptor,
    /// A process id.
    Process,
    /// Anything else, which is not shown.
    Other,
}

/// The calls that can take long. All others are shown by number.
const CALLS: &[(libc::c_long, &str, First)] = &[
    (libc::SYS_read, "read", First::Descriptor),
    (libc::SYS_write, "write", First::Descriptor),
    (libc::SYS_readv, "readv", First::Descriptor),
    (libc::SYS_writev, "writev", First::Descriptor),
    (libc::SYS_pread64, "pread64", First::Descriptor),
    (libc::SYS_pwrite64, "pwrite64", First::Descriptor),
    (libc::SYS_ioctl, "ioctl", First::Descriptor),
    (libc::SYS_fcntl, "fcntl", First::Descriptor),
    (libc::SYS_flock, "flock", First::Descriptor),
    (libc::SYS_fsync, "fsync", First::Descriptor),
    (libc::SYS_fdatasync, "fdatasync", First::Descriptor),
    (libc::SYS_sendfile, "sendfile", First::Descriptor),
    (libc::SYS_splice, "splice", First::Descriptor),
    (libc::SYS_connect, "connect", First::Descriptor),
    (libc::SYS_accept, "accept", First::Descriptor),
    (libc::SYS_accept4, "accept4", First::Descriptor),
    (libc::SYS_recvfrom, "recvfrom", First::Descriptor),
    (libc::SYS_recvmsg, "recvmsg", First::Descriptor),
    (libc::SYS_sendto, "sendto", First::Descriptor),
    (libc::SYS_sendmsg, "sendmsg", First::Descriptor),
    (libc::SYS_epoll_pwait, "epoll_pwait", First::Descriptor),
    (libc::SYS_wait4, "wait4", First::Process),
    (libc::SYS_waitid, "waitid", First::Other),
    (libc::SYS_futex, "futex", First::Other),
    (libc::SYS_nanosleep, "nanosleep", First::Other),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", First::Other),
    (libc::SYS_ppoll, "ppoll", First::Other),
    (libc::SYS_pselect6, "pselect6", First::Other),
    (libc::SYS_openat, "openat", First::Other),
    (libc::SYS_rt_sigsuspend, "rt_sigsuspend", First::Other),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait", First::Other),
    (libc::SYS_semop, "semop", First::Other),
    (libc::SYS_semtimedop, "semtimedop", First::Other),
    (libc::SYS_msgrcv, "msgrcv", First::Other),
    (libc::SYS_msgsnd, "msgsnd", First::Other),
    (libc::SYS_io_getevents, "io_getevents", First::Other),
    (libc::SYS_execve, "execve", First::Other),
    (libc::SYS_umount2, "umount2", First::Other),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", First::Other),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select", First::Other),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_pause, "pause", First::Other),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", First::Descriptor),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", First::Other),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, "vfork", First::Other),
];

/// The system call that a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// The first argument, if it is a descriptor.
    pub(crate) descriptor: Option<i32>,
    /// The first argument, if it is a process id.
    pub(crate) process: Option<i32>,
}

/// Parses the text of `/proc/PID/syscall` (proc_pid_syscall(5)). `None` for a process that is running or not in a call.
pub(crate) fn parse(text: &str) -> Option<Call> {
    let mut words = text.split_ascii_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    if number < 0 {
        return None;
    }
    let first = words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    // The kernel shows whole registers; the argument is the lower half, as a signed number.
    let first = first.map(|first| first as u32 as i32);
    let known = CALLS.iter().find(|(known, ..)| *known == number);
    let is = |kind| known.is_some_and(|(_, _, first)| *first == kind);
    Some(Call {
        name: known.map_or_else(|| format!("system call {number}"), |(_, name, _)| (*name).to_owned()),
        descriptor: first.filter(|first| is(First::Descriptor) && *first >= 0),
        process: first.filter(|first| is(First::Process) && *first > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_parsed_with_its_subject() {
        let line =
            |number: libc::c_long, first: &str| format!("{number} {first} 0x1 0x2 0x0 0x0 0x0 0x7ff 0x401\n");
        let read = parse(&line(libc::SYS_read, "0x3")).unwrap();
        assert_eq!((&*read.name, read.descriptor, read.process), ("read", Some(3), None));
        let wait = parse(&line(libc::SYS_wait4, "0xffffffff")).unwrap();
        assert_eq!((&*wait.name, wait.descriptor, wait.process), ("wait4", None, None), "any child");
        assert_eq!(parse(&line(libc::SYS_wait4, "0x2a")).unwrap().process, Some(42));
        assert_eq!(parse(&line(9999, "0x3")).unwrap().name, "system call 9999");
        for text in ["", "running\n", "-1 0x7ffd 0x0", "x", "99999999999999999999 0x0"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let cut = parse(&libc::SYS_read.to_string()).unwrap();
        assert_eq!(cut.descriptor, None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_call_or_none(text in "-?[0-9]{0,4} (0x[0-9a-f]{0,17} ){0,3}|\\PC{0,40}") {
            if let Some(call) = parse(&text) {
                proptest::prop_assert!(!call.name.is_empty());
                proptest::prop_assert!(call.descriptor.is_none_or(|descriptor| descriptor >= 0));
            }
        }
    }
}
