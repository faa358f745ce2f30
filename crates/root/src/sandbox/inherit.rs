//! What a command does not inherit from the process that started Kilnyard.
//!
//! fork(2) and execve(2) pass on more than arguments and environment: descriptors, keyrings, ignored signals, limits,
//! the personality, a real-time policy. Each of them is either closed or set to one value here, or is inherited on purpose
//! and listed in `docs/security.md`. The lists follow clone(2), execve(2), credentials(7) and prctl(2).
//!
//! Inherited on purpose: niceness, the policies `SCHED_BATCH` and `SCHED_IDLE`, I/O priority below real time, CPU affinity,
//! memory policy, hard limits, control groups, filters and domains of security modules. They make a build smaller or slower
//! and show it nothing, and they are how a person who starts Kilnyard bounds it.

use super::system::check;
use std::io;

/// The first descriptor after standard input, output and error.
const FIRST_DESCRIPTOR: libc::c_uint = 3;

/// The largest signal number (signal(7)).
const SIGNAL_MAX: libc::c_int = 64;

/// Closes every descriptor but standard input, output and error. For the beginning of a program, before it opens any.
pub fn close_descriptors() -> io::Result<()> {
    close_from(0)
}

/// Has exec(3) close every descriptor but standard input, output and error.
fn close_descriptors_at_exec() -> io::Result<()> {
    close_from(libc::CLOSE_RANGE_CLOEXEC)
}

fn close_from(flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: numbers alone. Callers own no descriptor that they use afterwards.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST_DESCRIPTOR, libc::c_uint::MAX, flags) };
    check(closed as libc::c_int).map(drop)
}

/// Leaves the keyrings of the caller: this process and all that it starts have a new, empty session keyring
/// (session-keyring(7)). Process and thread keyrings are not inherited, and those of the user are the user namespace's.
pub(super) fn leave_keyrings() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    let joined = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    match check(joined as libc::c_int) {
        // A kernel without keyrings has none to leave.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map(drop),
    }
}

/// Lets the kernel end the sandbox when memory is short, even if Kilnyard was protected from that (`oom_score_adj`,
/// proc(5)).
pub(super) fn lose_protection_from_oom() -> io::Result<()> {
    const OWN: &str = "/proc/self/oom_score_adj";
    // Where /proc is not mounted there is nothing to write either.
    let Ok(before) = std::fs::read_to_string(OWN) else { return Ok(()) };
    match before.trim().parse::<i32>() {
        Ok(score) if score < 0 => std::fs::write(OWN, "0"),
        _ => Ok(()),
    }
}

/// Sets what a command would inherit, just before it begins. What cannot be refused comes back as an error.
pub(super) fn reset() -> io::Result<()> {
    reset_signals()?;
    // SAFETY: numbers alone.
    unsafe {
        libc::umask(0o022);
        // Address randomisation, the shown machine, and what old programs asked for (personality(2)).
        check(libc::personality(0))?;
    }
    reset_limits()?;
    reset_scheduling()?;
    reset_process_controls();
    close_descriptors_at_exec()
}

/// Default actions for every signal, those of real time among them, and none blocked.
fn reset_signals() -> io::Result<()> {
    // SAFETY: an all-zero action is the default action with an empty mask; the sets live to the end of the calls. The
    // kernel is asked directly: the library keeps two signals for itself, which can be inherited as ignored too.
    unsafe {
        let default = [0_u64; 4];
        for signal in 1..=SIGNAL_MAX {
            // SIGKILL and SIGSTOP have no other action, and the kernel refuses to set it.
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8_usize);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())).map(drop)
    }
}

/// The limits that a login begins with (getrlimit(2)). A hard limit of the caller that is lower stays: only the machine's
/// root could raise it.
fn reset_limits() -> io::Result<()> {
    const KEEP: libc::rlim_t = libc::RLIM_INFINITY;
    // Soft and hard. With one byte the kernel writes no core file and starts no program of the machine for one (core(5)).
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

/// Takes real-time policies away: a build that has one can stop a core for everything else.
fn reset_scheduling() -> io::Result<()> {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const IOPRIO_CLASS_SHIFT: libc::c_long = 13;
    const IOPRIO_CLASS_RT: libc::c_long = 1;
    // SAFETY: numbers alone, but for the parameter, which lives to the end of its call; 0 is this process.
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

/// What prctl(2) sets and fork passes on. A kernel without one of them has nothing to set.
fn reset_process_controls() {
    const TIMER_SLACK_NANOSECONDS: libc::c_ulong = 50_000;
    const PR_SET_MEMORY_MERGE: libc::c_int = 67;
    const CONTROLS: [(libc::c_int, libc::c_ulong); 4] = [
        (libc::PR_SET_TIMERSLACK, TIMER_SLACK_NANOSECONDS),
        (libc::PR_SET_THP_DISABLE, 0),
        // Pages merged with other processes' show by their timing what those hold.
        (PR_SET_MEMORY_MERGE, 0),
        (libc::PR_MCE_KILL, libc::PR_MCE_KILL_CLEAR as libc::c_ulong),
    ];
    for (control, value) in CONTROLS {
        // SAFETY: numbers alone.
        unsafe { libc::prctl(control, value, 0, 0, 0) };
    }
}
