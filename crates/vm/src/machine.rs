//! A virtual machine that runs one sandbox after the other.

use crate::emulator::Descriptors;
use crate::frame::{self, Frame, Mounts, Shared, Task, ToGuest, ToHost};
use crate::users::Users;
use crate::{Accelerator, Image, Kernel, disk, emulator, initial, processor, share, users};
use kilnyard_process::{
    CommandOutcome, End, Instructions, ObservedProcess, Passed, Sample, Snapshot, Stalls, Traps, Watched,
};
use kilnyard_root::{Access, Operation, Sandbox, View};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the cancel flag and the time limit are checked.
const CHECKED: Duration = Duration::from_millis(100);
/// How long a guest may take to end a command after a request, or after its time is over.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// How much of the last output of a guest's kernel is kept.
const CONSOLE_BYTES: usize = 4 << 10;
/// Frames that wait for the host; a guest that prints more than the host takes waits.
const FRAMES_MAX: usize = 8;

/// What a machine is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The servers of shared folders and of the disk.
    servers: Vec<Child>,
    port: UnixStream,
    frames: Receiver<io::Result<Frame<ToHost>>>,
    console: Arc<Mutex<Vec<u8>>>,
    mounts: Mounts,
    shape: Shape,
    has_network: bool,
    jobserver: Option<PathBuf>,
    users: Option<Users>,
}

