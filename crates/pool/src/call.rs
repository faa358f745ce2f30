//! Calls programs of managers: nothing inherited, a time limit, bounded output.

use crate::PoolError;
use crate::text::excerpt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is kept of standard error, in bytes: so much of its beginning, and of its end.
const STDERR_BYTES_KEPT: usize = 1 << 10;
/// How long a killed program may take to be gone, in seconds. One that a broken file system holds is left behind.
const KILLED_SECONDS_MAX: u64 = 2;

/// What the programs of a manager are started with. They inherit nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Their environment: `PATH`, where programs are searched, and what they need, such as `SLURM_CONF`, `SSH_AUTH_SOCK`
    /// or `XDG_RUNTIME_DIR`.
    pub environment: BTreeMap<String, String>,
    /// The folder that they start in.
    pub folder: PathBuf,
}

impl Default for Surroundings {
    /// The usual `PATH`, messages in English, the root folder.
    fn default() -> Surroundings {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let variables = [("PATH", path), ("LC_ALL", "C")];
        let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Surroundings { environment: BTreeMap::from(environment), folder: PathBuf::from("/") }
    }
}

/// A call of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'call> {
    pub program: &'call str,
    pub arguments: &'call [&'call str],
    /// What it gets on standard input.
    pub input: &'call [u8],
    pub surroundings: &'call Surroundings,
    pub seconds_max: u64,
    pub output_bytes_max: usize,
}

/// What a program wrote before it exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub code: i32,
    pub stdout: Vec<u8>,
    /// Shortened, on one line.
    pub stderr: String,
}

impl Call<'_> {
    /// Runs the program; fails unless it exits with code 0.
    pub fn run(&self) -> Result<Said, PoolError> {
        let said = self.run_to_its_exit()?;
        match said.code {
            0 => Ok(said),
            code => Err(self.failed(format!("exit code {code}"), said.stderr)),
        }
    }

    /// The output as text. Fails as [`Call::run`], or if it is not in UTF-8.
    pub fn text(&self) -> Result<String, PoolError> {
        let said = self.run()?;
        String::from_utf8(said.stdout).map_err(|_| self.unreadable("it is not in UTF-8"))
    }

    /// The answer is not what it should be.
    pub fn unreadable(&self, reason: &str) -> PoolError {
        PoolError::Answer { program: self.program.to_owned(), reason: reason.to_owned() }
    }

    fn failed(&self, end: String, stderr: String) -> PoolError {
        PoolError::Failed { program: self.program.to_owned(), end, stderr }
    }

    /// Runs the program until it exits, with any code. Output of processes that it leaves behind is not waited for: they may
    /// be the pilot.
    pub fn run_to_its_exit(&self) -> Result<Said, PoolError> {
        let program = self.program.to_owned();
        let mut child = Command::new(self.program)
            .args(self.arguments)
            .env_clear()
            .envs(&self.surroundings.environment)
            .current_dir(&self.surroundings.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|source| PoolError::Spawn { program: program.clone(), source })?;
        let ended = self.converse(&mut child);
        let (stdout, stderr, is_over) = match ended {
            Ok(ended) => ended,
            Err(source) => {
                kill(&mut child);
                return Err(PoolError::Pipe { program, source });
            }
        };
        let stderr = stderr.text();
        match is_over {
            Over::Exited => {}
            Over::Late => {
                kill(&mut child);
                return Err(PoolError::Timeout { program, seconds: self.seconds_max, stderr });
            }
            Over::Flooded => {
                kill(&mut child);
                return Err(PoolError::Flood { program, bytes_max: self.output_bytes_max, stderr });
            }
        }
        let status = child.wait().map_err(|source| PoolError::Pipe { program, source })?;
        match status.code() {
            Some(code) => Ok(Said { code, stdout, stderr }),
            None => Err(self.failed(format!("signal {}", status.signal().unwrap_or(0)), stderr)),
        }
    }

    fn converse(&self, child: &mut Child) -> io::Result<(Vec<u8>, Ends, Over)> {
        let deadline = Instant::now() + Duration::from_secs(self.seconds_max);
        let pid = Pid::from_child(child);
        let exit = pidfd_open(pid, PidfdFlags::empty())?;
        let (mut input, mut output, mut errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        for descriptor in [
            input.as_ref().map(AsFd::as_fd),
            output.as_ref().map(AsFd::as_fd),
            errors.as_ref().map(AsFd::as_fd),
        ] {
            descriptor.map_or(Ok(()), set_nonblocking)?;
        }
        let (mut stdout, mut stderr, mut written) = (Vec::new(), Ends::default(), 0);
        loop {
            if written == self.input.len() {
                input = None;
            }
            let mut polled = vec![PollFd::new(&exit, PollFlags::IN)];
            polled.extend(input.as_ref().map(|input| PollFd::new(input, PollFlags::OUT)));
            polled.extend(output.as_ref().map(|output| PollFd::new(output, PollFlags::IN)));
            polled.extend(errors.as_ref().map(|errors| PollFd::new(errors, PollFlags::IN)));
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut polled, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // Checked before reading: all that the program itself wrote before it exited is in the pipes then.
            let has_exited = !polled[0].revents().is_empty();
            drop(polled);
            if let Some(pipe) = &mut input {
                match pipe.write(&self.input[written..]) {
                    Ok(count) => written += count,
                    Err(error) if is_later(&error) => {}
                    // It need not read all of its input.
                    Err(_) => input = None,
                }
            }
            read(&mut output, deadline, |bytes| {
                stdout.extend_from_slice(bytes);
                stdout.len() <= self.output_bytes_max
            })?;
            if stdout.len() > self.output_bytes_max {
                return Ok((stdout, stderr, Over::Flooded));
            }
            read(&mut errors, deadline, |bytes| {
                stderr.extend(bytes);
                true
            })?;
            if has_exited {
                return Ok((stdout, stderr, Over::Exited));
            }
            if Instant::now() >= deadline {
                return Ok((stdout, stderr, Over::Late));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Exited,
    Late,
    Flooded,
}

/// The beginning and the end of a text.
#[derive(Debug, Default)]
struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
    is_cut: bool,
}

impl Ends {
    fn extend(&mut self, bytes: &[u8]) {
        let of_head = bytes.len().min(STDERR_BYTES_KEPT - self.head.len());
        self.head.extend_from_slice(&bytes[..of_head]);
        self.tail.extend_from_slice(&bytes[of_head..]);
        if self.tail.len() > STDERR_BYTES_KEPT {
            self.is_cut = true;
            self.tail.drain(..self.tail.len() - STDERR_BYTES_KEPT);
        }
    }

    fn text(&self) -> String {
        let between: &[u8] = if self.is_cut { " … ".as_bytes() } else { b"" };
        excerpt(&[&self.head[..], between, &self.tail[..]].concat(), STDERR_BYTES_KEPT)
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Reads what is there; closes the pipe at its end. A program that writes faster than it is read does not outlast the deadline.
fn read<P: Read>(
    pipe: &mut Option<P>,
    deadline: Instant,
    mut take: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    while let Some(open) = pipe {
        match open.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(count) if take(&buffer[..count]) && Instant::now() < deadline => {}
            Ok(_) => return Ok(()),
            Err(error) if is_later(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = fcntl_getfl(descriptor)?;
    Ok(fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?)
}

/// Kills the program and its process group.
fn kill(child: &mut Child) {
    let pid = Pid::from_child(child);
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = child.kill();
    let deadline = Instant::now() + Duration::from_secs(KILLED_SECONDS_MAX);
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests;
