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
//! Workers come by messages ([`Event::Heard`], [`Action::Send`]) over any transport; what they say is in `hear.rs`. A lease belongs to
//! one machine and has a random id, its attempt: what comes in the name of another machine or of an attempt whose lease is
//! over changes nothing, and the worker is sent word of that. A worker that is silent for [`LEASE_SECONDS`] loses its leases. A
//! coordinator that is started again takes over the builds of before that their workers still have ([`Coordinator::with_open`]).
//!
//! What must hold: a package is granted only when everything it depends on is there; a result counts once,
//! and only while its lease lasts; a failure stops only what depends on it; with no package left to decide
//! the run ends. Downside: one thing happens at a time, which is enough for thousands of events a second.

mod apply;
mod attempts;
mod hear;
mod lease;
mod retry;
mod seats;
#[cfg(test)]
mod tests;

pub use attempts::Attempts;
pub use retry::{Manner, PAUSE_SECONDS, RETRIES_MAX, RetryPolicy};

use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::{BuildOrder, Key, Output};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, PackageState, StageResult, StageSeen};
use kilnyard_protocol::{
    Answer, BuildResult, Built, Lease, Opened, Progress, Session, ToCoordinator, ToWorker,
};
use kilnyard_schedule::{Files, MachineId, Scheduler};
use kilnyard_store::{Number, Record, Request, RunState};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How long a lease lasts without a word from its worker, on the coordinator's clock.
pub const LEASE_SECONDS: f64 = 120.0;
/// A coordinator that was away for longer than this has not heard what came meanwhile: it was waiting for a store or a disk, or
/// the machine slept. Its ticks come ten times a second.
const AWAY_SECONDS: f64 = 5.0;
/// A grant that did not arrive is sent again with the next offer that shows it, but not sooner than this: offers and grants
/// pass each other on their ways.
const REGRANT_SECONDS: f64 = 2.0;

/// Where a message came from and its answer goes, as the transport numbers its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(pub u64);

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
    /// A worker's message.
    Heard {
        /// Where answers go.
        from: Channel,
        /// The message, with the capabilities of its sender.
        message: Box<Opened<ToCoordinator>>,
    },
    /// The lease of a [`Action::Grant`] cannot be sent, to this or any other worker.
    Unsendable {
        /// The build.
        build: Number,
        /// Why.
        explanation: String,
    },
    /// What [`Action::Ask`] asked is known.
    Answered {
        /// The build.
        build: Number,
        /// Whether it is about the second build of a lease that compares two.
        is_repeated: bool,
        /// What becomes of what was built.
        answer: Box<Answer>,
    },
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
    /// Send a lease to a worker. It is sent again where it did not arrive.
    Grant(Granted),
    /// Send this to a worker.
    Send {
        /// The way to it.
        to: Channel,
        /// What is said.
        message: ToWorker,
    },
    /// Ask the set what becomes of what was built, and how it is tried. The answer comes as [`Event::Answered`].
    Ask {
        /// The package.
        package: PackageId,
        /// The version that its outputs have to have.
        version: String,
        /// What was built.
        built: Built,
    },
    /// The running builds by machine, the highest rank first, with the number of cores that each is expected to have: workers
    /// share their cores out themselves.
    Allot(Vec<(Number, u32)>),
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

/// A machine's right to a build; together with what the set says of the package, it is a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// The number of the build.
    pub build: Number,
    /// Its random id: what a worker says counts only with it.
    pub attempt: Attempt,
    /// The package.
    pub package: PackageId,
    /// The longest path from its start to the end of the run, in seconds.
    pub rank_seconds: f64,
    /// Where it is built.
    pub machine: MachineId,
    /// The slot there.
    pub slot: u32,
    /// Where its work folder lies.
    pub files: Files,
    /// The way to the worker.
    pub channel: Channel,
    /// The session that the message belongs to.
    pub session: Session,
    /// How it is built.
    pub to_build: Arc<ToBuild>,
}

