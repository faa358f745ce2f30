//! The processes of a farm on this machine: how they are started and ended, and what they use.

use crate::child;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest time until the door listens, or a process ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a process, or what is waited for, is checked.
const STEP: Duration = Duration::from_millis(20);

/// How a process is ended with its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By SIGKILL: it has nothing to clean up.
    Killed,
    /// By SIGINT, so that it removes its roots, and by SIGKILL if it does not end.
    Asked,
}

/// A process that is ended with its owner.
#[derive(Debug)]
pub struct Running {
    child: Child,
    ending: Ending,
}

impl Running {
    /// Starts a process that writes its standard error to a file, and nothing else.
    pub fn start(mut command: Command, log: &Path, ending: Ending) -> Result<Running> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Running::start_piped(command, log, ending)
    }

    /// The same, with the command's own standard input and output.
    pub fn start_piped(mut command: Command, log: &Path, ending: Ending) -> Result<Running> {
        command.stderr(File::create(log).or_internal("write a log")?);
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // A shell that runs this in the background has it ignored, and a process cannot undo that for its shells.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let child = command.spawn().context(Kind::Machine, format!("run {command:?}"))?;
        Ok(Running { child, ending })
    }

    /// The process, for its output.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// What it has used so far.
    pub fn used(&self) -> Used {
        Used::by(self.child.id())
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        loop {
            crate::check_interrupt()?;
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            std::thread::sleep(STEP);
        }
    }

    /// Its status, if it has ended.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().or_internal("wait for a process")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let is_over = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if self.ending == Ending::Asked && !is_over(&mut self.child) {
            // SAFETY: the child was not waited for, so the number is its own.
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
            let began = Instant::now();
            while !is_over(&mut self.child) && began.elapsed() < PATIENCE {
                std::thread::sleep(STEP);
            }
        }
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// User and system time, without that of its children.
    pub cpu_seconds: f64,
    /// The same, of its descendants that were waited for.
    pub children_seconds: f64,
    /// The most memory that it had.
    pub memory_peak_bytes: u64,
}

impl Used {
    /// From `/proc`; zero once the process was waited for.
    fn by(process: u32) -> Used {
        let stat = fs_err::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // SAFETY: it reads a constant of the system.
        let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        // Fields 14 to 17 of proc_pid_stat(5); the state, field 3, comes first here.
        let seconds =
            |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / hertz;
        let status = fs_err::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        let kibibytes: u64 = peak.and_then(|text| text.parse().ok()).unwrap_or(0);
        Used {
            cpu_seconds: seconds(11) + seconds(12),
            children_seconds: seconds(13) + seconds(14),
            memory_peak_bytes: kibibytes << 10,
        }
    }
}

/// Starts the program in a yard. It has a log of this name.
pub fn start(yard: &Yard, arguments: &[&str], name: &str, ending: Ending) -> Result<Running> {
    Running::start(child::this_program(&yard.folder, arguments), &yard.path(&format!("logs/{name}")), ending)
}

/// `kilnyard serve`.
#[derive(Debug)]
pub struct Door {
    pub running: Running,
    pub url: String,
}

impl Door {
    /// Starts it at any free port of this machine alone, and waits until it listens.
    pub fn open(yard: &Yard) -> Result<Door> {
        let running = start(yard, &["serve", "--listen", "127.0.0.1:0"], "serve", Ending::Killed)?;
        let log = yard.path("logs/serve");
        let said = || fs_err::read_to_string(&log).unwrap_or_default();
        until("the door listens", || said().contains("Ctrl-C"))?;
        let said = said();
        let address = said.split("connect to ").nth(1).and_then(|rest| rest.lines().next());
        let address = address
            .ok_or_else(|| Error::new(Kind::Internal, "kilnyard serve does not say where it listens"))?;
        Ok(Door { running, url: format!("https://{address}") })
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        crate::check_interrupt()?;
        if began.elapsed() > PATIENCE {
            return Err(Error::new(Kind::Internal, format!("timed out: {what}")));
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// The error of a build that has failed, with the last line of its log.
pub fn build_failed(yard: &Yard, log: &str, status: ExitStatus) -> Error {
    let said = fs_err::read_to_string(yard.path(&format!("logs/{log}"))).unwrap_or_default();
    let last = said.lines().rev().find(|line| !line.is_empty()).unwrap_or_default().to_owned();
    let mut error = Error::new(Kind::Internal, format!("the build of the benchmark ended with {status}"));
    error.causes.push(last);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let shell = |script: &str, ending| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            Running::start(command, &folder.path().join("log"), ending).unwrap()
        };
        let mut ended = shell("exit 3", Ending::Killed);
        assert_eq!(ended.wait().unwrap().code(), Some(3));
        let script = "trap 'echo asked >&2; exit' INT; echo ready >&2; while :; do sleep 0.05; done";
        let asked = shell(script, Ending::Asked);
        let said = || fs_err::read_to_string(folder.path().join("log")).unwrap();
        until("it is ready", || said().contains("ready")).unwrap();
        assert!(asked.used().memory_peak_bytes > 0);
        drop(asked);
        assert!(said().contains("asked"));
        drop(shell("exec sleep 1000", Ending::Killed));
    }
}
