//! The system calls of a sandbox, each with a checked result.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn c_string(text: &[u8]) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    c_string(path.as_os_str().as_bytes())
}

pub(crate) fn mount(
    source: &str,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    data: &str,
) -> io::Result<()> {
    let (source, target) = (c_string(source.as_bytes())?, c_path(target)?);
    let (kind, data) = (c_string(kind.as_bytes())?, c_string(data.as_bytes())?);
    // SAFETY: all pointers are to strings that outlive the call.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    })?;
    Ok(())
}

pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes only an integer; this process has one thread.
    check(unsafe { libc::unshare(flags) })?;
    Ok(())
}

/// Enters an open namespace of this kind (setns(2)).
pub(crate) fn enter(space: &std::fs::File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes only integers; the descriptor is open.
    check(unsafe { libc::setns(space.as_raw_fd(), kind) }).map(|_| ())
}

/// Starts a process as fork(2) does, in new namespaces and, if given, in the control group of version 2 whose folder is
/// open. Returns `None` in the child. Unlike a move into a group, this never waits for other threads (clone3(2), since
/// Linux 5.7). The calling process has one thread, so the child may call any function.
pub(super) fn clone(spaces: libc::c_int, group: Option<BorrowedFd<'_>>) -> io::Result<Option<libc::pid_t>> {
    /// `CLONE_INTO_CGROUP` (linux/sched.h).
    const INTO_GROUP: u64 = 1 << 33;
    // SAFETY: all zero is a valid value that requests nothing.
    let mut wanted: libc::clone_args = unsafe { std::mem::zeroed() };
    wanted.flags = u64::from(spaces.unsigned_abs());
    wanted.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    if let Some(group) = group {
        wanted.flags |= INTO_GROUP;
        wanted.cgroup = u64::from(group.as_raw_fd().unsigned_abs());
    }
    // SAFETY: the arguments outlive the call; without a new stack the child continues here, as after fork,
    // and this process has one thread.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw const wanted, size_of_val(&wanted)) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((child != 0).then_some(child as libc::pid_t))
}

/// Forks; returns `None` in the child. The calling process has one thread, so the child may call any function.
pub(super) fn fork() -> io::Result<Option<libc::pid_t>> {
    // SAFETY: this process has one thread.
    let child = check(unsafe { libc::fork() })?;
    Ok((child != 0).then_some(child))
}

/// Asks to be killed when the parent dies. Fails if it has already died.
pub(super) fn die_with_parent(parent: libc::pid_t) -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    // SAFETY: the call has no preconditions.
    if unsafe { libc::getppid() } != parent {
        return Err(io::Error::other("the parent has exited"));
    }
    Ok(())
}

/// Fails if the write end of a pipe that this process reads from is closed.
pub(super) fn is_open(pipe: BorrowedFd<'_>) -> io::Result<()> {
    let mut polled = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    check(unsafe { libc::poll(&mut polled, 1, 0) })?;
    if polled.revents & libc::POLLHUP == 0 { Ok(()) } else { Err(io::Error::other("the parent has exited")) }
}

/// Revokes the request to be killed when the parent dies.
pub(super) fn survive_parent() -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0) })?;
    Ok(())
}

pub(crate) fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: an empty list of groups needs no pointer.
    check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: the call takes only integers.
    check(unsafe { libc::setresgid(group, group, group) })?;
    // SAFETY: the call takes only integers.
    check(unsafe { libc::setresuid(user, user, user) })?;
    Ok(())
}

/// Denies setgroups(2) to a process, given by its folder in `/proc`. An unprivileged user must do so before mapping a
/// group (user_namespaces(7)).
pub(super) fn keep_groups(process: &Path) -> io::Result<()> {
    std::fs::write(process.join("setgroups"), "deny")
}

/// Appears as another user, in a new user namespace that has only this user: the way for root to change its id if the
/// root has only one id.
pub(super) fn appear_as(user: u32, group: u32) -> io::Result<()> {
    let own = Path::new("/proc/self");
    // SAFETY: the calls have no preconditions.
    let (user_before, group_before) = unsafe { (libc::getuid(), libc::getgid()) };
    unshare(libc::CLONE_NEWUSER)?;
    keep_groups(own)?;
    std::fs::write(own.join("uid_map"), format!("{user} {user_before} 1\n"))?;
    std::fs::write(own.join("gid_map"), format!("{group} {group_before} 1\n"))
}

/// Waits for a child, or for any child with -1. Returns the child, its status, and the resource usage of it and its own
/// waited-for children.
pub(super) fn wait(
    child: libc::pid_t,
    options: libc::c_int,
) -> io::Result<(libc::pid_t, libc::c_int, libc::rusage)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals that outlive the call.
        let pid = unsafe { libc::wait4(child, &mut status, options, &mut usage) };
        match check(pid) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|pid| (pid, status, usage)),
        }
    }
}

/// The exit code of a status, and the signal if one killed the process; the code is then 128 plus the signal.
pub(super) fn code_of(status: libc::c_int) -> (i32, Option<i32>) {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        (128 + signal, Some(signal))
    } else {
        (libc::WEXITSTATUS(status), None)
    }
}

/// User time and system time, separately.
pub(super) fn user_and_system_seconds(usage: &libc::rusage) -> (f64, f64) {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

/// The sum of user and system time.
pub(super) fn cpu_seconds(usage: &libc::rusage) -> f64 {
    let (user, system) = user_and_system_seconds(usage);
    user + system
}

/// Limits the processes and threads of each user of this user namespace. The kernel counts them for each namespace
/// separately, and the limit also holds for root inside.
pub(super) fn limit_processes(count: u32) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: count.into(), rlim_max: count.into() };
    // SAFETY: the limit outlives the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) })?;
    Ok(())
}

/// Limits the open files of this process and of each descendant; a lower existing limit stays.
pub(super) fn limit_open_files(count: u32) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    let count = limit.rlim_max.min(count.into());
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: as above.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(())
}
