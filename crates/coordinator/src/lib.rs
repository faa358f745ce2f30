//! The one owner of a run's state: [`Coordinator::apply`] takes an event and says what is to be done.
//!
//! A package goes this way:
//!
//! ```text
//! Waiting --all dependencies there--> Ready: prepare --key is known--> UpToDate
//!                                            |
//!                                            +--> fetch --> queue --slot free--> Building --> Built | Unchanged
//! ```
//!
//! and from anywhere to Failed, Skipped, or Blocked by somebody else's failure. `apply` is pure: it reads
//! no clock (the time comes with the event), writes nothing, and calls nobody. Whoever drives it performs
//! the actions in their order; all [`Action::Record`]s of one event go to the store in one transaction
//! before any other action of that event is performed.
//!
//! Which package is granted when, and who has how many cores, is the decision of [`Scheduler`], which is told here what
//! happens; a package is released to it when all that it needs is on this machine.
//!
//! What must hold: a package is granted only when everything it depends on is there; a result counts once,
//! and only while its lease lasts; a failure stops only what depends on it; with no package left to decide
//! the run ends. Downside: one thing happens at a time, which is enough for thousands of events a second.

mod apply;
mod attempts;
mod retry;
#[cfg(test)]
mod tests;

pub use attempts::Attempts;
pub use retry::{Manner, PAUSE_SECONDS, RETRIES_MAX, RetryPolicy};

use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::{BuildOrder, Output};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, PackageState, StageResult, StageSeen};
use kilnyard_protocol::{BuildResult, Progress};
use kilnyard_schedule::{Files, MachineId, Pressure, Scheduler};
use kilnyard_store::{Number, Record, Request, RunState};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How long a lease lasts without a word from its worker, on the coordinator's clock.
pub const LEASE_SECONDS: f64 = 120.0;
/// A coordinator that was away for longer than this has not heard what came meanwhile: it was waiting for a store or a disk, or
/// the machine slept. Its ticks come ten times a second.
const AWAY_SECONDS: f64 = 5.0;
/// The one machine that there is.
const MACHINE: MachineId = MachineId(0);

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The run begins, or goes on after a crash.
    Begin,
    /// It is known what a ready package needs.
    Prepared {
        /// The package.
        package: PackageId,
        /// What was found.
        prepared: Prepared,
    },
    /// What a package needs is on this machine, or cannot be had.
    Fetched {
        /// The package.
        package: PackageId,
        /// What was done for it; nothing where all of it was here.
        stage: Option<Box<StageResult>>,
        /// Why it cannot be had.
        outcome: Result<(), Failure>,
    },
    /// A worker says how a build goes.
    Progress {
        /// The build.
        build: Number,
        /// How it goes.
        progress: Progress,
    },
    /// A worker returns a result.
    Ended(BuildResult),
    /// A build can use this many cores from now on.
    Wants {
        /// The build.
        build: Number,
        /// The cores, at least 1.
        cores: u32,
    },
    /// The machine is off for memory like this.
    Pressure(Pressure),
    /// Somebody asks for something.
    Requested(Request),
    /// The run is to end soon: what is being built is cancelled.
    Stop,
    /// Time went by.
    Tick,
}

/// What preparing a package found.
#[derive(Clone, Debug, PartialEq)]
pub enum Prepared {
    /// The outputs that are there are right.
    UpToDate,
    /// It is to be built.
    Build(Box<ToBuild>),
    /// It cannot be built; the explanation.
    Impossible(String),
}

/// A package that is to be built, as it was prepared.
#[derive(Clone, Debug, PartialEq)]
pub struct ToBuild {
    /// Why it is built.
    pub reason: Reason,
    /// Its build.
    pub order: BuildOrder,
    /// What its stages took before.
    pub seen: Vec<StageSeen>,
    /// The version of the recipe that the order follows: after a rescan another one than at the beginning.
    pub recipe_version: String,
    /// See [`Start::published_revision`], for this version of the recipe.
    pub published_revision: u32,
}

