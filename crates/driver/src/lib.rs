//! Drives a coordinator so that no event waits for slow work: a commit, the solver, a full disk.
//!
//! ```text
//!                 Input                                  Task
//! workers, time --------->                 Commit ----------------> recorder (a thread: the store)
//! recorder      ---------> Driver::apply   Prepare ---------------> preparer (a thread: the solver)
//! preparer      --------->                 Perform, NoRoom -------> the caller
//! ```
//!
//! [`Driver::apply`] is pure, like the coordinator it contains: it takes an input and appends tasks. An event is
//! applied immediately, whatever is in progress. Its actions wait until the store has its records. One commit is in
//! progress at a time; the decisions made during it are the next one. Actions are performed in the order of the
//! decisions, with one exception: the cancellation of a build that was handed out is performed immediately, since it
//! needs no record. After a crash before the record, the worst case is that the package is built again.
//!
//! A lease begins when its build is handed out: a grant does not expire while it waits for its commit.
//!
//! One package is prepared at a time: the ready one that will be built first. The first build of a large tree does not
//! wait until thousands of packages are prepared.
//!
//! A commit that fails because the disk is full is repeated until there is space. After any other temporary failure,
//! decisions that were not written are dropped, and the state is read from the store again, as after a crash: workers
//! are asked to say hello again, continue the builds that the state has, and cancel all others. If the store can no longer be
//! written, the run ends.
//!
//! [`record`] is the recorder's loop around a [`Ledger`]. The preparer and the view belong to the caller, which knows
//! families and views.
//!
//! Invariant: nothing but a cancellation is performed before its records are in the store. Known downside: a slow store
//! delays each action by up to two commits.

mod apply;
mod recorder;
#[cfg(test)]
mod tests;

pub use recorder::{Job, Ledger, record};

use kilnyard_coordinator::{Action, Coordinator, Event, KeptOutputs, Prepared, Reading, Reloaded, Standing};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::Output;
use kilnyard_schedule::Scheduler;
use kilnyard_store::{Number, Record, Request};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The number of records after which no further decision joins a transaction, so that the first one is not delayed.
pub const RECORDS_MAX: usize = 500;
/// How long a commit waits for space on a full disk, in seconds.
pub const ROOM_PATIENCE_SECONDS: f64 = 120.0;
/// The pause before a failed commit is repeated, in seconds.
pub const ROOM_PAUSE_SECONDS: f64 = 1.0;
/// A disk that is full again within this time, in seconds, is not reported again.
pub const ROOM_LASTING_SECONDS_MIN: f64 = 60.0;
/// The maximum number of consecutive reloads without a commit.
pub const RELOADS_MAX: u32 = 3;

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// An event for the coordinator, other than [`Event::Prepared`], which comes as [`Input::Prepared`].
    Event(Event),
    /// The answer to the last [`Task::Prepare`].
    Prepared {
        /// The package.
        package: PackageId,
        /// The result.
        prepared: Prepared,
    },
    /// The store has all records of the last [`Task::Commit`].
    Committed,
    /// The store has none of them.
    NotCommitted(Refusal),
    /// The answer to [`Task::Reload`].
    Loaded(Box<Loaded>),
}

/// Why a commit failed, as far as the next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The disk is full.
    NoRoom,
    /// Something temporary, such as another process that holds a lock.
    ForNow,
    /// The store can no longer be written.
    ForGood,
}

/// The state of a run in the store.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the coordinator needs.
    pub run: Reloaded,
    /// The existing outputs.
    pub outputs: Vec<(PackageId, Vec<Output>)>,
    /// The epoch in which this process leads from now on.
    pub epoch: Number,
}

/// A package to prepare.
#[derive(Clone, Debug, PartialEq)]
pub struct ToPrepare {
    /// The package.
    pub package: PackageId,
    /// Which recipe to read.
    pub reading: Reading,
    /// The packages that it has waited for, in ascending order.
    pub waited_for: Vec<PackageId>,
    /// Its outputs, if there are any.
    pub kept: Option<KeptOutputs>,
}

/// Something to do. Tasks are done in the order in which they were appended.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Write these records in one transaction. The answer is [`Input::Committed`] or [`Input::NotCommitted`].
    Commit(Arc<[Record]>),
    /// Work out whether and how a package is built. The answer is [`Input::Prepared`].
    Prepare(ToPrepare),
    /// Perform an action, which is never [`Action::Record`] or [`Action::Prepare`].
    Perform(Action),
    /// Report that the disk is full and that the run waits for space.
    NoRoom,
    /// Report that a commit failed and that the state is read again.
    Reloading,
    /// Read the state of the run from the store. The answer is [`Input::Loaded`].
    Reload,
    /// End the run with the store's last error.
    GiveUp,
}

/// The actions of one event, until they can be performed.
#[derive(Debug)]
struct Decision {
    actions: Vec<Action>,
    /// The request, if the event was one.
    request: Option<Request>,
}

/// A commit in progress.
#[derive(Debug)]
struct Commit {
    records: Arc<[Record]>,
    /// The number of decisions in it: the first ones of the queue.
    decisions: usize,
    /// When it first failed because the disk was full.
    refused_seconds: Option<f64>,
    /// When it is repeated; none while the recorder has it.
    again_seconds: Option<f64>,
}

/// Whether events are applied.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Going,
    /// A commit failed, and the store is being read.
    Loading,
    Over,
}

/// The package that is being prepared.
#[derive(Debug)]
struct Preparing {
    package: PackageId,
    /// The answer will be dropped, since the package has to be prepared again.
    is_stale: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Driver {
    coordinator: Coordinator,
    /// A fresh one, for use after a reload.
    scheduler: Scheduler,
    phase: Phase,
    decisions: VecDeque<Decision>,
    commit: Option<Commit>,
    /// Ready packages that are not prepared yet.
    to_prepare: BTreeMap<PackageId, Reading>,
    preparing: Option<Preparing>,
    /// Builds that were handed out and have not ended.
    granted: BTreeMap<Number, Attempt>,
    /// When the disk was last full.
    no_room_seconds: Option<f64>,
    reloads: u32,
    /// Requests that arrived after a commit failed, or were part of it.
    requests: Vec<Request>,
    /// What is known of workers, if that changed after a commit failed.
    standings: Option<BTreeMap<String, Standing>>,
    is_stopping: bool,
}

impl Driver {
    /// Drives a fresh coordinator. `scheduler` is a copy of its scheduler.
    pub fn new(coordinator: Coordinator, scheduler: Scheduler) -> Driver {
        Driver {
            coordinator,
            scheduler,
            phase: Phase::Going,
            decisions: VecDeque::new(),
            commit: None,
            to_prepare: BTreeMap::new(),
            preparing: None,
            granted: BTreeMap::new(),
            no_room_seconds: None,
            reloads: 0,
            requests: Vec::new(),
            standings: None,
            is_stopping: false,
        }
    }

    /// The state of the run. It is ahead of the store by the decisions that are being written.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }
}
