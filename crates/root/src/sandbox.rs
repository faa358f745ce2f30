//! Runs one command in its own namespaces.
//!
//! A sandbox consists of three processes below Kilnyard:
//!
//! 1. The *outer* process is this program started again by [`Sandbox::spawn`]. It reads the description of the sandbox
//!    as JSON from its standard input, starts process 1 in new namespaces and in its control group, writes its id maps,
//!    and waits.
//! 2. *Process 1* of the new pid namespace performs the operations, starts the command, reaps orphans, counts
//!    processes, and ends all of them on an order. When the command ends, it reports and ends the processes that are
//!    left, and exits.
//! 3. The command.
//!
//! Standard output is the log of the command, including its standard error. Standard error carries [`Report`]s, one
//! JSON object a line. Standard input carries the description, then [`Order`]s. Each process asks the kernel to be
//! killed when its parent dies, so that killing any of them, or Kilnyard, ends all processes below it.

mod census;
mod confine;
mod copy;
mod execute;
mod filter;
mod flushes;
mod inherit;
mod inner;
mod keep;
mod network;
mod outer;
mod overlay;
mod reaper;
mod refusals;
mod refused;
pub(crate) mod system;

pub use inherit::close_descriptors;
pub use outer::enter_users;
pub use refusals::Nesting;

use crate::{Content, Flushes, IdMap, Operation};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The hidden argument that starts this program as a sandbox.
const ARGUMENT: &str = "kilnyard-sandbox-process";

/// The user that the command runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum User {
    /// Root inside the root, without privileges outside.
    Root,
    /// An ordinary user of the root with these ids, without any privilege or a way to gain one.
    Plain {
        /// The user's id inside.
        user: u32,
        /// The group's id inside.
        group: u32,
    },
}

/// The file systems that the command sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// A root, made by these operations.
    Root(Vec<Operation>),
    /// The machine's file systems, under the id map: for work on files of roots.
    Machine,
}

/// The task of a sandbox. All but [`Task::Program`] are performed by Kilnyard itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// A program with its arguments. The program is looked up by the `PATH` of `environment`.
    Program(Vec<String>),
    /// Empty these folders (relative to the yard).
    Remove(Vec<PathBuf>),
    /// Copy layers into an existing folder.
    Copy {
        /// The layers, uppermost first.
        lower: Vec<PathBuf>,
        /// The folder to copy to.
        target: PathBuf,
        /// Whether to copy or to hard-link files.
        content: Content,
    },
    /// Print the charged size of the content of these folders (relative to the yard), including folders whose mode
    /// denies access to their owner.
    Measure(Vec<PathBuf>),
    /// Write a folder (relative to the yard) to standard output as an archive in the canonical form; see
    /// [`crate::archive`].
    Pack {
        /// No process may write to it at the same time.
        folder: PathBuf,
        /// When the making of the tree began, in seconds since the epoch. A later time in the tree is replaced by the
        /// latest earlier one, so that making the same tree at another time gives the same archive.
        made_since_seconds: Option<u64>,
    },
    /// Unpack an archive into an existing empty folder. Both are relative to the yard; the root's ids must be able to
    /// read the archive.
    Unpack {
        /// The archive, compressed by zstd or not.
        archive: PathBuf,
        /// The folder to unpack to.
        target: PathBuf,
    },
    /// Perform these operations and keep their mounts until standard input ends; see [`crate::Keeper`].
    Keep(Vec<Operation>),
}

/// The description of a sandbox and its single task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The folder that paths of operations are relative to.
    pub folder: PathBuf,
    /// The id map of the user namespace.
    pub ids: IdMap,
    /// The process of a [`crate::Keeper`] whose mounts the sandbox begins with.
    pub keeper: Option<u32>,
    /// The file systems that the command sees.
    pub view: View,
    /// The user that the command runs as.
    pub user: User,
    /// The program or other task to run.
    pub task: Task,
    /// The working directory of the command, as a path inside the root.
    pub directory: PathBuf,
    /// The complete environment of the command.
    pub environment: Vec<(String, String)>,
    /// Whether the command keeps the terminal of this process, for a shell.
    pub is_interactive: bool,
    /// Whether the command uses the machine's network; otherwise it has only its own loopback device.
    pub has_network: bool,
    /// Whether requests to flush reach the disk.
    pub flushes: Flushes,
    /// Whether the command may create namespaces.
    pub nesting: Nesting,
}

