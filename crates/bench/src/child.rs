//! CPU time, wall time and memory of processes.

use crate::error::{Context, Error, Kind, Result};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a child's peak memory is sampled. Memory allocated in its last moments is not seen.
const MEMORY_SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// The cost of a child, including its descendants that were waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub memory_peak_bytes: u64,
}

fn seconds(usage: &libc::rusage) -> f64 {
    let of = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    of(usage.ru_utime) + of(usage.ru_stime)
}

fn usage_of(whose: libc::c_int) -> f64 {
    // SAFETY: an all-zero rusage is valid, and it outlives the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        // This fails only for an unknown `whose` or an invalid address.
        libc::getrusage(whose, &mut usage);
        seconds(&usage)
    }
}

/// User time, and system time, so far, of all descendants that were waited for.
pub fn children_user_and_system_seconds() -> (f64, f64) {
    // SAFETY: an all-zero rusage is valid, and it outlives the call, which fails only for an unknown first argument.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let of = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (of(usage.ru_utime), of(usage.ru_stime))
}

/// User and system time of this process alone, so far.
pub fn own_cpu_seconds() -> f64 {
    usage_of(libc::RUSAGE_SELF)
}

/// User and system time, so far, of all descendants that were waited for.
pub fn children_cpu_seconds() -> f64 {
    usage_of(libc::RUSAGE_CHILDREN)
}

/// User and system time, so far, of this process and of all descendants that were waited for.
pub fn all_cpu_seconds() -> f64 {
    usage_of(libc::RUSAGE_SELF) + usage_of(libc::RUSAGE_CHILDREN)
}

/// A command that runs this program again, without a yard.
pub fn this_program_alone(arguments: &[&str]) -> Command {
    // The link refers to the running program even if its file has been replaced.
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments);
    command
}

/// A command that runs this program again in a yard.
pub fn this_program(yard: &Path, arguments: &[&str]) -> Command {
    let mut command = this_program_alone(&[]);
    command.arg("--yard").arg(yard).args(arguments);
    command
}

/// Runs a command to its end. Its output goes to a file or is discarded. Exit codes in `allowed` are success.
pub fn measure(mut command: Command, output: Option<&Path>, allowed: &[i32]) -> Result<Usage> {
    super::check_interrupt()?;
    let name = format!("{command:?}");
    let failed = format!("run {name}");
    let output = match output {
        Some(path) => Stdio::from(File::create(path).or_internal(&failed)?),
        None => Stdio::null(),
    };
    let started = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(output).spawn().context(Kind::Machine, &failed)?;
    let number = child.id();
    let is_over = AtomicBool::new(false);
    let peak_bytes = AtomicU64::new(0);
    let (waited, status, usage, wall_seconds) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peak_bytes.fetch_max(memory_peak_bytes(number).unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(MEMORY_SAMPLE_INTERVAL);
            }
        });
        let mut status = 0;
        // SAFETY: an all-zero rusage is valid, and both pointers are valid for the calls. Only this code waits
        // for the child: `Child` does not wait by itself.
        let (waited, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            loop {
                let waited = libc::wait4(number as libc::pid_t, &mut status, 0, &mut usage);
                let error = std::io::Error::last_os_error();
                if waited >= 0 {
                    break (Ok(()), usage);
                }
                if error.kind() != std::io::ErrorKind::Interrupted {
                    break (Err(error), usage);
                }
            }
        };
        let wall_seconds = started.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        (waited, status, usage, wall_seconds)
    });
    waited.or_internal(&failed)?;
    super::check_interrupt()?;
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    if !code.is_some_and(|code| allowed.contains(&code)) {
        let how = code.map_or("was killed".to_owned(), |code| format!("exited with {code}"));
        return Err(Error::new(Kind::Machine, format!("{name} {how}")));
    }
    Ok(Usage {
        wall_seconds,
        cpu_seconds: seconds(&usage),
        memory_peak_bytes: peak_bytes.load(Ordering::Relaxed),
    })
}

/// Peak memory of a process so far. `rusage` also has this, but it includes the memory that the parent had when
/// the child was started.
fn memory_peak_bytes(number: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_measured_and_its_exit_code_checked() {
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            command
        };
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.1; echo done; exit 3";
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let usage = measure(shell(busy), Some(&output), &[0, 3]).unwrap();
        assert!(usage.cpu_seconds > 0.0 && usage.wall_seconds >= 0.1, "{usage:?}");
        assert!(usage.memory_peak_bytes > 100 << 10, "{usage:?}");
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "done\n");
        let error = measure(shell("exit 3"), None, &[0]).unwrap_err().to_string();
        assert!(error.contains("exited with 3"), "{error}");
        assert!(measure(Command::new("/nonexistent/program"), None, &[0]).is_err());
    }

    #[test]
    fn children_count_once_they_are_waited_for() {
        let before = all_cpu_seconds();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        let usage = measure(command, None, &[0]).unwrap();
        assert!(all_cpu_seconds() - before >= usage.cpu_seconds * 0.9);
    }
}
