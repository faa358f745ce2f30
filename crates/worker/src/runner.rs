//! Where the commands of a lease run.
//!
//! A [`Runner`] makes roots. A [`Root`] is one of them: what is brought into it, what runs in it, what is brought out of it, and
//! how much it holds. The worker decides what runs, in which order, and what follows from how it ended; these methods are all
//! that it knows of a root.
//!
//! [`Sandboxed`](crate::sandboxed::Sandboxed) runs commands in namespaces of this machine. A virtual machine can be another
//! runner, since no method promises a process of this machine, or a folder of it where a root's files are while commands
//! run. It would show layers and folders of this machine by virtiofs or as block devices, send commands as frames to a
//! process inside that runs them by `kilnyard_process`, pass on what they print, and unpack what is brought out into a folder
//! beside the root. A jobserver is a pipe of this machine, whose tokens are frames too; the weight of a build applies to the process of its
//! machine.
//!
//! What must hold: after [`Root::remove`] or [`Root::keep_as_failed`], and after the end of this program by whatever cause, nothing of a
//! root runs any more.

use crate::Local;
use kilnyard_model::order::{BuildOrder, CommandOrder, Input, InputText, RootOrder};
use kilnyard_process::weight::Membership;
use kilnyard_process::{Limits, Outcome, Sample};
use kilnyard_root::sandbox::RunError;
use kilnyard_schedule::Files;
use std::fmt::Debug;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Why a root cannot be made, entered or measured.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// It was cancelled while it waited.
    #[error("it was cancelled")]
    Cancelled,
    /// The machine failed.
    #[error(transparent)]
    Machine(#[from] RunError),
}

impl From<io::Error> for RunnerError {
    fn from(error: io::Error) -> RunnerError {
        RunnerError::Machine(RunError::Files(error))
    }
}

/// The root of a build, to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildRoot<'a> {
    /// Tells it from others of this worker.
    pub(crate) name: &'a str,
    pub(crate) order: &'a BuildOrder,
    /// Its layers and folders on this machine.
    pub(crate) local: &'a Local,
    /// Where its files are wanted; they are on the disk where memory has no room.
    pub(crate) files: Files,
    /// What the build is expected to write.
    pub(crate) written_bytes: u64,
    /// Where the jobserver of the build is.
    pub(crate) jobserver: Option<&'a Path>,
}

/// Another root, to be made, with its files on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainRoot<'a> {
    /// Tells it from others of this worker.
    pub(crate) name: &'a str,
    /// Its layers on this machine, the uppermost first.
    pub(crate) layers: &'a [String],
    /// What belongs to it beside its layers and inputs.
    pub(crate) shown: Shown<'a>,
    /// A folder inside that the root's own root may write in, to be brought out as a whole.
    pub(crate) added: Option<&'a str>,
}

/// What belongs to a root beside its layers and inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown<'a> {
    /// Nothing.
    Nothing,
    /// These folders of its layers are read without the overlay, where one layer alone has them.
    Sealed(&'a [String]),
    /// All that an order says.
    Order(&'a RootOrder, &'a Local),
}

/// A command to be run, and what bounds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running<'a> {
    pub(crate) command: &'a CommandOrder,
    /// Whether it sees the jobserver of its build, where there is one.
    pub(crate) sees_jobserver: bool,
    /// Whether it uses the network of this machine.
    pub(crate) has_network: bool,
    pub(crate) limits: Limits,
    /// Ends it when it is set.
    pub(crate) cancel: &'a AtomicBool,
    /// The build whose share of the cores it has.
    pub(crate) membership: Option<&'a Membership>,
}

/// A person's look into the root of a package's last failed build.
#[derive(Clone, Copy, Debug)]
pub struct Entering<'a> {
    /// Whose root it is.
    pub package: &'a str,
    /// What builds of its family begin with.
    pub order: &'a RootOrder,
    /// The same on this machine.
    pub local: &'a Local,
    /// What is run, with the terminal of this process.
    pub command: &'a CommandOrder,
    /// A file that may be written meanwhile, and is removed.
    pub specification: &'a Path,
}

