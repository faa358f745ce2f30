//! Runs one command directly on the machine and captures its output: for programs that read a tree and print facts.
//!
//! The command runs in its own process group, which is killed when the command exits, when it exceeds a limit, or on
//! cancellation. Its output is bounded. Known downside: if this process is killed, the command is killed too, but
//! processes that the command started keep running. Builds run in a sandbox instead, where nothing can outlive them.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// How often the limits and the cancel flag are checked.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Bounds of a captured command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// It is killed after this time.
    pub wall_seconds_max: u64,
    /// How much is kept of each of its two outputs.
    pub output_bytes_max: u64,
}

/// How a captured command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// The command exited with this code (128 plus the signal number if a signal killed it).
    Exit(i32),
    /// It ran longer than its limit.
    WallLimit,
    /// It printed more than the limit.
    OutputLimit,
    /// The caller cancelled it.
    Cancelled,
}

/// What a captured command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// How it ended.
    pub end: CaptureEnd,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub errors: Vec<u8>,
}

/// Runs a command to its end.
pub fn capture(mut command: Command, limits: CaptureLimits, cancel: &AtomicBool) -> io::Result<Captured> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: prctl is safe to call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let started = Instant::now();
    let has_too_much = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = |from: Option<Box<dyn Read + Send>>| {
            let mut bytes = Vec::new();
            if let Some(from) = from {
                let count = from.take(limits.output_bytes_max + 1).read_to_end(&mut bytes)?;
                if count as u64 > limits.output_bytes_max {
                    has_too_much.store(true, Ordering::Relaxed);
                }
            }
            io::Result::Ok(bytes)
        };
        let output = output.map(|output| Box::new(output) as Box<dyn Read + Send>);
        let errors = errors.map(|errors| Box::new(errors) as Box<dyn Read + Send>);
        let output = scope.spawn(move || read(output));
        let errors = scope.spawn(move || read(errors));
        let end = loop {
            if let Some(status) = child.try_wait()? {
                use std::os::unix::process::ExitStatusExt;
                let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                break CaptureEnd::Exit(code);
            }
            let end = if cancel.load(Ordering::Relaxed) {
                CaptureEnd::Cancelled
            } else if has_too_much.load(Ordering::Relaxed) {
                CaptureEnd::OutputLimit
            } else if started.elapsed().as_secs() >= limits.wall_seconds_max {
                CaptureEnd::WallLimit
            } else {
                std::thread::sleep(SAMPLE_INTERVAL);
                continue;
            };
            end_group(&child);
            child.wait()?;
            break end;
        };
        // Processes that it left behind would hold the pipes open.
        end_group(&child);
        let taken = |bytes: ScopedJoinHandle<io::Result<Vec<u8>>>| {
            bytes.join().unwrap_or_else(|_| Err(io::Error::other("a thread reading the output panicked")))
        };
        let (output, errors) = (taken(output)?, taken(errors)?);
        let end = if has_too_much.load(Ordering::Relaxed) { CaptureEnd::OutputLimit } else { end };
        Ok(Captured { end, output, errors })
    })
}

fn end_group(child: &Child) {
    // SAFETY: no memory is touched. The group is the child's own: its id cannot be reused before the child has
    // been waited for, and afterwards the group holds only what the child left behind.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CaptureLimits = CaptureLimits { wall_seconds_max: 60, output_bytes_max: 1 << 20 };

    fn run(script: &str, limits: CaptureLimits) -> Captured {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        capture(command, limits, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn outputs_and_exit_codes_come_back() {
        let captured = run("echo out; echo err >&2; exit 3", LIMITS);
        assert_eq!(captured.end, CaptureEnd::Exit(3));
        assert_eq!((&captured.output[..], &captured.errors[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(run("kill -9 $$", LIMITS).end, CaptureEnd::Exit(137));
    }

    #[test]
    fn limits_end_the_whole_process_group() {
        let limits = CaptureLimits { wall_seconds_max: 1, ..LIMITS };
        let captured = run("sleep 7272 & echo $!; sleep 7272", limits);
        assert_eq!(captured.end, CaptureEnd::WallLimit);
        let sleeper = String::from_utf8(captured.output).unwrap();
        // It was killed, but takes a moment to disappear.
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", sleeper.trim())).unwrap_or_default();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !state().is_empty() && !state().contains(") Z ") {
            assert!(Instant::now() < deadline, "{}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(run("cat /dev/zero", LIMITS).end, CaptureEnd::OutputLimit);
    }

    #[test]
    fn a_cancelled_command_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("7373");
        assert_eq!(capture(command, LIMITS, &AtomicBool::new(true)).unwrap().end, CaptureEnd::Cancelled);
    }
}
