//! A virtual machine that runs one sandbox after the other.

use crate::frame::{self, Frame, Shared, Task, ToGuest, ToHost};
use crate::{Accelerator, Kernel, emulator, initial, share};
use kilnyard_process::{CommandOutcome, End, Passed, Sample, Watched};
use kilnyard_root::{Access, Operation, Sandbox, View};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the cancel flag and the time limit are checked.
const CHECKED: Duration = Duration::from_millis(100);
/// How long a guest may take to end a command after it was told to, or after its time is over.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// How much of the last output of a guest's kernel is kept.
const CONSOLE_BYTES: usize = 4 << 10;
/// Frames that wait for the host; a guest that prints more than the host takes waits.
const FRAMES_MAX: usize = 64;

/// What a machine is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its kernel.
    pub kernel: Kernel,
    /// How its instructions are executed.
    pub accelerator: Accelerator,
    /// The number of its processors.
    pub cores: u32,
    /// The size of its memory.
    pub memory_bytes: u64,
}

impl Shape {
    /// Enough for the kernel, this program and small builds.
    pub const MEMORY_BYTES: u64 = 1 << 30;
}

/// Why a machine is not there.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// An operation of this machine failed.
    #[error(transparent)]
    Files(#[from] io::Error),
    /// The guest ended, or did not become ready in time; with the last words of its kernel.
    #[error("the virtual machine {how}{}", said(.console))]
    Guest {
        /// What happened, after "the virtual machine".
        how: String,
        /// The last lines that its kernel printed.
        console: String,
    },
}

fn said(console: &str) -> String {
    let last: Vec<&str> = console.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match last[last.len().saturating_sub(3)..] {
        [] => String::new(),
        ref lines => format!(": {}", lines.join(" / ")),
    }
}

/// A running machine. Dropping it ends it.
#[derive(Debug)]
pub struct Machine {
    emulator: Child,
    share: Option<Child>,
    port: UnixStream,
    frames: Receiver<io::Result<Frame<ToHost>>>,
    console: Arc<Mutex<Vec<u8>>>,
    shared: Vec<Shared>,
}

impl Machine {
    /// Starts a machine whose root's sandboxes name these folders. `made` has files that all machines share, `folder` is empty
    /// and for this one.
    ///
    /// # Errors
    /// It does not become ready within the time.
    pub fn start(
        shape: &Shape,
        made: &Path,
        folder: &Path,
        sandboxes: &[&Sandbox],
        within: Duration,
    ) -> Result<Machine, MachineError> {
        let began = Instant::now();
        let folder = &fs_err::canonicalize(folder)?;
        let shared = shared_by(sandboxes)?;
        let initial = fs_err::canonicalize(initial::made(&shape.kernel, made)?)?;
        let share = match &shared[..] {
            [] => None,
            shared => Some(Ended(share::start(folder, shared)?)),
        };
        let listener = share::listen(folder, emulator::PORT)?;
        let shape = &Shape {
            kernel: Kernel { image: fs_err::canonicalize(&shape.kernel.image)?, ..shape.kernel.clone() },
            ..*shape
        };
        let mut command = emulator::command(shape, &initial, share.is_some())
            .ok_or_else(|| io::Error::other("qemu-system-x86_64 is not installed"))?;
        command
            .current_dir(folder)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let mut emulator = Ended(command.spawn()?);
        let console: Arc<Mutex<Vec<u8>>> = Arc::default();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            emulator.0.stdout.take().map(|output| Box::new(output) as _),
            emulator.0.stderr.take().map(|output| Box::new(output) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let console = console.clone();
            std::thread::spawn(move || keep_last(output, &console));
        }
        let port = accept(&listener, &mut emulator.0, began + within)
            .map_err(|how| MachineError::Guest { how, console: text(&console) })?;
        let (sender, frames) = sync_channel(FRAMES_MAX);
        let mut from = port.try_clone()?;
        std::thread::spawn(move || {
            loop {
                let frame = frame::read(&mut from);
                let is_over = frame.is_err();
                if sender.send(frame).is_err() || is_over {
                    break;
                }
            }
        });
        let machine = Machine {
            emulator: emulator.take(),
            share: share.map(Ended::take),
            port,
            frames,
            console,
            shared,
        };
        machine.begin(began + within)
    }

    /// Tells the guest what to mount, and waits until it has done so.
    fn begin(mut self, until: Instant) -> Result<Machine, MachineError> {
        let mut shared = self.shared.clone();
        // Paths in the order of their names: a folder before what is in it.
        shared.sort();
        frame::send(&mut self.port, &ToGuest::Mount(shared))?;
        let left = until.saturating_duration_since(Instant::now());
        let how = match self.frames.recv_timeout(left) {
            Ok(Ok(Frame::Message(ToHost::Ready))) => return Ok(self),
            Ok(Ok(Frame::Message(ToHost::Failed(why)))) => format!("cannot begin: {why}"),
            Ok(_) => "ended or sent what it should not".to_owned(),
            Err(_) => "did not boot in time".to_owned(),
        };
        Err(MachineError::Guest { how, console: text(&self.console) })
    }

    /// What its kernel printed last.
    pub fn console(&self) -> String {
        text(&self.console)
    }

