//! Where the commands of a lease run.
//!
//! A [`Runner`] makes roots. A [`Root`] copies files in, runs commands, copies files out, and measures their sizes.
//! The worker decides which commands run, in which order, and handles their outcome; it knows a root only through
//! these methods.
//!
//! [`Sandboxed`](crate::sandboxed::Sandboxed) runs commands in namespaces, of this machine or of a virtual one. Another runner
//! could run them elsewhere, since no method promises that commands are processes of this machine, or that a root's files are in
//! one of its folders while commands run: a method that reads or changes them may have to end a virtual machine first.
//!
//! Invariant: after [`Root::remove`] or [`Root::keep_as_failed`], and after this program ends for any reason, no
//! process of a root runs.

use crate::Local;
use kilnyard_model::order::{BuildOrder, CommandOrder, Input, InputText, MachineTerms, RootOrder};
use kilnyard_process::weight::Membership;
use kilnyard_process::{CommandOutcome, Limits, Sample};
use kilnyard_root::sandbox::RunError;
use kilnyard_schedule::Files;
use std::fmt::Debug;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Why a root cannot be made, entered or measured.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The build was cancelled while it waited for a layer.
    #[error("it was cancelled")]
    Cancelled,
    /// An operation of the machine failed.
    #[error(transparent)]
    Machine(#[from] RunError),
}

impl From<io::Error> for RunnerError {
    fn from(error: io::Error) -> RunnerError {
        RunnerError::Machine(RunError::Files(error))
    }
}

/// A request for the root of a build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildRoot<'a> {
    /// Unique among the roots of this worker.
    pub(crate) name: &'a str,
    pub(crate) order: &'a BuildOrder,
    /// The order's layers and folders on this machine.
    pub(crate) local: &'a Local,
    /// The preferred place of its files; they are on the disk if memory has no room.
    pub(crate) files: Files,
    /// The expected size of the files that the build writes.
    pub(crate) written_bytes: u64,
    /// The path of the build's jobserver, if it has one.
    pub(crate) jobserver: Option<&'a Path>,
}

/// A request for a root that is not a build's. Its files are on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainRoot<'a> {
    /// Unique among the roots of this worker.
    pub(crate) name: &'a str,
    /// Relative to the yard, the uppermost first.
    pub(crate) layers: &'a [String],
    pub(crate) shown: Shown<'a>,
    /// A folder inside that the root's own root user may write to, and whose contents can be copied out.
    pub(crate) added: Option<&'a str>,
    /// The virtual machine for its commands; absent if they run on this machine.
    pub(crate) machine: Option<MachineTerms>,
}

/// The folders of a root in addition to its layers and inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown<'a> {
    /// Nothing.
    Nothing,
    /// Folders of its layers that are mounted read-only and without the overlay, if only one layer has them.
    Sealed(&'a [String]),
    /// All folders of an order.
    Order(&'a RootOrder, &'a Local),
}

/// A command to run, with its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running<'a> {
    pub(crate) command: &'a CommandOrder,
    /// Whether it gets the jobserver of its build, if there is one.
    pub(crate) sees_jobserver: bool,
    /// Whether it may use the network of this machine.
    pub(crate) has_network: bool,
    pub(crate) limits: Limits,
    /// Setting this kills the command.
    pub(crate) cancel: &'a AtomicBool,
    /// Gives the command the CPU weight of its build.
    pub(crate) membership: Option<&'a Membership>,
}

/// A command that a user runs in the root of a package's last failed build.
#[derive(Clone, Copy, Debug)]
pub struct Entering<'a> {
    /// The package that failed.
    pub package: &'a str,
    /// The layers and folders of its root, from [`Worker::failed_root`](crate::Worker::failed_root).
    pub order: &'a RootOrder,
    /// The layers and folders of `order` on this machine.
    pub local: &'a Local,
    /// The command.
    pub command: &'a CommandOrder,
    /// The path of a temporary file, which is removed at the end.
    pub specification: &'a Path,
    /// The virtual machine that it runs in; absent if it runs on this machine.
    pub machine: Option<MachineTerms>,
}