/// Which recipe a package is prepared from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The one that the run was planned from, or that was read last.
    AsKnown,
    /// The one that is in the tree now: somebody has changed it and wants the package tried again.
    Anew,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write this to the store, before everything else.
    Record(Record),
    /// Work out what a package needs.
    Prepare {
        /// The package.
        package: PackageId,
        /// From which recipe.
        reading: Reading,
    },
    /// Fetch what a package needs.
    Fetch {
        /// The package.
        package: PackageId,
        /// How it is to be built.
        to_build: Arc<ToBuild>,
    },
    /// Let a worker's slot build a package.
    Grant {
        /// The number of the build.
        build: Number,
        /// Its random id: what a worker says counts only with it.
        attempt: Attempt,
        /// The package.
        package: PackageId,
        /// The slot.
        slot: u32,
        /// Where its work folder lies.
        files: Files,
        /// How it is built.
        to_build: Arc<ToBuild>,
    },
    /// From now on these are the builds that go on, the highest rank first, and the cores of each.
    Allot(Vec<(Number, u32)>),
    /// End a build.
    Cancel {
        /// The number of the build.
        build: Number,
    },
    /// New outputs of a package are there.
    Adopt {
        /// The package.
        package: PackageId,
        /// The outputs.
        outputs: Vec<Output>,
    },
    /// Say what happened to whoever watches.
    Tell(Notice),
    /// The run is over.
    Finish(RunState),
}

/// Something that people who watch want to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A package stands elsewhere now.
    State {
        /// The package.
        package: PackageId,
        /// Where it stands.
        state: PackageState,
        /// Why.
        reason: Reason,
    },
    /// A request could not be granted.
    Refused {
        /// The request.
        request: Request,
        /// Why.
        reason: String,
    },
}

/// A package's outputs from an earlier run or this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The version of the recipe.
    pub recipe_version: String,
    /// How often outputs of this recipe version were kept.
    pub revision: u32,
    /// The content of each output, by name.
    pub contents: BTreeMap<String, String>,
}

/// The number that the next kept outputs of this version of a recipe get: above those that were kept, and those that are
/// published.
pub fn next_revision(kept: Option<&Kept>, recipe_version: &str, published_revision: u32) -> u32 {
    let kept = kept.filter(|kept| kept.recipe_version == recipe_version);
    kept.map_or(0, |kept| kept.revision).max(published_revision) + 1
}

/// A package as the coordinator is given it.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Where it stands: final ones stay, all others begin anew.
    pub state: PackageState,
    /// Why.
    pub reason: Reason,
    /// Who is to blame, where another package is.
    pub blamed: Option<PackageId>,
    /// Whether this run is concerned with it.
    pub is_in_run: bool,
    /// The version of the recipe.
    pub recipe_version: String,
    /// What is there of it.
    pub kept: Option<Kept>,
    /// The highest revision of this recipe version that the repository offers; 0 where there is none. The store may know
    /// less than that: it was lost, or a backup took its place.
    pub published_revision: u32,
}

#[derive(Clone, Debug)]
struct Package {
    state: PackageState,
    reason: Reason,
    blamed: Option<PackageId>,
    is_in_run: bool,
    recipe_version: String,
    kept: Option<Kept>,
    published_revision: u32,
    /// From which recipe it is prepared when it is ready.
    reading: Reading,
    /// How it is built, once that is worked out and until the package is decided: of a large tree they would be too many.
    to_build: Option<Arc<ToBuild>>,
    is_fetched: bool,
    /// What fetching did, until there is a build to record it with.
    fetch: Option<Box<StageResult>>,
    failures: retry::Failures,
    /// It is tried with nobody beside it from now on.
    is_alone: bool,
    build: Option<Number>,
}

#[derive(Clone, Debug)]
struct LeaseState {
    package: PackageId,
    slot: u32,
    ends_seconds: f64,
    /// A cancelled build keeps its slot until its worker is done with it.
    is_cancelled: bool,
    /// What its stages took so far.
    core_seconds: f64,
    /// Since when it can use more than one core.
    is_parallel_since: Option<f64>,
    /// For how long it could, in the stage that it is in, until it last could not.
    parallel_seconds: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Coordinator {
    run: Number,
    graph: Arc<Graph>,
    packages: Vec<Package>,
    /// How many packages of the run are in each state, by its place among all states.
    counts: [u64; PackageState::ALL.len()],
    scheduler: Scheduler,
    slots_free: BTreeSet<u32>,
    /// What was said last of who has how many cores.
    allotted: Vec<(Number, u32)>,
    leases: HashMap<Number, LeaseState>,
    /// When time was seen to go by last.
    ticked_seconds: Option<f64>,
    retries: RetryPolicy,
    /// When packages are tried again for which some time has to go by.
    due_seconds: BTreeMap<PackageId, f64>,
    next_build: Number,
    attempts: Attempts,
    /// The time of the event that is being applied.
    now_seconds: f64,
    is_stopping: bool,
    is_finished: bool,
}

impl Coordinator {
    /// A run of the scheduler's graph. `next_build` is the first free number of a build.
    pub fn new(
        run: Number,
        start: Vec<Start>,
        scheduler: Scheduler,
        next_build: Number,
        attempts: Attempts,
    ) -> Coordinator {
        let packages: Vec<Package> = start
            .into_iter()
            .map(|start| Package {
                state: if start.state.is_final() { start.state } else { PackageState::Waiting },
                reason: start.reason,
                blamed: start.blamed,
                is_in_run: start.is_in_run,
                recipe_version: start.recipe_version,
                kept: start.kept,
                published_revision: start.published_revision,
                reading: Reading::AsKnown,
                to_build: None,
                is_fetched: false,
                fetch: None,
                failures: retry::Failures::default(),
                is_alone: false,
                build: None,
            })
            .collect();
        let mut counts = [0; PackageState::ALL.len()];
        for package in packages.iter().filter(|package| package.is_in_run) {
            counts[package.state as usize] += 1;
        }
        Coordinator {
            run,
            graph: scheduler.graph().clone(),
            packages,
            counts,
            slots_free: (0..scheduler.slots(MACHINE)).collect(),
            scheduler,
            allotted: Vec::new(),
            leases: HashMap::new(),
            ticked_seconds: None,
            retries: RetryPolicy::default(),
            due_seconds: BTreeMap::new(),
            next_build,
            attempts,
            now_seconds: 0.0,
            is_stopping: false,
            is_finished: false,
        }
    }

