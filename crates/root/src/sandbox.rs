//! One command in namespaces of its own.
//!
//! Three processes stand between Kilnyard and the command:
//!
//! 1. the *outer* one, this program started again by [`Sandbox::spawn`], reads the sandbox as JSON from
//!    its standard input, starts the first one in new namespaces and in its control group, writes the map of its ids, and waits;
//! 2. the *first* one, process 1 of the new pid namespace, performs the operations, starts the command,
//!    reaps every orphan, counts what there is, ends all of it when it is told to, and at the command's end names who is
//!    left, ends that too, and leaves;
//! 3. the command.
//!
//! Standard output is the log of the command (its standard error goes there too); standard error carries
//! [`Report`]s, one JSON object a line. Standard input, behind the description, takes [`Order`]s. Each process asks the kernel to be killed when its parent dies,
//! so that killing any of them, or Kilnyard, ends all below it.

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

/// The hidden argument by which this program knows that it is to be a sandbox.
const ARGUMENT: &str = "kilnyard-sandbox-process";

/// Who runs the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum User {
    /// Root of the root: nobody outside.
    Root,
    /// An ordinary user of the root with these ids, without any privilege or a way to get one.
    Plain {
        /// The user's id inside.
        user: u32,
        /// The group's id inside.
        group: u32,
    },
}

/// What the command sees of the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// A root, made by these operations.
    Root(Vec<Operation>),
    /// The machine's own file systems, with the ids of the map: for files that roots are made of.
    Machine,
}

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// A program with its arguments.
    Program(Vec<String>),
    /// Remove these folders (relative to the yard) with all that is in them, by Kilnyard itself.
    Remove(Vec<PathBuf>),
    /// Copy layers, the uppermost first, into a folder that is there, by Kilnyard itself.
    Copy {
        /// The layers.
        lower: Vec<PathBuf>,
        /// The folder.
        target: PathBuf,
        /// Whose content its files have.
        content: Content,
    },
    /// Print what is charged for the files below these folders (relative to the yard), by Kilnyard itself: those in folders
    /// that their owner closed too.
    Measure(Vec<PathBuf>),
    /// Print a folder (relative to the yard) as an archive in the canonical form, by Kilnyard itself; see [`crate::archive`].
    Pack {
        /// The folder.
        folder: PathBuf,
        /// When its making began, in seconds since the epoch: what has a time since then gets the latest time before, so that making
        /// the same tree at another time gives the same archive.
        made_since_seconds: Option<u64>,
    },
    /// Unpack an archive into a folder that is there and empty, by Kilnyard itself. Both are relative to the yard, and the archive
    /// can be read by the root's ids.
    Unpack {
        /// The archive, compressed by zstd or not.
        archive: PathBuf,
        /// The folder.
        target: PathBuf,
    },
    /// Perform these operations and keep what they mounted until standard input ends; see [`crate::Keeper`].
    Keep(Vec<Operation>),
}

/// A sandbox and the one thing that is run in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The folder that paths of operations are relative to.
    pub folder: PathBuf,
    /// The ids.
    pub ids: IdMap,
    /// The process of a [`crate::Keeper`] whose mounts are there from the beginning.
    pub keeper: Option<u32>,
    /// What is seen.
    pub view: View,
    /// Who runs the command.
    pub user: User,
    /// What is run.
    pub task: Task,
    /// The folder where the command starts, inside.
    pub directory: PathBuf,
    /// The whole environment of the command.
    pub environment: Vec<(String, String)>,
    /// Whether the command keeps the terminal of this process, for a shell.
    pub is_interactive: bool,
    /// Whether the command uses the machine's network; else it has a loopback device of its own alone.
    pub has_network: bool,
    /// What becomes of requests of the command to bring data to the disk.
    pub flushes: Flushes,
    /// Whether the command may make namespaces of its own.
    pub nesting: Nesting,
}

/// Bounds of what all processes of a sandbox may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// How many processes and threads each of its users may have at once.
    pub processes_max: Option<u32>,
    /// How many files each of its processes may have open at once; as many as Kilnyard itself may where it is absent.
    pub open_files_max: Option<u32>,
}

/// The control groups that a sandbox is begun in, by their folders. What cannot be entered is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Of version 1: the outer process enters them.
    pub version_1: Vec<PathBuf>,
    /// Of version 2: all but the outer process are in it from their beginning. [`Report::NoGroup`] tells if they are not.
    pub version_2: Option<PathBuf>,
}