/// See the module.
pub(crate) trait Runner: Debug + Send + Sync {
    /// Makes the root of a build. Waiting for what it stands on ends when it is cancelled.
    fn build_root(&self, wanted: &BuildRoot<'_>, cancel: &AtomicBool) -> Result<Box<dyn Root>, RunnerError>;

    /// Makes another root.
    fn plain_root(&self, wanted: &PlainRoot<'_>) -> Result<Box<dyn Root>, RunnerError>;

    /// Whether what is written in roots of this runner can become a layer. The package manager installs all dependencies in each
    /// root where it cannot.
    fn makes_layers(&self) -> bool;

    /// Makes a root whose written files can become a layer. To be called where this runner makes layers.
    fn layered_root(&self, wanted: &PlainRoot<'_>) -> Result<Box<dyn LayeredRoot>, RunnerError>;

    /// Whether the root of the last failed build of a package is kept.
    fn has_failed_root(&self, package: &str) -> bool;

    /// Enters that root; the exit code of the command.
    fn enter_failed_root(&self, entering: &Entering<'_>) -> Result<i32, RunnerError>;
}

/// See the module. No two of its methods are called at the same time.
pub(crate) trait Root: Debug + Send {
    /// Brings inputs in by their names, from this machine's store of distfiles, and texts.
    fn provide(&self, inputs: &[Input], texts: &[InputText]) -> io::Result<()>;

    /// Brings a file of this machine into the folder that was added to the root, under a name that may have folders.
    fn bring_in(&self, name: &str, file: &Path) -> io::Result<()>;

    /// Where the files of a folder, as they were written, can be read on this machine until the root goes. A link on the way to
    /// it is an error: it could lead out of the root.
    fn bring_out(&self, inside: &str) -> io::Result<PathBuf>;

    /// Runs a command to the end of its last process. What it prints goes into `output`; `observe` is called with samples of
    /// its processes while it runs.
    fn run(
        &self,
        running: &Running<'_>,
        output: &mut (dyn Write + Send),
        observe: &mut dyn FnMut(Sample),
    ) -> Outcome;

    /// What a folder to work in holds, if it is there.
    fn work_bytes(&self, inside: &str) -> Option<u64>;

    /// What was written apart from the folder to work in, which holds so much.
    fn rest_bytes(&self, work_bytes: Option<u64>) -> u64;

    /// What counts against the limit of what a build writes.
    fn charged_bytes(&self) -> Result<u64, RunnerError>;

    /// The same, cheaply, where writing more than that is impossible.
    fn bounded_bytes(&self) -> Option<u64>;

    /// Whether a build that failed may have failed for want of memory for its files.
    fn is_exhausted(&self) -> bool;

    /// Whether the disk has room for more while this root stays.
    fn has_room_beside_it(&self) -> bool;

    /// Moves the record of what the root's block device was asked into a folder, if there is one.
    fn keep_requests(&self, folder: &Path);

    /// Keeps the root for a person to look into, in place of the package's root that was kept before; whether it is kept. It goes
    /// if not.
    fn keep_as_failed(self: Box<Self>, package: &str) -> bool;

    /// Removes the root soon.
    fn remove(self: Box<Self>);

    /// Removes the root before this returns, so that another one can have its name. What cannot be removed is set aside.
    fn remove_at_once(self: Box<Self>);
}

/// A root on layers of this machine, whose written files can become one more.
pub(crate) trait LayeredRoot: Root {
    /// Changes the layers, which are named as in [`PlainRoot`].
    fn stand_on(&mut self, layers: &[String]) -> io::Result<()>;

    /// Whether something was written, but below these folders.
    fn has_written(&self, but_below: &[&str]) -> bool;

    /// Where what was written is on this machine, in the form of a layer and with the ids of one. It may be taken from there.
    fn written(&self) -> io::Result<PathBuf>;

    /// Forgets what was written.
    fn start_over(&self) -> Result<(), RunnerError>;
}
