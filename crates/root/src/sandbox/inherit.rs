//! Resets the process state that a command would inherit from the process that started Kilnyard.
//!
//! fork(2) and execve(2) pass on more than arguments and environment: descriptors, keyrings, ignored signals, limits,
//! the personality, a real-time policy. Each of these is either closed or set to a fixed value here, or is inherited on
//! purpose and listed in `docs/security.md`. The lists follow clone(2), execve(2), credentials(7) and prctl(2).
//!
//! Inherited on purpose: niceness, the policies `SCHED_BATCH` and `SCHED_IDLE`, I/O priority below real time, CPU
//! affinity, memory policy, hard limits, control groups, filters, and domains of security modules. They restrict a
//! build or slow it down, reveal nothing to it, and are the means by which the user who starts Kilnyard limits it.

use super::system::check;
use std::io;

/// The first descriptor after standard input, output and error.
const FIRST_DESCRIPTOR: libc::c_uint = 3;

/// The largest signal number (signal(7)).
const SIGNAL_MAX: libc::c_int = 64;

/// Closes every descriptor except standard input, output and error. Call it at the start of a program, before it
/// opens any.
pub fn close_descriptors() -> io::Result<()> {
    close_from(0)
}

/// Makes execve(2) close every descriptor except standard input, output and error.
fn close_descriptors_at_exec() -> io::Result<()> {
    close_from(libc::CLOSE_RANGE_CLOEXEC)
}

fn close_from(flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the call takes only integers. Callers own no descriptor that they use afterwards.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST_DESCRIPTOR, libc::c_uint::MAX, flags) };
    check(closed as libc::c_int).map(drop)
}

/// Leaves the keyrings of the caller: this process and all its descendants get a new, empty session keyring
/// (session-keyring(7)). Process and thread keyrings are not inherited, and user keyrings belong to the user namespace.
pub(super) fn leave_keyrings() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name requests an anonymous keyring.
    let joined = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    match check(joined as libc::c_int) {
        // A kernel without keyrings has none to leave.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map(drop),
    }
}

/// Allows the OOM killer to kill the sandbox, even if Kilnyard is protected from it (`oom_score_adj`, proc(5)).
pub(super) fn reset_oom_score() -> io::Result<()> {
    const OWN: &str = "/proc/self/oom_score_adj";
    // Without a mounted /proc there is nothing to write either.
    let Ok(before) = std::fs::read_to_string(OWN) else { return Ok(()) };
    match before.trim().parse::<i32>() {
        Ok(score) if score < 0 => std::fs::write(OWN, "0"),
        _ => Ok(()),
    }
}

/// Resets inherited state just before the command starts. Fails if a part that must be reset cannot be.
pub(super) fn reset() -> io::Result<()> {
    reset_signals()?;
    // SAFETY: the calls take only integers.
    unsafe {
        libc::umask(0o022);
        // Address randomisation, the reported machine type, and quirks for old programs (personality(2)).
        check(libc::personality(0))?;
    }
    reset_limits()?;
    reset_scheduling()?;
    reset_process_controls();
    close_descriptors_at_exec()
}

/// Sets every signal, including real-time signals, to its default action, and unblocks all.
fn reset_signals() -> io::Result<()> {
    // SAFETY: an all-zero action is the default action with an empty mask; the sets outlive the calls. The system
    // call is made directly: the C library hides two signals, which can also be inherited as ignored.
    unsafe {
        let default = [0_u64; 4];
        for signal in 1..=SIGNAL_MAX {
            // For SIGKILL and SIGSTOP the call fails; they always have the default action.
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8_usize);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())).map(drop)
    }
}

/// Sets the limits that a login session starts with (getrlimit(2)). A lower hard limit of the caller stays: only the
/// machine's root could raise it.
fn reset_limits() -> io::Result<()> {
    const KEEP: libc::rlim_t = libc::RLIM_INFINITY;
    // Soft and hard. With a limit of one byte the kernel neither writes a core file nor pipes it to a program of the
    // machine (core(5)).
    let limits = [
        (libc::RLIMIT_CORE, 1, 1),
        (libc::RLIMIT_NOFILE, 1024, 512 << 10),
        (libc::RLIMIT_STACK, 8 << 20, KEEP),
        (libc::RLIMIT_MEMLOCK, 8 << 20, 8 << 20),
        (libc::RLIMIT_MSGQUEUE, 800 << 10, 800 << 10),
        (libc::RLIMIT_NICE, 0, 0),
        (libc::RLIMIT_RTPRIO, 0, 0),
        (libc::RLIMIT_AS, KEEP, KEEP),
        (libc::RLIMIT_CPU, KEEP, KEEP),
        (libc::RLIMIT_DATA, KEEP, KEEP),
        (libc::RLIMIT_FSIZE, KEEP, KEEP),
        (libc::RLIMIT_LOCKS, KEEP, KEEP),
        (libc::RLIMIT_RSS, KEEP, KEEP),
        (libc::RLIMIT_RTTIME, KEEP, KEEP),
        (libc::RLIMIT_SIGPENDING, KEEP, KEEP),
    ];
    for (resource, soft, hard) in limits {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limit lives to the end of both calls.
        unsafe {
            check(libc::getrlimit(resource, &mut limit))?;
            limit.rlim_max = limit.rlim_max.min(hard);
            limit.rlim_cur = limit.rlim_max.min(soft);
            check(libc::setrlimit(resource, &limit))?;
        }
    }
    Ok(())
}

/// Removes real-time policies: a build that has one can block a core for all other processes.
fn reset_scheduling() -> io::Result<()> {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const IOPRIO_CLASS_SHIFT: libc::c_long = 13;
    const IOPRIO_CLASS_RT: libc::c_long = 1;
    // SAFETY: the calls take only integers, except for the parameter, which lives to the end of its call; 0 is this
    // process.
    unsafe {
        let policy = libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK;
        if ![libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy) {
            let mut parameter: libc::sched_param = std::mem::zeroed();
            parameter.sched_priority = 0;
            check(libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameter))?;
        }
        let priority = libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
        if priority > 0 && priority >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT {
            check(libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0) as libc::c_int)?;
        }
    }
    Ok(())
}

/// Resets inheritable settings of prctl(2). Errors are ignored: a kernel without a setting has nothing to reset.
fn reset_process_controls() {
    const TIMER_SLACK_NANOSECONDS: libc::c_ulong = 50_000;
    const PR_SET_MEMORY_MERGE: libc::c_int = 67;
    const CONTROLS: [(libc::c_int, libc::c_ulong); 4] = [
        (libc::PR_SET_TIMERSLACK, TIMER_SLACK_NANOSECONDS),
        (libc::PR_SET_THP_DISABLE, 0),
        // Timing of pages merged with those of other processes reveals their content.
        (PR_SET_MEMORY_MERGE, 0),
        (libc::PR_MCE_KILL, libc::PR_MCE_KILL_CLEAR as libc::c_ulong),
    ];
    for (control, value) in CONTROLS {
        // SAFETY: the call takes only integers.
        unsafe { libc::prctl(control, value, 0, 0, 0) };
    }
}