/// Resource limits for the processes of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Maximum processes and threads for each of its users at once.
    pub processes_max: Option<u32>,
    /// Maximum open files for each of its processes; if absent, Kilnyard's own limit.
    pub open_files_max: Option<u32>,
}

/// The control groups that a sandbox starts in, by their folders. A group that cannot be entered is skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Of version 1: the outer process enters them.
    pub version_1: Vec<PathBuf>,
    /// Of version 2: all but the outer process are created in it. [`Report::NoGroup`] reports if that fails.
    pub version_2: Option<PathBuf>,
}

/// The description that the outer process reads.
#[derive(Serialize, Deserialize)]
struct Specification {
    sandbox: Sandbox,
    bounds: Bounds,
    groups: Groups,
}

/// An order to a sandbox while its command runs, one byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End all processes: send SIGTERM, wait [`GRACE`], and kill those that are left.
    End,
    /// Kill all processes immediately.
    Kill,
    /// The leftover processes have been inspected: they can be ended.
    Inspected,
}

impl Order {
    const ALL: [(Order, u8); 3] = [(Order::End, b'e'), (Order::Kill, b'k'), (Order::Inspected, b'l')];

    /// The byte that encodes the order.
    pub fn byte(self) -> u8 {
        Order::ALL.iter().find(|(order, _)| *order == self).map_or(b'k', |(_, byte)| *byte)
    }

    fn parse(byte: u8) -> Option<Order> {
        Order::ALL.iter().find(|(_, known)| *known == byte).map(|(order, _)| *order)
    }
}

/// Time between SIGTERM and SIGKILL.
pub const GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// A process that outlived its command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Its process id inside.
    pub number: i32,
    /// Its command line with blanks between the arguments, shortened.
    pub line: String,
    /// Its working directory, as a path inside; absent if it could not be read.
    pub directory: Option<String>,
    /// The command lines of its parent and further ancestors, nearest first, with process ids, as far as they were
    /// observed.
    pub started_by: Vec<String>,
}

/// A report of a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// Process 1 was started.
    Process1 {
        /// Its process id outside.
        number: u32,
    },
    /// The process could not be created in the control group of version 2.
    NoGroup {
        /// The text of the kernel's error.
        error: String,
    },
    /// The root is complete and the command runs.
    Started,
    /// A sample of all processes of the sandbox.
    Sample {
        /// The number of processes, without process 1.
        processes: u32,
        /// The number of their threads.
        threads: u32,
        /// The number of processes that run, or could run if they had a core.
        runnable: u32,
        /// The sum of their resident memory; a shared page counts once for each process.
        memory_bytes: u64,
        /// User and system time of all live processes and of all that were waited for.
        cpu_seconds: f64,
        /// Processes and threads created so far.
        created: u64,
    },
    /// Processes that the command left running, the first few. All are ended on [`Order::Inspected`], or a moment
    /// later.
    LeftBehind {
        /// The first few processes.
        processes: Vec<Leftover>,
        /// Process ids and command lines of the processes that ended last, of those that lived long enough to be seen
        /// twice.
        ended: Vec<(i32, String)>,
    },
    /// Objects that the command left in shared memory, the first few. They go with the sandbox.
    LeftInMemory {
        /// A description of each object.
        things: Vec<String>,
    },
    /// Refused system calls of the command.
    Refused {
        /// Names and counts; complete, since the list of refused calls is short.
        calls: Vec<(String, u64)>,
    },
    /// Total resource usage of all processes, other than CPU time. This is the last report of process 1.
    Used {
        /// Bytes read from disks; absent if the kernel does not count them.
        read_bytes: Option<u64>,
        /// Bytes written to disks, or queued for writing; absent if the kernel does not count them.
        written_bytes: Option<u64>,
        /// Processes and threads created.
        created: u64,
        /// Attempts to use a network that the sandbox does not have, as counted by the kernel.
        unreachable: u64,
        /// User and system time of process 1 itself.
        own_seconds: f64,
    },
    /// The command ended.
    Ended {
        /// Its exit code, or 128 plus the number of the signal that killed it.
        code: i32,
        /// User time of all processes of the sandbox that were waited for.
        user_seconds: f64,
        /// Their system time.
        system_seconds: f64,
        /// The largest resident memory that one process ever had.
        largest_bytes: u64,
    },
    /// The sandbox could not be made.
    Failed {
        /// The failed step; reads after "failed to".
        step: String,
        /// The text of the system's error.
        error: String,
        /// The error number (errno(3)).
        number: Option<i32>,
        /// The requirement of the step.
        need: Need,
    },
}