/// What is read by the program that becomes a sandbox.
#[derive(Serialize, Deserialize)]
struct Specification {
    sandbox: Sandbox,
    bounds: Bounds,
    groups: Groups,
}

/// What a sandbox can be told while its command runs, one byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End all processes: ask them to (SIGTERM), give them [`GRACE`], and kill who is left then.
    End,
    /// Kill all processes at once.
    Kill,
    /// Those who were left behind have been looked at: they can be ended.
    Looked,
}

impl Order {
    const ALL: [(Order, u8); 3] = [(Order::End, b'e'), (Order::Kill, b'k'), (Order::Looked, b'l')];

    /// The byte that says it.
    pub fn byte(self) -> u8 {
        Order::ALL.iter().find(|(order, _)| *order == self).map_or(b'k', |(_, byte)| *byte)
    }

    fn parse(byte: u8) -> Option<Order> {
        Order::ALL.iter().find(|(_, known)| *known == byte).map(|(order, _)| *order)
    }
}

/// How long processes that were asked to end have for it.
pub const GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// A process that outlived its command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Its number inside.
    pub number: i32,
    /// Its command line.
    pub line: String,
    /// The folder that it is in, seen from inside.
    pub directory: Option<String>,
    /// Who started it, and who started that one, as far as they were seen: command lines with numbers.
    pub started_by: Vec<String>,
}

/// What a sandbox says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// Process 1 was started.
    Process1 {
        /// Its number, seen from outside.
        number: u32,
    },
    /// The control group of version 2 did not take it.
    NoGroup {
        /// Why not.
        error: String,
    },
    /// The root stands and the command runs.
    Started,
    /// A sample of all processes of the sandbox.
    Sample {
        /// How many there are.
        processes: u32,
        /// How many threads they have.
        threads: u32,
        /// How many of them run, or could run if they had a core.
        runnable: u32,
        /// The sum of their resident memory; shared pages count in each.
        memory_bytes: u64,
        /// User and system time of all that lives and of all that was waited for.
        cpu_seconds: f64,
        /// How many processes and threads were begun so far.
        created: u64,
    },
    /// What the command left running, the first few; all of it is ended when [`Order::Looked`] comes, or a moment later.
    LeftBehind {
        /// The processes.
        processes: Vec<Leftover>,
        /// Numbers and command lines of the latest that ended, of those that were seen for some time.
        ended: Vec<(i32, String)>,
    },
    /// What the command left in memory that processes share, the first few; it goes with the sandbox.
    LeftInMemory {
        /// A name for each.
        things: Vec<String>,
    },
    /// System calls that the command was refused, by name, and how often.
    Refused {
        /// None is missing: the list of refused calls is short.
        calls: Vec<(String, u64)>,
    },
    /// What all processes used that have no clock: the last word of process 1.
    Used {
        /// Bytes that were read from disks; absent where the kernel does not count them.
        read_bytes: Option<u64>,
        /// Bytes that were written, or are to be written, to disks; absent as above.
        written_bytes: Option<u64>,
        /// How many processes and threads were begun.
        created: u64,
        /// How often the network that is not there was asked for, as the kernel counts it.
        unreachable: u64,
        /// User and system time of process 1 itself.
        own_seconds: f64,
    },
    /// The command ended.
    Ended {
        /// Its exit code, or 128 and the signal that killed it.
        code: i32,
        /// User time of all processes of the sandbox that were waited for.
        user_seconds: f64,
        /// Their system time.
        system_seconds: f64,
        /// The largest memory that one of them ever held.
        largest_bytes: u64,
    },
    /// The sandbox could not be made.
    Failed {
        /// What it did, reads after "failed to".
        step: String,
        /// Why not.
        error: String,
        /// The error's number (errno(3)).
        number: Option<i32>,
        /// What the step needed.
        need: Need,
    },
}

/// What a step needs of the machine that makes a sandbox, as far as there is a remedy where it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    /// New namespaces, and ids in them.
    Namespaces,
    /// An overlay.
    Overlay,
    /// A procfs of its own.
    Proc,
    /// Access to the folder of the yard.
    Folder,
    /// Anything else.
    #[default]
    Other,
}