/// See the module documentation.
pub(crate) trait Runner: Debug + Send + Sync {
    /// Makes the root of a build. Setting `cancel` ends waiting for a layer that another build makes.
    fn build_root(&self, wanted: &BuildRoot<'_>, cancel: &AtomicBool) -> Result<Box<dyn Root>, RunnerError>;

    /// Makes a root that is not a build's.
    fn plain_root(&self, wanted: &PlainRoot<'_>) -> Result<Box<dyn Root>, RunnerError>;

    /// Whether files written in roots of this runner can become a layer. If not, the package manager installs all
    /// dependencies in each root.
    fn makes_layers(&self) -> bool;

    /// Makes a root whose written files can become a layer. Call it only if [`Runner::makes_layers`].
    fn layered_root(&self, wanted: &PlainRoot<'_>) -> Result<Box<dyn LayeredRoot>, RunnerError>;

    /// The layers and folders of the root of the package's last failed build, if it is kept.
    fn failed_root(&self, package: &str) -> io::Result<Option<RootOrder>>;

    /// Runs a command in that root, and returns its exit code.
    fn enter_failed_root(
        &self,
        entering: &Entering<'_>,
        run: &mut dyn FnMut(Command) -> io::Result<i32>,
    ) -> Result<i32, RunnerError>;
}

/// See the module documentation. Its methods are never called concurrently.
pub(crate) trait Root: Debug + Send {
    /// Adds inputs, from this machine's file store, and texts, by their names.
    fn provide(&self, inputs: &[Input], texts: &[InputText]) -> io::Result<()>;

    /// Adds a file of this machine to the texts.
    fn provide_file(&self, name: &str, file: &Path) -> io::Result<()>;

    /// Copies a file of this machine into the folder added to the root; the name may contain folders.
    fn bring_in(&self, name: &str, file: &Path) -> io::Result<()>;

    /// Makes a folder of written files readable on this machine until the root is removed, and returns its path. A
    /// symbolic link in the path is an error: it could point outside the root.
    fn bring_out(&self, inside: &str) -> io::Result<PathBuf>;

    /// Runs a command until its last process has ended. Its output goes to `output`; `observe` is called with samples
    /// of its processes in the meantime.
    fn run(
        &self,
        running: &Running<'_>,
        output: &mut (dyn Write + Send),
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome;

    /// The size of the work folder, if it exists.
    fn work_bytes(&self, inside: &str) -> Option<u64>;

    /// The size of the written files without the work folder, whose size is given.
    fn rest_bytes(&self, work_bytes: Option<u64>) -> u64;

    /// The size that counts against the build's limit on written files.
    fn charged_bytes(&self) -> Result<u64, RunnerError>;

    /// Like [`charged_bytes`](Self::charged_bytes), at little cost; `None` unless the kernel enforces the limit.
    fn bounded_bytes(&self) -> Option<u64>;

    /// Whether a failed build may have run out of memory for its files.
    fn is_exhausted(&self) -> bool;

    /// Whether the disk has room for other builds if this root is kept.
    fn has_room_for_others(&self) -> bool;

    /// Moves the records of requests to the root's block device into a folder, if there are any.
    fn keep_requests(&self, folder: &Path);

    /// Keeps the root for inspection, replacing the package's previous failed root. If that fails, removes it and
    /// returns `false`.
    fn keep_as_failed(self: Box<Self>, package: &str, order: &RootOrder) -> bool;

    /// Removes the root in the background.
    fn remove(self: Box<Self>);

    /// Removes the root, or sets it aside, before this returns, so that another root can use its name.
    fn remove_at_once(self: Box<Self>);
}

/// A root on layers of this machine, whose written files can become another layer.
pub(crate) trait LayeredRoot: Root {
    /// Replaces the layers, which are named as in [`PlainRoot`].
    fn set_layers(&mut self, layers: &[String]) -> io::Result<()>;

    /// Whether anything was written outside these folders.
    fn has_written(&self, but_below: &[&str]) -> io::Result<bool>;

    /// The folder of written files on this machine, in the form and with the ids of a layer. The caller may move it
    /// away.
    fn written(&self) -> io::Result<PathBuf>;

    /// Discards the written files.
    fn start_over(&self) -> Result<(), RunnerError>;
}