/// A requirement of a step, if there is a remedy for a machine that does not meet it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    /// New namespaces, with mapped ids.
    Namespaces,
    /// An overlay mount.
    Overlay,
    /// A procfs mount.
    Proc,
    /// Access to the folder of the yard.
    Folder,
    /// Any other requirement.
    #[default]
    Other,
}

impl Sandbox {
    /// A sandbox for one of Kilnyard's own tasks, as root inside and on the machine's file systems: for work on files
    /// of roots.
    pub fn of_machine(folder: &std::path::Path, ids: &IdMap, task: Task) -> Sandbox {
        Sandbox {
            folder: folder.to_owned(),
            ids: ids.clone(),
            keeper: None,
            view: View::Machine,
            user: User::Root,
            task,
            directory: ".".into(),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            is_interactive: false,
            has_network: true,
            flushes: Flushes::Discard,
            nesting: Nesting::Refused,
        }
    }

    /// Starts the sandbox: its standard output is the command's log, its standard error the reports.
    pub fn spawn(&self) -> io::Result<Child> {
        let mut child = self.spawn_within(Bounds::default(), &Groups::default(), &|_| {})?;
        // A keeper runs until its standard input ends.
        if !matches!(self.task, Task::Keep(_)) {
            drop(child.stdin.take());
        }
        Ok(child)
    }

    /// Starts the sandbox with resource limits and in control groups; its standard input takes [`Order`]s. `begun` is
    /// called with the id of the outer process before that starts any other process.
    pub fn spawn_within(&self, bounds: Bounds, groups: &Groups, begun: &dyn Fn(u32)) -> io::Result<Child> {
        let text = self.specification(bounds, groups)?;
        let specification = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
        let mut child = this_program()
            .args([ARGUMENT, "-", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // The child does nothing before it has read its description.
        begun(child.id());
        let written = child.stdin.as_mut().map(|stdin| stdin.write_all(&specification));
        if let Some(Err(error)) = written {
            // On a broken pipe the child died before it read everything; its reports say why.
            if error.kind() != io::ErrorKind::BrokenPipe {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        }
        Ok(child)
    }

    fn specification(&self, bounds: Bounds, groups: &Groups) -> io::Result<Vec<u8>> {
        let specification = Specification { sandbox: self.clone(), bounds, groups: groups.clone() };
        serde_json::to_vec(&specification).map_err(io::Error::other)
    }

    /// Runs the sandbox on a terminal: `run` starts the command, with standard input and output of its choice, and waits
    /// for it. Returns the exit code that `run` returns.
    pub fn run_interactively(
        &self,
        specification_file: &std::path::Path,
        run: impl FnOnce(Command) -> io::Result<i32>,
    ) -> io::Result<i32> {
        fs_err::write(specification_file, self.specification(Bounds::default(), &Groups::default())?)?;
        let mut command = this_program();
        command.arg(ARGUMENT).arg(specification_file).arg(std::process::id().to_string());
        let ended = run(command);
        fs_err::remove_file(specification_file)?;
        ended
    }

    /// Runs one of Kilnyard's own tasks whose output is binary and may be long; `take` reads it. If the task failed,
    /// the output ends with an error, so that a truncated output is never taken for a complete one.
    pub fn run_reading<Taken>(
        &self,
        take: impl FnOnce(&mut dyn Read) -> io::Result<Taken>,
    ) -> Result<Taken, RunError> {
        let mut child = self.spawn().map_err(RunError::Spawn)?;
        let output = child.stdout.take().ok_or(RunError::Vanished)?;
        let mut output = Output { output, child, failure: None };
        let taken = take(&mut output);
        let Output { output, mut child, failure } = output;
        // The child may still be writing, if `take` gave up early.
        drop(output);
        let ended = child.wait();
        match (failure, taken) {
            (Some(failure), _) => Err(failure),
            (None, taken) => ended.and(taken).map_err(RunError::Files),
        }
    }

    /// Runs a short task and waits for it. Returns its output on success.
    pub fn run(&self) -> Result<String, RunError> {
        let child = self.spawn().map_err(RunError::Spawn)?;
        let output = child.wait_with_output().map_err(RunError::Spawn)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match final_report(&String::from_utf8_lossy(&output.stderr))? {
            0 => Ok(text),
            code => Err(RunError::Command { code, output: text }),
        }
    }
}

/// The output of a task; reading to its end records a failure of the task.
struct Output {
    output: ChildStdout,
    child: Child,
    failure: Option<RunError>,
}

impl Read for Output {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.output.read(bytes)?;
        if count > 0 || bytes.is_empty() {
            return Ok(count);
        }
        // A few lines, which fit into the pipe.
        let mut reports = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut reports)?;
            self.failure = match final_report(&reports) {
                Ok(0) => None,
                Ok(code) => Some(RunError::Command { code, output: String::new() }),
                Err(error) => Some(error),
            };
        }
        match self.failure {
            Some(_) => Err(io::Error::other("the task that writes the output failed")),
            None => Ok(0),
        }
    }
}