    /// Begins anew from what the store holds of the same run, since what was decided could not be written. Every lease is over:
    /// the caller ends the builds first. `scheduler` is one in which nothing has happened.
    pub fn reload(&mut self, start: Vec<Start>, scheduler: Scheduler, next_build: Number) {
        let (attempts, retries) = (self.attempts.clone(), self.retries.clone());
        *self = Coordinator::new(self.run, start, scheduler, next_build, attempts).with_retries(retries);
    }

    /// The same with another policy of what is tried again.
    pub fn with_retries(self, retries: RetryPolicy) -> Coordinator {
        Coordinator { retries, ..self }
    }

    /// Lets the lease of a build last from this time: it begins when the build is handed out, and not when that is decided.
    pub fn renew(&mut self, now_seconds: f64, build: Number) {
        if let Some(lease) = self.leases.get_mut(&build) {
            lease.ends_seconds = now_seconds + LEASE_SECONDS;
        }
    }

    /// Where a package stands.
    pub fn state(&self, package: PackageId) -> PackageState {
        self.packages[package.index()].state
    }

    /// Where each package stands, in the order of the graph; none for those that the run is not concerned with.
    pub fn standing(&self) -> Vec<Option<PackageState>> {
        self.packages.iter().map(|package| package.is_in_run.then_some(package.state)).collect()
    }

    /// Why it stands there.
    pub fn reason(&self, package: PackageId) -> &Reason {
        &self.packages[package.index()].reason
    }

    /// Whether the run is concerned with a package.
    pub fn is_in_run(&self, package: PackageId) -> bool {
        self.packages[package.index()].is_in_run
    }

    /// Whether a package is to be built before another one, if both can be.
    pub fn comes_before(&self, package: PackageId, other: PackageId) -> bool {
        self.scheduler.comes_before(package, other)
    }

    /// What is there of a package.
    pub fn kept(&self, package: PackageId) -> Option<&Kept> {
        self.packages[package.index()].kept.as_ref()
    }

    /// The number that the next kept outputs of a package get.
    fn next_revision(&self, package: PackageId) -> u32 {
        let package = &self.packages[package.index()];
        next_revision(package.kept.as_ref(), &package.recipe_version, package.published_revision)
    }

    /// How many builds there can be at once.
    pub fn slots(&self) -> u32 {
        self.scheduler.slots(MACHINE)
    }

    /// How many packages of the run are in each state.
    pub fn counts(&self) -> Vec<(PackageState, u64)> {
        PackageState::ALL.into_iter().map(|state| (state, self.counts[state as usize])).collect()
    }

    /// The one place where a package's state changes after the beginning.
    fn set_state(&mut self, id: PackageId, state: PackageState) {
        let package = &mut self.packages[id.index()];
        if package.is_in_run {
            self.counts[package.state as usize] -= 1;
            self.counts[state as usize] += 1;
        }
        package.state = state;
    }

    /// The longest remaining path in seconds over what is not decided yet.
    pub fn remaining_path_seconds(&self) -> f64 {
        let open = self.graph.packages().filter(|id| {
            let package = &self.packages[id.index()];
            package.is_in_run && !package.state.is_final()
        });
        open.map(|id| self.scheduler.rank_seconds(id)).fold(0.0, f64::max)
    }
}