impl Granted {
    /// The lease, in this run. `written_bytes` is what the build is expected to write; `checks_reproducible` says whether it is
    /// done twice, to compare.
    pub fn lease(&self, run: Number, written_bytes: u64, checks_reproducible: bool) -> Lease {
        Lease {
            build: self.build,
            attempt: self.attempt,
            rank_seconds: self.rank_seconds,
            run,
            slot: self.slot,
            files: self.files,
            written_bytes,
            order: self.to_build.order.clone(),
            seen: self.to_build.seen.clone(),
            checks_reproducible,
        }
    }
}

/// A build of before this coordinator was started, which may still be going on.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// Its number.
    pub build: Number,
    /// Its random id.
    pub attempt: Attempt,
    /// The worker that has it.
    pub worker: String,
    /// The slot there.
    pub slot: u32,
    /// The package.
    pub package: PackageId,
    /// The version of its outputs.
    pub version: String,
    /// Its key.
    pub key: Key,
    /// The stages that are recorded.
    pub stages: Vec<StageResult>,
}

/// Something that people who watch want to know, and that no record says.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The progress of a build.
    Progress {
        /// The build.
        build: Number,
        /// How it goes.
        progress: Progress,
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
    /// The version of the outputs, and the key of their build.
    version: String,
    key: Option<Key>,
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

/// Who performs a build, and what a record says of its machine.
#[derive(Clone, Debug)]
struct Performer {
    worker: Option<String>,
    cores: u32,
}

#[derive(Clone, Debug)]
struct LeaseState {
    package: PackageId,
    attempt: Attempt,
    /// None of a build of before this coordinator was started, until its worker says that it has it.
    machine: Option<MachineId>,
    /// The worker that it was granted to.
    worker: String,
    slot: u32,
    files: Files,
    ends_seconds: f64,
    /// When it was sent last.
    granted_seconds: f64,
    /// Its worker said that it has it.
    is_confirmed: bool,
    /// Its worker said that it has begun it.
    is_started: bool,
    /// It is to be given back unless it has started.
    is_revoked: bool,
    /// How many reports were taken.
    reports: u64,
    /// Stages that are recorded, and may be reported once more since their acknowledgement was lost.
    recorded: Vec<StageResult>,
    /// Whether it was asked what becomes of what was built, and the answers: of the first build, and of the second.
    is_asked: [bool; 2],
    answers: [Option<Answer>; 2],
    /// A result that waits for the answer.
    result: Option<Box<BuildResult>>,
    /// A cancelled build keeps its slot until its worker is done with it.
    is_cancelled: bool,
    /// What its stages took so far.
    core_seconds: f64,
    /// Since when it can use more than one core.
    is_parallel_since: Option<f64>,
    /// For how long it could, in the stage that it is in, until it last could not.
    parallel_seconds: f64,
}

/// What became of a lease, for its worker.
#[derive(Clone, Debug)]
enum Ending {
    /// Its result was taken from this worker.
    Acknowledged(String),
    /// It ended without one.
    Superseded,
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
    seats: seats::Seats,
    /// What a worker has to be capable of.
    required: Vec<String>,
    /// What was said last of who has how many cores.
    allotted: Vec<(Number, u32)>,
    leases: HashMap<Number, LeaseState>,
    /// The builds of leases that last, by attempt.
    open: HashMap<Attempt, Number>,
    /// What became of the others of this run.
    ended: HashMap<Attempt, Ending>,
    /// When time was seen to go by last.
    ticked_seconds: Option<f64>,
    retries: RetryPolicy,
    /// When packages are tried again for which some time has to go by.
    due_seconds: BTreeMap<PackageId, f64>,
    next_build: Number,
    attempts: Attempts,
    own_machine: Performer,
    /// The time of the event that is being applied.
    now_seconds: f64,
    is_stopping: bool,
    is_finished: bool,
}

impl Coordinator {
    /// A run of the graph of a scheduler without machines. `next_build` is the first free number of a build.
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
                version: String::new(),
                key: None,
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
            seats: seats::Seats::default(),
            required: Vec::new(),
            scheduler,
            allotted: Vec::new(),
            leases: HashMap::new(),
            open: HashMap::new(),
            ended: HashMap::new(),
            ticked_seconds: None,
            retries: RetryPolicy::default(),
            due_seconds: BTreeMap::new(),
            next_build,
            attempts,
            own_machine: Performer { worker: None, cores: 1 },
            now_seconds: 0.0,
            is_stopping: false,
            is_finished: false,
        }
    }

    /// Begins anew from what the store holds of the same run, since what was decided could not be written. Every lease and every
    /// session is over: workers are asked to say hello again, and are then told which of their builds do not count. `scheduler` is
    /// one in which nothing has happened.
    pub fn reload(
        &mut self,
        start: Vec<Start>,
        scheduler: Scheduler,
        next_build: Number,
        actions: &mut Vec<Action>,
    ) {
        for machine in self.seats.talking() {
            self.say(machine, |session| ToWorker::Again { session }, actions);
        }
        let (attempts, retries) = (self.attempts.clone(), self.retries.clone());
        let required = std::mem::take(&mut self.required);
        let own_machine = self.own_machine.clone();
        let anew = Coordinator::new(self.run, start, scheduler, next_build, attempts);
        *self = Coordinator { own_machine, ..anew.with_retries(retries).with_required(required) };
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

    /// The same, where the machine of the coordinator, which fetches, has this name and this number of cores.
    pub fn with_own_machine(self, worker: String, cores: u32) -> Coordinator {
        Coordinator { own_machine: Performer { worker: Some(worker), cores }, ..self }
    }

    /// The same, where workers have to be capable of all this.
    pub fn with_required(self, required: Vec<String>) -> Coordinator {
        Coordinator { required, ..self }
    }

    /// The same, where the results of these attempts were taken from these workers before this coordinator was started: who
    /// sends one again gets the answer that it would have got then.
    pub fn with_results(mut self, results: impl IntoIterator<Item = (Attempt, String)>) -> Coordinator {
        let ended = results.into_iter();
        self.ended.extend(ended.map(|(attempt, worker)| (attempt, Ending::Acknowledged(worker))));
        self
    }

    /// The same, where these builds may still be going on: their workers have the time of a lease from now on to say so.
    pub fn with_open(mut self, now_seconds: f64, open: Vec<Open>) -> Coordinator {
        for open in open {
            let Open { build, attempt, worker, slot, package: id, version, key, stages } = open;
            if !self.is_in_run(id) || self.state(id) != PackageState::Waiting {
                continue;
            }
            self.set_state(id, PackageState::Building);
            let package = &mut self.packages[id.index()];
            package.build = Some(build);
            package.version = version;
            package.key = Some(key);
            let lease = LeaseState {
                is_confirmed: true,
                is_started: true,
                recorded: stages,
                ..LeaseState::new(id, attempt, None, worker, slot, Files::Disk, now_seconds)
            };
            self.leases.insert(build, lease);
            self.open.insert(attempt, build);
        }
        self
    }

    /// Where a package stands.
    pub fn state(&self, package: PackageId) -> PackageState {
        self.packages[package.index()].state
    }

    /// The packages of the run, with the state of each.
    pub fn standing(&self) -> impl Iterator<Item = (&str, PackageState)> {
        let packages = self.graph.packages().zip(&self.packages).filter(|(_, package)| package.is_in_run);
        packages.map(|(id, package)| (self.graph.name(id), package.state))
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

    /// How many builds there can be at once on all machines that there are.
    pub fn slots(&self) -> u32 {
        self.scheduler.machines().map(|machine| self.scheduler.slots(machine)).sum()
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