/// The exit code of the command, or the failure, from the reports of a sandbox.
pub(crate) fn final_report(reports: &str) -> Result<i32, RunError> {
    let mut code = None;
    for line in reports.lines() {
        match serde_json::from_str(line) {
            Ok(Report::Failed { step, error, number, need }) => {
                return Err(RunError::Sandbox { step, error, number, need });
            }
            Ok(Report::Ended { code: ended, .. }) => code = Some(ended),
            _ => {}
        }
    }
    code.ok_or(RunError::Vanished)
}

fn this_program() -> Command {
    // The link still leads to this program if its file was replaced in the meantime.
    let mut command = Command::new("/proc/self/exe");
    command.env_clear();
    command
}

/// Failure of a short task in a sandbox, or of the work around it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or folder of the root could not be made or removed.
    #[error(transparent)]
    Files(#[from] io::Error),
    /// The machine does not meet a requirement of block devices.
    #[error(transparent)]
    Lack(#[from] crate::block::MissingRequirement),
    /// The program could not start itself again.
    #[error("failed to start a sandbox")]
    Spawn(#[source] io::Error),
    /// The sandbox could not be made.
    #[error("failed to {step}: {error}")]
    Sandbox {
        /// The failed step; reads after "failed to".
        step: String,
        /// The text of the system's error.
        error: String,
        /// The error number (errno(3)).
        number: Option<i32>,
        /// The requirement of the step.
        need: Need,
    },
    /// The command failed.
    #[error("the command ended with {code}: {output}")]
    Command {
        /// Its exit code, or 128 plus the number of the signal that killed it.
        code: i32,
        /// Its standard output, for the message.
        output: String,
    },
    /// The sandbox was killed.
    #[error("the sandbox was killed")]
    Vanished,
}

/// Becomes a sandbox if this program was started as one; in that case it does not return. Call it first in `main`,
/// while the process has one thread.
#[expect(clippy::disallowed_methods, reason = "the sandbox process exits here")]
pub fn become_sandbox_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == ARGUMENT) {
        if let Err(error) = close_descriptors() {
            eprintln!("failed to close inherited descriptors: {error}");
            std::process::exit(125);
        }
        let source = arguments.next().unwrap_or_default();
        let parent = arguments.next().and_then(|number| number.to_str()?.parse().ok()).unwrap_or(0);
        std::process::exit(outer::run(&source, parent));
    }
}
