//! The sandbox of a command in a root: its mounts, its user, and its permissions.

use super::RootFolder;
use crate::local::{LayeredFolder, ShownFolder};
use crate::{BUILDER_FOLDER, BUILDER_ID, fakeroot, tools};
use kilnyard_fakeroot::Session;
use kilnyard_model::order::{Account, CommandOrder};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Access, Flushes, Nesting, Operation, Sandbox, User, View};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Mount point of inputs in a root.
const INPUTS_INSIDE: &str = "/kilnyard/inputs";

/// Mount point of Kilnyard's own small files in a root.
const TEXTS_INSIDE: &str = "/kilnyard/texts";

/// Permissions of commands.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// How sync requests are handled.
    pub(super) flushes: Flushes,
    /// Whether commands may make their own namespaces.
    pub(super) nesting: Nesting,
    /// Folders inside the root that the builder may write to, if there is only one id.
    pub(super) open: Vec<String>,
}

/// Simulated file owners, if there is only one id.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    pub(super) session: Option<Arc<Session>>,
    /// Programs of the root that the session replaces.
    pub(super) fakeroots: Vec<String>,
}

/// The jobserver of a build.
#[derive(Clone, Debug)]
pub(super) struct Jobserver {
    /// Relative to the yard.
    path: PathBuf,
    /// Programs of the root that support jobservers.
    clients: Vec<String>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { flushes: Flushes::Discard, nesting: Nesting::Refused, open: Vec::new() }
    }
}

impl RootFolder {
    /// Sets whether commands of the root may make their own namespaces.
    pub fn nesting(mut self, nesting: Nesting) -> RootFolder {
        self.terms.nesting = nesting;
        self
    }

    /// Gives the build's jobserver to its build commands; `clients` are the programs of the root that support it.
    pub(crate) fn with_jobserver(mut self, path: &Path, clients: &[String]) -> RootFolder {
        let path = path.strip_prefix(&self.yard).ok().map(Path::to_owned);
        self.jobserver = path.map(|path| Jobserver { path, clients: clients.to_vec() });
        self
    }

    /// The path of the build's jobserver.
    pub(crate) fn jobserver(&self) -> Option<PathBuf> {
        Some(self.yard.join(&self.jobserver.as_ref()?.path))
    }

    /// The sandbox of a build command, which has the jobserver, if there is one.
    pub(crate) fn building_sandbox(&self, command: &CommandOrder) -> Sandbox {
        let mut sandbox = self.sandbox(command);
        if let (Some(jobserver), View::Root(operations)) = (&self.jobserver, &mut sandbox.view) {
            let Jobserver { path, clients } = jobserver;
            before_pivot(operations, tools::operations(&self.plan.root, path, clients));
            sandbox.environment.push(tools::environment());
        }
        sandbox
    }

    /// The operations that every command of this root performs before it runs.
    pub fn entering(&self) -> Vec<Operation> {
        let own = [("inputs", INPUTS_INSIDE), ("texts", TEXTS_INSIDE)];
        let mut binds: Vec<_> = own
            .map(|(name, inside)| (self.plan.folder.join(name), PathBuf::from(inside), Access::Read))
            .into();
        let shown = |folder: &ShownFolder, access| {
            (self.reached(&folder.source), PathBuf::from(&folder.inside), access)
        };
        binds.extend(self.shown.folders.iter().map(|folder| shown(folder, Access::Read)));
        if let (Some(work), Some(inside)) = (self.plan.work_folder(), &self.shown.work_inside) {
            binds.push((work.to_owned(), PathBuf::from(inside), Access::Write));
        }
        binds.extend(self.shown.writable.iter().map(|folder| shown(folder, Access::Write)));
        let layered = |folder: &LayeredFolder| {
            let inside = Path::new(&folder.inside);
            let target = self.plan.root.join(inside.strip_prefix("/").unwrap_or(inside));
            let lower = folder.layers.iter().map(|layer| self.reached(layer)).collect();
            [Operation::Folder { path: target.clone() }, Operation::Layers { lower, target }]
        };
        let layered: Vec<Operation> = self.shown.layered.iter().flat_map(layered).collect();
        if !self.ids.has_one_id() {
            let mut operations = self.plan.entering(&binds);
            before_pivot(&mut operations, layered);
            operations.extend(self.handing_over());
            return operations;
        }
        binds.push(fakeroot::shown(&self.plan.folder));
        let mut operations = self.plan.entering(&binds);
        before_pivot(&mut operations, layered);
        let more = fakeroot::operations(&self.plan.root, &self.plan.folder, &self.owners.fakeroots);
        before_pivot(&mut operations, more);
        operations
    }

    /// Hands the build folder of the layers over to a builder with its own id.
    fn handing_over(&self) -> Option<Operation> {
        let from = self.lasting.apart.as_ref()?.number;
        Some(Operation::HandOver { folder: BUILDER_FOLDER.into(), from, to: BUILDER_ID })
    }

    /// The additional, last operation of the builder's commands. If there is only one id, nothing else would keep
    /// them from writing to files of the root's own root user.
    pub fn entering_of_builder(&self) -> Option<Operation> {
        let open = self.terms.open.iter().map(PathBuf::from).collect();
        (self.ids.has_one_id() && !self.terms.open.is_empty()).then_some(Operation::Seal { open })
    }

    /// The sandbox of one command in this root.
    pub fn sandbox(&self, command: &CommandOrder) -> Sandbox {
        let own = self.entering_of_builder().filter(|_| command.account == Account::Builder);
        Sandbox {
            folder: self.yard.clone(),
            ids: self.ids.clone(),
            keeper: self.lasting.held.as_ref().map(|held| held.keeper.process()),
            view: View::Root(self.entering().into_iter().chain(own).collect()),
            user: user_of(command.account),
            task: Task::Program(command.arguments.clone()),
            directory: PathBuf::from(&command.directory),
            environment: environment_of(command, self.owners.session.as_deref()),
            is_interactive: false,
            has_network: false,
            flushes: self.terms.flushes,
            nesting: self.terms.nesting,
        }
    }
}

/// Inserts operations that use paths of the machine before the pivot, after which those paths are out of reach.
fn before_pivot(operations: &mut Vec<Operation>, more: Vec<Operation>) {
    let pivot = operations.iter().position(|operation| matches!(operation, Operation::Pivot { .. }));
    let at = pivot.unwrap_or(operations.len());
    operations.splice(at..at, more);
}

pub(super) fn user_of(account: Account) -> User {
    match account {
        Account::Root => User::Root,
        Account::Builder => User::Plain { user: BUILDER_ID, group: BUILDER_ID },
    }
}

/// The common variables, unless the command overrides them, then its own, then those of the session for root's
/// commands.
pub(super) fn environment_of(command: &CommandOrder, session: Option<&Session>) -> Vec<(String, String)> {
    let name = match command.account {
        Account::Root => "root",
        Account::Builder => "builder",
    };
    let common = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/nonexistent"),
        ("LC_ALL", "C.UTF-8"),
        ("LOGNAME", name),
        ("SHELL", "/bin/sh"),
        ("TERM", "dumb"),
        ("TZ", "UTC"),
        ("USER", name),
    ];
    let is_own = |variable: &str| command.environment.iter().any(|(own, _)| own == variable);
    let common = common.into_iter().filter(|(variable, _)| !is_own(variable));
    let session = session.filter(|_| command.account == Account::Root).map(fakeroot::environment);
    let own = common.map(|(a, b)| (a.to_owned(), b.to_owned())).chain(command.environment.clone());
    own.chain(session.into_iter().flatten()).collect()
}
