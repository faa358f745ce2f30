//! Runs commands that change a base layer itself.

use super::commands::{environment_of, user_of};
use crate::capture::Bounded;
use crate::fakeroot;
use crate::machines::InMachine;
use kilnyard_fakeroot::Session;
use kilnyard_model::order::CommandOrder;
use kilnyard_model::order::MachineTerms;
use kilnyard_process::{End, Limits};
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{Flushes, IdMap, Nesting, Sandbox, View, base_operations};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The folders of a command that changes a base layer, relative to the yard.
#[derive(Clone, Copy, Debug)]
pub struct BaseFolders<'a> {
    /// The base layer, which becomes the command's root.
    pub layer: &'a Path,
    /// Holds temporary files of the sandbox.
    pub beside: &'a Path,
}

/// A command that changes a base layer itself, ready to run.
#[derive(Debug)]
pub struct BaseSandbox {
    /// Runs the command, as long as this struct lives.
    pub sandbox: Sandbox,
    /// Simulates the owners of the command's files.
    _session: Option<Session>,
}

impl BaseSandbox {
    /// Prepares a command for a base layer of a yard.
    pub fn new(
        yard: &Path,
        folders: BaseFolders<'_>,
        ids: &IdMap,
        command: &CommandOrder,
    ) -> io::Result<BaseSandbox> {
        let BaseFolders { layer, beside } = folders;
        let session = ids.has_one_id().then(|| fakeroot::begin(&yard.join(beside))).transpose()?;
        let binds: Vec<_> = session.iter().map(|_| fakeroot::shown(beside)).collect();
        let sandbox = Sandbox {
            folder: yard.to_owned(),
            ids: ids.clone(),
            keeper: None,
            view: View::Root(base_operations(layer, &binds)),
            user: user_of(command.account),
            task: Task::Program(command.arguments.clone()),
            directory: PathBuf::from(&command.directory),
            environment: environment_of(command, session.as_ref()),
            is_interactive: false,
            has_network: false,
            flushes: Flushes::Discard,
            nesting: Nesting::Refused,
        };
        Ok(BaseSandbox { sandbox, _session: session })
    }
}

/// How long a command may take in a virtual machine.
const MACHINE_SECONDS_MAX: f64 = 1800.0;

/// Runs a command in a base layer, and returns its output. See [`BaseSandbox`].
pub fn run_in_base(
    yard: &Path,
    folders: BaseFolders<'_>,
    ids: &IdMap,
    command: &CommandOrder,
    machine: Option<MachineTerms>,
) -> Result<String, RunError> {
    let base = BaseSandbox::new(yard, folders, ids, command)?;
    let Some(terms) = machine else { return base.sandbox.run() };
    let mut output = Bounded::default();
    let running = InMachine { yard, beside: folders.beside, terms };
    let outcome = running.run(
        &base.sandbox,
        &mut output,
        Limits::of_wall(MACHINE_SECONDS_MAX),
        &AtomicBool::new(false),
        &mut |_| (),
    );
    let output = String::from_utf8_lossy(&output.bytes).into_owned();
    match outcome.end {
        End::Exit(0) => Ok(output),
        end => Err(RunError::Files(io::Error::other(format!("{end:?}: {}", output.trim_end())))),
    }
}