    /// The ids of its processes on this machine.
    pub fn processes(&self) -> Vec<u32> {
        std::iter::once(self.emulator.id()).chain(self.share.as_ref().map(Child::id)).collect()
    }

    /// Runs a sandbox to its end, as [`kilnyard_process::run_watched`] does on this machine. Only those that the machine
    /// was started for find their folders.
    pub fn run(
        &mut self,
        sandbox: &Sandbox,
        output: &mut (dyn Write + Send),
        watched: Watched<'_>,
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome {
        let Watched { limits, writing, cancel, .. } = watched;
        let task = Task { sandbox: sandbox.clone(), limits, writing: writing.clone() };
        if let Err(error) = frame::send(&mut self.port, &ToGuest::Run(Box::new(task))) {
            return self.lost(&format!("takes no command: {error}"));
        }
        let began = Instant::now();
        // The guest keeps the limit; if it does not, the host does.
        let mut until =
            began + Duration::from_secs_f64(limits.wall_seconds_max.clamp(0.0, 1e9)) + ENDS_WITHIN;
        let mut is_cancelled = false;
        loop {
            match self.frames.recv_timeout(CHECKED) {
                Ok(Ok(Frame::Output(bytes))) => {
                    if let Err(error) = output.write_all(&bytes) {
                        return CommandOutcome::of(End::LogFailed(error.to_string()));
                    }
                }
                Ok(Ok(Frame::Message(ToHost::Sample(sample)))) => observe(sample),
                Ok(Ok(Frame::Message(ToHost::Ended(outcome)))) => {
                    return CommandOutcome { wall_seconds: began.elapsed().as_secs_f64(), ..*outcome };
                }
                Ok(Ok(Frame::Message(_))) => return self.lost("sent what it should not"),
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return self.lost("ended"),
                Ok(Err(error)) => return self.lost(&format!("broke the protocol: {error}")),
                Err(RecvTimeoutError::Disconnected) => return self.lost("ended"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !is_cancelled && cancel.load(Ordering::Relaxed) {
                is_cancelled = true;
                until = until.min(Instant::now() + ENDS_WITHIN);
                // A guest that is gone is noticed above.
                let _ = frame::send(&mut self.port, &ToGuest::Cancel);
            }
            if Instant::now() >= until {
                let end = match is_cancelled {
                    true => End::Cancelled,
                    false => End::Limit(Passed::Wall, Box::default()),
                };
                return CommandOutcome {
                    wall_seconds: began.elapsed().as_secs_f64(),
                    ..CommandOutcome::of(end)
                };
            }
        }
    }

    fn lost(&mut self, how: &str) -> CommandOutcome {
        // What the kernel says last may be on its way.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        let error = MachineError::Guest { how: how.to_owned(), console: text(&self.console) };
        CommandOutcome::of(End::SandboxFailed(error.to_string()))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for process in [Some(&mut self.emulator), self.share.as_mut()].into_iter().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A process that is killed on drop.
struct Ended(Child);

impl Ended {
    fn take(self) -> Child {
        // SAFETY: the value is read once, and not dropped.
        unsafe { std::ptr::read(&std::mem::ManuallyDrop::new(self).0) }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn accept(listener: &UnixListener, emulator: &mut Child, until: Instant) -> Result<UnixStream, String> {
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    loop {
        match listener.accept() {
            Ok((port, _)) => {
                port.set_nonblocking(false).map_err(|error| error.to_string())?;
                return Ok(port);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        if let Ok(Some(status)) = emulator.try_wait() {
            return Err(format!("could not be started: QEMU ended with {status}"));
        }
        if Instant::now() > until {
            return Err("could not be started in time".to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads to the end, and keeps the last bytes.
fn keep_last(mut output: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        let mut kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.extend_from_slice(&bytes[..count]);
        let more = kept.len().saturating_sub(CONSOLE_BYTES);
        kept.drain(..more);
    }
}

fn text(console: &Mutex<Vec<u8>>) -> String {
    let kept = console.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    String::from_utf8_lossy(&kept).chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

/// What the sandboxes read and write on this machine.
fn shared_by(sandboxes: &[&Sandbox]) -> io::Result<Vec<Shared>> {
    let mut paths: BTreeMap<PathBuf, bool> = BTreeMap::new();
    for sandbox in sandboxes {
        let View::Root(operations) = &sandbox.view else {
            return Err(io::Error::other("only sandboxes of roots run in virtual machines"));
        };
        let mut add = |path: &Path, is_written: bool| {
            *paths.entry(sandbox.folder.join(path)).or_default() |= is_written;
        };
        for operation in operations {
            match operation {
                Operation::Overlay { lower, upper, .. } => {
                    lower.iter().for_each(|layer| add(layer, false));
                    // With the work folder, in one mount: files are renamed from one to the other.
                    add(upper.parent().unwrap_or(upper), true);
                }
                Operation::Layers { lower, .. } => lower.iter().for_each(|layer| add(layer, false)),
                Operation::Bind { source, access, .. } => add(source, *access == Access::Write),
                Operation::StandIn { with, .. } => add(with, false),
                _ => {}
            }
        }
    }
    let shared = |(path, is_written): (PathBuf, bool)| {
        let is_folder = fs_err::metadata(&path)?.is_dir();
        Ok(Shared { path, is_folder, is_written })
    };
    paths.into_iter().map(shared).collect()
}
