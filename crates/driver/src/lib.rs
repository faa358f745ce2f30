//! Drives a coordinator, so that no event waits for what takes long: a commit, a solver, a disk without room.
//!
//! ```text
//!                 Input                                  Task
//! workers, time --------->                 Commit ----------------> recorder (a thread: the store)
//! recorder      ---------> Driver::apply   Prepare ---------------> preparer (a thread: the solver)
//! preparer      --------->                 Perform, NoRoom -------> the caller
//! ```
//!
//! [`Driver::apply`] is pure, as the coordinator within it: it takes what happened and appends what is to be done. An event
//! is applied at once, whatever is under way. The actions that follow from it wait until the store has their records. One
//! commit is under way at a time; all decisions that were made meanwhile are the next one. Actions are performed in the
//! order in which they were decided, with one exception: a build that was handed out is cancelled at once, since that needs no
//! record. A crash before the record at worst builds a package again.
//!
//! A lease begins when its build is handed out: a grant that waits for its commit does not lapse.
//!
//! One package is prepared at a time, always the one that is to be built before all other ready ones, so that the first
//! build of a large tree does not wait for thousands of packages.
//!
//! A commit that fails for want of room is tried again until there is room. After any other failure that may pass, what was
//! decided and not written is forgotten, and the state is read from the store again, as after a crash: workers are asked to say
//! hello again, and cancel the builds that the state does not have. Where the store cannot be written any more, the run ends.
//!
//! [`record`] is the recorder's loop around a [`Ledger`]. The preparer and the feed to those who watch belong to the caller,
//! which knows families and views.
//!
//! What must hold: nothing but a cancel is performed before its records are in the store. Downside: an action is as late as the store is slow, by two commits at the most.

mod apply;
mod recorder;
#[cfg(test)]
mod tests;

pub use recorder::{Job, Ledger, record};

use kilnyard_coordinator::{Action, Coordinator, Event, Kept, Prepared, Reading, Start};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::Output;
use kilnyard_schedule::Scheduler;
use kilnyard_store::{Number, Record, Request};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Decisions are joined to one transaction up to about this many records, so that the first of them does not wait long.
pub const RECORDS_MAX: usize = 500;
/// How long room on a full disk is waited for.
pub const ROOM_PATIENCE_SECONDS: f64 = 120.0;
/// How long after a refusal the same commit is tried again.
pub const ROOM_PAUSE_SECONDS: f64 = 1.0;
/// A disk that is full again sooner than this was full all the time, and is not reported again.
pub const ROOM_LASTING_SECONDS_MIN: f64 = 60.0;
/// How often in a row the state is read from the store again, without a commit between.
pub const RELOADS_MAX: u32 = 3;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Something for the coordinator; [`Event::Prepared`] comes as [`Input::Prepared`].
    Event(Event),
    /// The preparer has done what was asked last.
    Prepared {
        /// The package.
        package: PackageId,
        /// What was found.
        prepared: Prepared,
    },
    /// The store has all records of the last [`Task::Commit`].
    Committed,
    /// The store has none of them.
    NotCommitted(Refusal),
    /// What the store holds: the answer to [`Task::Reload`].
    Loaded(Box<Loaded>),
}

/// Why a commit failed, as far as it decides what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room; later there may be.
    NoRoom,
    /// Something that may pass: another process, or the way to the store.
    ForNow,
    /// The store cannot be written any more.
    ForGood,
}

/// A run as the store holds it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where each package stands, in the order of the graph.
    pub starts: Vec<Start>,
    /// The outputs that are there.
    pub outputs: Vec<(PackageId, Vec<Output>)>,
    /// The first free number of a build.
    pub next_build: Number,
}

/// A package to be prepared.
#[derive(Clone, Debug, PartialEq)]
pub struct ToPrepare {
    /// The package.
    pub package: PackageId,
    /// From which recipe.
    pub reading: Reading,
    /// What is there of it.
    pub kept: Option<Kept>,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Write these records in one transaction, and say how it went.
    Commit(Arc<[Record]>),
    /// Work out what a package needs, and say what was found.
    Prepare(ToPrepare),
    /// Perform this; it is never [`Action::Record`] or [`Action::Prepare`].
    Perform(Action),
    /// Say that the disk is full and room is waited for.
    NoRoom,
    /// Say that a commit failed and the state is read again.
    Reloading,
    /// Read what the store holds: [`Input::Loaded`] is the answer.
    Reload,
    /// End the run with what the store reported last.
    GiveUp,
}

/// What followed from one event, until it can be performed.
#[derive(Debug)]
struct Decision {
    actions: Vec<Action>,
    /// The request that it was, if it was one.
    request: Option<Request>,
}

/// A commit under way.
#[derive(Debug)]
struct Commit {
    records: Arc<[Record]>,
    /// How many of the first decisions wait for it.
    decisions: usize,
    /// When it was refused first for want of room.
    refused_seconds: Option<f64>,
    /// When it is tried again; none while the recorder has it.
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
    /// Meanwhile it was asked for anew, so that the answer counts for nothing.
    is_stale: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Driver {
    coordinator: Coordinator,
    /// One in which nothing has happened yet, to begin with after a reload.
    scheduler: Scheduler,
    phase: Phase,
    decisions: VecDeque<Decision>,
    commit: Option<Commit>,
    /// Ready packages of which it is not worked out yet what they need.
    to_prepare: BTreeMap<PackageId, Reading>,
    preparing: Option<Preparing>,
    /// Builds that were handed out and have not ended.
    granted: BTreeMap<Number, Attempt>,
    /// When there was no room the last time.
    no_room_seconds: Option<f64>,
    reloads: u32,
    /// Requests that came, or were not written, since a commit failed.
    requests: Vec<Request>,
    is_stopping: bool,
}

impl Driver {
    /// Drives a coordinator to which nothing has happened. `scheduler` is one as it has.
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
            is_stopping: false,
        }
    }

    /// The run's state. It is ahead of the store by what is being written.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }
}