impl Machine {
    /// Starts a machine whose root's sandboxes name these folders. `made` has files that all machines share, `folder` is empty
    /// and for this one. An image shows layers that the sandboxes name.
    ///
    /// # Errors
    /// It does not become ready within the time.
    pub fn start(
        shape: &Shape,
        made: &Path,
        folder: &Path,
        sandboxes: &[&Sandbox],
        image: Option<&Image>,
        within: Duration,
    ) -> Result<Machine, MachineError> {
        let began = Instant::now();
        let folder = &fs_err::canonicalize(folder)?;
        let shared = shared_by(sandboxes, image.map(|image| image.at.as_path()))?;
        let has_network = sandboxes.iter().any(|sandbox| sandbox.has_network);
        let initial = fs_err::canonicalize(initial::made(&shape.kernel, made)?)?;
        let users = Users::for_sandboxes(folder, sandboxes)?;
        let space = users.as_ref().map(Users::space);
        let share = match &shared[..] {
            [] => None,
            shared => Some(share::start(folder, shared, space)?),
        };
        let disk = image.map(|image| disk::start(folder, image)).transpose()?;
        let (port, of_guest) = UnixStream::pair()?;
        port.set_write_timeout(Some(ENDS_WITHIN))?;
        let files = [fs_err::File::open(&shape.kernel.image)?, fs_err::File::open(&initial)?];
        let numbers = Descriptors {
            image: files[0].as_raw_fd(),
            initial: files[1].as_raw_fd(),
            port: of_guest.as_raw_fd(),
            share: share.as_ref().map(|(_, client)| client.as_raw_fd()),
            disk: disk.as_ref().map(|(_, client)| client.as_raw_fd()),
            has_network,
        };
        let inherited: Vec<i32> = [numbers.image, numbers.initial, numbers.port]
            .into_iter()
            .chain(numbers.share)
            .chain(numbers.disk)
            .collect();
        let mut command = emulator::command(shape, &numbers).ok_or_else(|| {
            io::Error::other(format!("{} is not installed", processor::emulator(shape.kernel.processor).0))
        })?;
        command
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let parent = getpid();
        let user = emulator::unprivileged(shape.accelerator, users.is_some());
        let prepare = move || {
            if let Some((user, group)) = user {
                if let Some(space) = space {
                    users::enter(space)?;
                }
                become_user(user, group)?;
            }
            for number in &inherited {
                // SAFETY: the descriptors are open in the parent until the child runs its program.
                fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, FdFlags::empty())?;
            }
            // After the change of the user, which takes this signal away.
            share::die_with(parent)
        };
        // SAFETY: the closure makes only system calls.
        unsafe { command.pre_exec(prepare) };
        let mut emulator = Ended(command.spawn()?);
        drop((files, of_guest));
        let servers: Vec<Ended> = [share, disk].into_iter().flatten().map(|(child, _)| child).collect();
        let console: Arc<Mutex<Vec<u8>>> = Arc::default();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            emulator.0.stdout.take().map(|output| Box::new(output) as _),
            emulator.0.stderr.take().map(|output| Box::new(output) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let console = console.clone();
            std::thread::spawn(move || keep_last(output, &console));
        }
        let (sender, frames) = sync_channel(FRAMES_MAX);
        let mut from = port.try_clone()?;
        std::thread::spawn(move || {
            loop {
                let frame = frame::read(&mut from, frame::TO_HOST_BYTES_MAX);
                let is_over = frame.is_err();
                if sender.send(frame).is_err() || is_over {
                    break;
                }
            }
        });
        let machine = Machine {
            emulator: emulator.take(),
            servers: servers.into_iter().map(Ended::take).collect(),
            port,
            frames,
            console,
            mounts: Mounts { shared, disk: image.map(|image| image.at.clone()) },
            shape: shape.clone(),
            has_network,
            jobserver: None,
            users,
        };
        machine.begin(began + within)
    }

    /// Tells the guest what to mount, and waits until it has done so.
    fn begin(mut self, until: Instant) -> Result<Machine, MachineError> {
        let mut mounts = self.mounts.clone();
        // Paths in the order of their names: a folder before what is in it.
        mounts.shared.sort();
        frame::send(&mut self.port, &ToGuest::Mount(mounts))?;
        let left = until.saturating_duration_since(Instant::now());
        let how = match self.frames.recv_timeout(left) {
            Ok(Ok(Frame::Message(ToHost::Ready))) => return Ok(self),
            Ok(Ok(Frame::Message(ToHost::Failed(why)))) => format!("cannot begin: {why}"),
            Ok(_) => "ended or sent what it should not".to_owned(),
            Err(_) => "did not boot in time".to_owned(),
        };
        Err(MachineError::Guest { how, console: text(&self.console) })
    }

    /// Has its commands share its processors by a jobserver, whose named pipe the sandboxes show.
    pub fn with_jobserver(mut self, path: Option<PathBuf>) -> Machine {
        self.jobserver = path;
        self
    }

    /// Whether a sandbox finds its folders, and the network that it is to have.
    pub fn shows(&self, sandbox: &Sandbox) -> bool {
        let covers = |wanted: &Shared| {
            let mut shown = self.mounts.shared.iter();
            shown
                .any(|shown| wanted.path.starts_with(&shown.path) && (shown.is_written || !wanted.is_written))
        };
        let wanted = shared_by(&[sandbox], self.mounts.disk.as_deref());
        sandbox.has_network == self.has_network && wanted.is_ok_and(|wanted| wanted.iter().all(covers))
    }

    /// A sandbox as the guest runs it.
    pub(crate) fn seen_by_guest(&self, sandbox: &Sandbox) -> io::Result<Sandbox> {
        self.users.as_ref().map_or_else(|| Ok(sandbox.clone()), |users| users.seen_by_guest(sandbox))
    }

    /// The port to the guest, and what comes from it.
    pub(crate) fn ends(&mut self) -> (&mut UnixStream, &Receiver<io::Result<Frame<ToHost>>>) {
        (&mut self.port, &self.frames)
    }

    /// What its kernel printed last.
    pub fn console(&self) -> String {
        text(&self.console)
    }

    /// The ids of its processes on this machine.
    pub fn processes(&self) -> Vec<u32> {
        std::iter::once(self.emulator.id()).chain(self.servers.iter().map(Child::id)).collect()
    }

    /// Runs a sandbox to its end, as [`kilnyard_process::run_watched`] does on this machine. Only those that the machine
    /// was started for find their folders. `written` is what its root has, by the measure of this machine: beyond the limit,
    /// the command ends, whatever the guest says of it.
    pub fn run(
        &mut self,
        sandbox: &Sandbox,
        output: &mut (dyn Write + Send),
        watched: Watched<'_>,
        written: &AtomicU64,
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome {
        let Watched { limits, writing, cancel, .. } = watched;
        let sandbox = match self.seen_by_guest(sandbox) {
            Ok(sandbox) => sandbox,
            Err(error) => return CommandOutcome::of(End::SandboxFailed(error.to_string())),
        };
        let task = Task { sandbox, limits, writing: writing.clone(), jobserver: self.jobserver.clone() };
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
                Ok(Ok(Frame::Message(ToHost::Sample(sample)))) => observe(Sample {
                    memory_bytes: sample.memory_bytes.min(self.shape.memory_bytes),
                    ..sample
                }),
                Ok(Ok(Frame::Message(ToHost::Ended(outcome)))) => {
                    return cleaned(*outcome, began.elapsed().as_secs_f64(), &self.shape);
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
            let bytes = written.load(Ordering::Relaxed);
            if limits.written_bytes_max.is_some_and(|max| bytes > max) {
                let end = End::Limit(Passed::Written { bytes }, Box::default());
                return CommandOutcome {
                    wall_seconds: began.elapsed().as_secs_f64(),
                    ..CommandOutcome::of(end)
                };
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
        CommandOutcome { is_in_machine: true, ..CommandOutcome::of(End::SandboxFailed(error.to_string())) }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for process in std::iter::once(&mut self.emulator).chain(&mut self.servers) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The most entries of a list, and the most characters of a text, that a guest may say of a command.
const ENTRIES_MAX: usize = 100;
const TEXT_MAX: usize = 1000;

/// The highest number of processes that a guest may say.
const NUMBER_MAX: usize = 1 << 22;

/// What a guest says of a command, as far as it can be: it may have been taken over.
fn cleaned(outcome: CommandOutcome, wall_seconds: f64, shape: &Shape) -> CommandOutcome {
    let seconds_max = wall_seconds * f64::from(shape.cores) + 1.0;
    let seconds = |value: f64| if value.is_finite() { value.clamp(0.0, seconds_max) } else { 0.0 };
    let text = |text: String| text.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect::<String>();
    let texts = |all: Vec<String>| all.into_iter().take(ENTRIES_MAX).map(text).collect::<Vec<_>>();
    let count = |value: usize| value.min(ENTRIES_MAX);
    let number = |value: u64| value.min(u64::from(u32::MAX));
    let bytes = |value: u64| value.min(1 << 50);
    let (stalls, instructions) = (outcome.stalls, outcome.traps.instructions);
    let end = match outcome.end {
        // 128 and the number of a signal, at most.
        End::Exit(code) => End::Exit(code.clamp(0, 255)),
        End::Limit(passed, mut snapshot) => {
            let process = |process: ObservedProcess| ObservedProcess {
                number: process.number,
                depth: count(process.depth),
                line: text(process.line),
                state: text(process.state),
                is_parent: process.is_parent,
                children: count(process.children),
                children_ended: count(process.children_ended),
                parent: process.parent,
                age_seconds: seconds(process.age_seconds),
                cpu_seconds: seconds(process.cpu_seconds),
                threads: process.threads,
                waits: process.waits.map(text),
                channel: process.channel.map(text),
                stack: texts(process.stack),
                files: texts(process.files),
            };
            *snapshot = Snapshot {
                processes: snapshot.processes.into_iter().take(ENTRIES_MAX).map(process).collect(),
                processes_more: snapshot.processes_more.min(NUMBER_MAX),
                output: texts(snapshot.output),
            };
            End::Limit(passed, snapshot)
        }
        End::Cancelled => End::Cancelled,
        End::LogFailed(error) => {
            End::SandboxFailed(format!("the guest failed to send output: {}", text(error)))
        }
        End::SandboxFailed(error) => End::SandboxFailed(text(error)),
    };
    CommandOutcome {
        end,
        wall_seconds,
        cpu_seconds: seconds(outcome.cpu_seconds),
        user_seconds: seconds(outcome.user_seconds),
        system_seconds: seconds(outcome.system_seconds),
        memory_peak_bytes: outcome.memory_peak_bytes.min(shape.memory_bytes),
        read_bytes: outcome.read_bytes.map(bytes),
        written_bytes: outcome.written_bytes.map(bytes),
        created: number(outcome.created),
        unreachable: number(outcome.unreachable),
        keeper_seconds: seconds(outcome.keeper_seconds),
        stalls: Stalls {
            cpu_seconds: stalls.cpu_seconds.map(seconds),
            memory_seconds: stalls.memory_seconds.map(seconds),
            io_seconds: stalls.io_seconds.map(seconds),
            is_of_machine: stalls.is_of_machine,
        },
        still_seconds_max: seconds(outcome.still_seconds_max),
        silent_seconds_max: seconds(outcome.silent_seconds_max),
        left_behind: texts(outcome.left_behind),
        left_in_memory: texts(outcome.left_in_memory),
        refused_calls: outcome
            .refused_calls
            .into_iter()
            .take(ENTRIES_MAX)
            .map(|(name, count)| (text(name), number(count)))
            .collect(),
        traps: Traps {
            emulated: number(outcome.traps.emulated),
            unaligned: number(outcome.traps.unaligned),
            instructions: Instructions {
                barriers: number(instructions.barriers),
                setends: number(instructions.setends),
                swaps: number(instructions.swaps),
            },
        },
        is_in_machine: true,
    }
}

/// Changes all ids of a new process. It makes only system calls.
fn become_user(user: u32, group: u32) -> io::Result<()> {
    let (user, group) = (rustix::process::Uid::from_raw(user), rustix::process::Gid::from_raw(group));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// A process that is killed on drop.
pub(crate) struct Ended(pub(crate) Child);

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

/// What the sandboxes read and write on this machine, without what the guest has on its disk, which is mounted at this path.
fn shared_by(sandboxes: &[&Sandbox], disk: Option<&Path>) -> io::Result<Vec<Shared>> {
    let mut paths: BTreeMap<PathBuf, bool> = BTreeMap::new();
    for sandbox in sandboxes {
        let View::Root(operations) = &sandbox.view else {
            return Err(io::Error::other("only sandboxes of roots run in virtual machines"));
        };
        let mut add = |path: &Path, is_written: bool| {
            let path = sandbox.folder.join(path);
            if disk.is_none_or(|disk| !path.starts_with(disk)) {
                *paths.entry(path).or_default() |= is_written;
            }
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
    outermost(paths).into_iter().map(shared).collect()
}

/// Leaves out what another folder shows already: with a mount below it, that folder could not be mounted alone by a sandbox in the
/// guest (mount_namespaces(7), restrictions on mount namespaces). The value says whether a path is written.
fn outermost(paths: BTreeMap<PathBuf, bool>) -> Vec<(PathBuf, bool)> {
    let mut kept: Vec<(PathBuf, bool)> = Vec::new();
    // A folder precedes what is below it.
    for (path, is_written) in paths {
        let shows = |(outer, is_outer_written): &(PathBuf, bool)| {
            path.starts_with(outer) && (*is_outer_written || !is_written)
        };
        if !kept.iter().any(shows) {
            kept.push((path, is_written));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest that was taken over sends what is hardest to show.
    #[test]
    fn a_portrait_of_a_hostile_guest_can_be_shown() {
        let kernel = Kernel {
            image: PathBuf::new(),
            modules: Vec::new(),
            package: String::new(),
            digest: String::new(),
            processor: kilnyard_model::order::Processor::X86_64,
        };
        let shape = Shape { kernel, accelerator: Accelerator::Emulation, cores: 1, memory_bytes: 1 << 20 };
        let process = |number, parent, age_seconds| ObservedProcess {
            number,
            parent,
            age_seconds,
            depth: usize::MAX,
            children: usize::MAX,
            waits: Some("x\u{1b}".repeat(1 << 16)),
            channel: Some("y".repeat(1 << 16)),
            stack: vec!["z".repeat(1 << 16); 1 << 10],
            files: vec![String::new(); 1 << 10],
            ..ObservedProcess::default()
        };
        // Each is the parent of the other, and younger than a third one.
        let snapshot = Snapshot {
            processes: vec![process(1, 2, 0.0), process(2, 1, 0.0), process(3, 3, 1e300)],
            processes_more: usize::MAX,
            output: vec!["\n".to_owned(); 1 << 16],
        };
        let outcome = CommandOutcome::of(End::Limit(Passed::Silent, Box::new(snapshot)));
        let End::Limit(passed, snapshot) = cleaned(outcome, 1.0, &shape).end else { panic!("another end") };
        assert!(snapshot.summary(passed).len() < 100_000);
        let bytes: usize = snapshot.lines().iter().map(String::len).sum();
        assert!(bytes < 1 << 20, "{bytes}");
    }

    #[test]
    fn what_a_folder_shows_is_not_shared_again() {
        let paths = [
            ("/y/tools", false),
            ("/y/tools/script/make", false),
            ("/y/tools/pipe", true),
            ("/y/tools2", false),
            ("/y/roots/1", true),
            ("/y/roots/1/inputs", false),
        ];
        let paths = paths.map(|(path, is_written)| (PathBuf::from(path), is_written));
        let kept = outermost(paths.into());
        let kept: Vec<(&str, bool)> =
            kept.iter().map(|(path, is_written)| (path.to_str().unwrap(), *is_written)).collect();
        let expected =
            [("/y/roots/1", true), ("/y/tools", false), ("/y/tools/pipe", true), ("/y/tools2", false)];
        assert_eq!(kept, expected);
    }
}