impl Sandbox {
    /// A task of Kilnyard's own with the machine's files, as root of the root: for files that roots are made of.
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
        // What keeps something does so until its standard input ends.
        if !matches!(self.task, Task::Keep(_)) {
            drop(child.stdin.take());
        }
        Ok(child)
    }

    /// The same within bounds and in control groups, and its standard input takes [`Order`]s. `begun` is called with the number
    /// of the outer process before that one starts any other.
    pub fn spawn_within(&self, bounds: Bounds, groups: &Groups, begun: &dyn Fn(u32)) -> io::Result<Child> {
        let text = self.specification(bounds, groups)?;
        let specification = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
        let mut child = this_program()
            .args([ARGUMENT, "-", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // It does nothing before it has read what it is to be.
        begun(child.id());
        let written = child.stdin.as_mut().map(|stdin| stdin.write_all(&specification));
        if let Some(Err(error)) = written {
            // It died before it had read; what it said, if anything, is in its reports.
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

    /// Runs the sandbox on this process's own terminal and waits; the command's exit code.
    pub fn run_interactively(&self, specification_file: &std::path::Path) -> io::Result<i32> {
        fs_err::write(specification_file, self.specification(Bounds::default(), &Groups::default())?)?;
        let own = std::process::id().to_string();
        let status = this_program().arg(ARGUMENT).arg(specification_file).arg(own).status();
        fs_err::remove_file(specification_file)?;
        Ok(status?.code().unwrap_or(1))
    }

    /// Runs a task of Kilnyard's own whose output is no text and may be long: `take` reads it. At the end of the output there is an
    /// error where the task failed, so that half of it is never taken for the whole.
    pub fn run_reading<Taken>(
        &self,
        take: impl FnOnce(&mut dyn Read) -> io::Result<Taken>,
    ) -> Result<Taken, RunError> {
        let mut child = self.spawn().map_err(RunError::Spawn)?;
        let output = child.stdout.take().ok_or(RunError::Vanished)?;
        let mut output = Output { output, child, failure: None };
        let taken = take(&mut output);
        let Output { output, mut child, failure } = output;
        // It may still write, to a reader that gave up.
        drop(output);
        let ended = child.wait();
        match (failure, taken) {
            (Some(failure), _) => Err(failure),
            (None, taken) => ended.and(taken).map_err(RunError::Files),
        }
    }

    /// Runs a short task and waits for it; its output on success.
    pub fn run(&self) -> Result<String, RunError> {
        let child = self.spawn().map_err(RunError::Spawn)?;
        let output = child.wait_with_output().map_err(RunError::Spawn)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match last_word(&String::from_utf8_lossy(&output.stderr))? {
            0 => Ok(text),
            code => Err(RunError::Command { code, output: text }),
        }
    }
}

/// The output of a task, and how the task ended.
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
            self.failure = match last_word(&reports) {
                Ok(0) => None,
                Ok(code) => Some(RunError::Command { code, output: String::new() }),
                Err(error) => Some(error),
            };
        }
        match self.failure {
            Some(_) => Err(io::Error::other("the task that writes it failed")),
            None => Ok(0),
        }
    }
}

/// The exit code that the reports of a sandbox end with.
pub(crate) fn last_word(reports: &str) -> Result<i32, RunError> {
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
    // The link still leads to this very program when its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.env_clear();
    command
}

/// A short task in a sandbox, or what is done around it, did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or folder of the root could not be made or removed.
    #[error(transparent)]
    Files(#[from] io::Error),
    /// Something is missing here for roots of this kind.
    #[error(transparent)]
    Lack(#[from] crate::block::Lack),
    /// The program could not be started again.
    #[error("failed to start a sandbox")]
    Spawn(#[source] io::Error),
    /// The sandbox could not be made.
    #[error("failed to {step}: {error}")]
    Sandbox {
        /// What it did.
        step: String,
        /// Why not.
        error: String,
        /// The error's number.
        number: Option<i32>,
        /// What the step needed.
        need: Need,
    },
    /// The command failed.
    #[error("the command ended with {code}: {output}")]
    Command {
        /// Its exit code.
        code: i32,
        /// What it printed.
        output: String,
    },
    /// The sandbox was killed.
    #[error("the sandbox was killed")]
    Vanished,
}

/// Becomes a sandbox if this program was started as one; then it does not return. To be called first
/// of all in `main`, while there is one thread.
#[expect(clippy::disallowed_methods, reason = "a process of its own ends here")]
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
