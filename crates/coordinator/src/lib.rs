//! The owner of a run's state. [`Coordinator::apply`] takes an event and returns actions.
//!
//! The states of a package:
//!
//! ```text
//! Waiting --dependencies available--> Ready: prepare --key is known--> UpToDate
//!                                            |
//!                                            +--> fetch --> queue --slot free--> Building --> Built | Unchanged
//! ```
//!
//! and from any of them to Failed, Skipped, or Blocked by the failure of another package. `apply` is pure: it reads no
//! clock (the time comes with the event) and does no I/O. The caller performs the actions in their order; all
//! [`Action::Record`]s of one event go to the store in one transaction before any other action of that event is
//! performed.
//!
//! The [`Scheduler`] decides which package is granted when, and with how many cores. A package is released to it when
//! its inputs are on this machine.
//!
//! Workers are reached by messages ([`Event::Received`], [`Action::Send`]) over any transport; `receive.rs` handles
//! them. A lease belongs to one machine and has a random id, its attempt. A message from another machine, or for an
//! attempt whose lease is over, changes nothing, and the answer says so. A worker that is silent for
//! [`LEASE_SECONDS`] loses its leases. A restarted coordinator takes over the earlier builds that workers still have
//! ([`Coordinator::with_open`]).
//!
//! Invariants: a package is granted only when all its dependencies are done; a result counts once, and only while its
//! lease lasts; a failure stops only its dependents; the run ends when every package is decided. Known downside: events
//! are applied one at a time, which is enough for thousands per second.

mod announce;
mod apply;
mod asker;
mod attempts;
mod backlog;
mod deposits;
mod health;
mod inputs;
mod kept;
mod lease;
mod outcome;
mod pools;
mod receive;
mod reload;
mod requirements;
mod retry;
mod seats;
#[cfg(test)]
mod tests;

pub use asker::{Asker, AskerAction, AskerEvent, Task};
pub use attempts::Attempts;
use deposits::Deposit;
pub use deposits::NotStored;
pub use health::{BLAMES_MAX, FAULTS_MAX, REST_SECONDS};
pub use inputs::Measured;
pub use pools::{OWN_POOL, Standing, ToTest};
pub use reload::Reloaded;
pub use requirements::REQUIREMENT_ROUNDS_MAX;
pub use retry::{PAUSE_SECONDS, RETRIES_MAX, RetryMode, RetryPolicy};

use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::host::Host;
use kilnyard_model::keep::KeepOrder;
use kilnyard_model::order::{BuildOrder, Key, Output, TestOrder};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, PackageState, StageResult, StageSeen};
use kilnyard_protocol::{
    Answer, BuildResult, Built, Lease, Opened, Progress, Session, TestOnly, ToCoordinator, ToWorker,
};
use kilnyard_schedule::{Classes, Files, MachineId, Scheduler};
use kilnyard_store::{Number, Record, Request, RunState};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How long a lease lasts without a message from its worker, by the coordinator's clock: a worker that is cut off for a
/// minute keeps its builds, since its last message is at most ten seconds older.
pub const LEASE_SECONDS: f64 = 80.0;
/// After a gap of this length between ticks, which come ten times a second, leases are extended by the gap: messages
/// could not be handled while the process waited for a disk, or the machine slept.
const AWAY_SECONDS: f64 = 5.0;
/// A lost grant is sent again when an offer shows that it is missing, but not sooner than this: an offer and a grant
/// may cross.
const REGRANT_SECONDS: f64 = 2.0;

/// A connection, numbered by the transport: the source of a message, and the destination of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The run begins, or resumes after a crash.
    Begin,
    /// A ready package was prepared.
    Prepared {
        /// The package of an [`Action::Prepare`].
        package: PackageId,
        /// Ignored unless the package still waits for it.
        prepared: Prepared,
    },
    /// The inputs of a package were fetched, or cannot be.
    Fetched {
        /// The package of an [`Action::Fetch`].
        package: PackageId,
        /// The fetch stage; absent if nothing had to be fetched.
        stage: Option<Box<StageResult>>,
        /// Why the inputs cannot be fetched, if they cannot.
        outcome: Result<(), Failure>,
    },
    /// A worker's message.
    Received {
        /// Where answers go.
        from: Channel,
        /// The message, with the capabilities of its sender.
        message: Box<Opened<ToCoordinator>>,
    },
    /// The lease of an [`Action::Grant`] cannot be sent, to this or any other worker.
    Unsendable {
        /// The granted build, which fails.
        build: Number,
        /// The cause, in one sentence: the message of the failure.
        explanation: String,
    },
    /// The answer to [`Action::Ask`].
    Answered {
        /// The build whose outputs the worker asked about.
        build: Number,
        /// Whether it belongs to the second build of a lease that compares two.
        is_repeated: bool,
        /// Kept with the lease, and repeated if the worker asks again.
        answer: Box<Answer>,
        /// The number of the deposit, if an [`Event::Deposited`] follows, before which the result is not recorded. No two
        /// answers of a run have the same.
        deposit: Option<u64>,
    },
    /// The outputs of a build are stored where the machines of a farm share them, or cannot be.
    Deposited {
        /// A build whose answer named this.
        build: Number,
        /// The number of the deposit. One that was begun before a reload counts no more.
        deposit: u64,
        /// Why they are not stored, if they are not.
        outcome: Result<(), NotStored>,
    },
    /// The outputs of [`Action::Ask`] have not arrived where this coordinator looks for them: another one may have received
    /// them. The worker is heard again when it repeats its question.
    Unstored {
        /// The build whose outputs the worker asked about.
        build: Number,
        /// Whether it belongs to the second build of a lease that compares two.
        is_repeated: bool,
        /// Reads after "failed: ", if the worker never stores them.
        reason: String,
    },
    /// A user's `retry`, `skip` or `bump`, from the store.
    Requested(Request),
    /// What is known of the workers that have joined, by name: all of them. Running builds of held workers continue.
    Workers(BTreeMap<String, Standing>),
    /// The run ends early: running builds are cancelled.
    Stop,
    /// Time has passed. Ends the leases of silent workers and the pauses before retries.
    Tick,
}

/// The result of preparing a package.
#[derive(Clone, Debug, PartialEq)]
pub enum Prepared {
    /// The existing outputs are up to date.
    UpToDate,
    /// It has to be built.
    Build(Box<ToBuild>),
    /// It has to wait for these, too, which the run's graph lacks; it is prepared again then.
    Waits(Vec<PackageId>),
    /// It cannot be built, for this reason.
    Impossible(String),
}

/// A prepared package that has to be built.
#[derive(Clone, Debug, PartialEq)]
pub struct ToBuild {
    /// Why it is built.
    pub reason: Reason,
    /// Everything that a worker needs, without the lease.
    pub order: BuildOrder,
    /// The times and sizes of its stages in earlier builds.
    pub seen: Vec<StageSeen>,
    /// The version of the recipe behind the order; a rescan may have changed it.
    pub recipe_version: String,
    /// See [`Start::published_revision`], for this version of the recipe.
    pub published_revision: u32,
}

/// Which recipe a package is prepared from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The last one read, for the plan or by a retry.
    Cached,
    /// The current one in the tree: a retry was requested, so it may have changed.
    Fresh,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write this to the store, before any other action of the same event.
    Record(Record),
    /// Work out whether and how a package is built.
    Prepare {
        /// A package whose dependencies are available.
        package: PackageId,
        /// The recipe to prepare it from.
        reading: Reading,
    },
    /// Fetch the inputs of a package.
    Fetch {
        /// Its build is granted after [`Event::Fetched`].
        package: PackageId,
        /// Names the inputs to fetch.
        to_build: Arc<ToBuild>,
    },
    /// Send a lease to a worker; again if it did not arrive.
    Grant(Granted),
    /// Announce a build to a worker that may get it next. It may be lost.
    Announce(Granted),
    /// Send a message to a worker.
    Send {
        /// The worker's connection.
        to: Channel,
        /// Any message may be lost; the coordinator keeps no copy of it.
        message: ToWorker,
    },
    /// Ask the set which outputs are kept, and how they are tested. The answer comes as [`Event::Answered`].
    Ask {
        /// The package that was built, whatever the worker says.
        package: PackageId,
        /// The build's random id.
        attempt: Attempt,
        /// The version that its outputs must have.
        version: String,
        /// The outputs, as the worker read them.
        built: Built,
    },
    /// The running builds by machine, the highest rank first, with the number of cores that each is expected to have:
    /// workers share their cores out themselves.
    Allot(Vec<(Number, u32)>),
    /// A package has new outputs.
    Adopt {
        /// From now on, dependents are prepared with the new outputs.
        package: PackageId,
        /// They replace all earlier outputs of the package.
        outputs: Vec<Output>,
    },
    /// A worker lost a build: it may read and store nothing more for it.
    Forget {
        /// Its name.
        worker: String,
        /// The build.
        attempt: Attempt,
    },
    /// A worker failed too much: it gets no builds, in this run and later ones, until the user resumes it.
    Quarantine {
        /// Its name.
        worker: String,
        /// A sentence without its period.
        reason: String,
    },
    /// Shows something that is not recorded.
    Notify(Notice),
    /// The run is over.
    Finish(RunState),
}

/// A machine's right to perform a build, and the order for it: the contents of a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// Unique in the store, across all runs.
    pub build: Number,
    /// Its random id, which messages about it must have.
    pub attempt: Attempt,
    /// The package to build.
    pub package: PackageId,
    /// The longest path from its start to the end of the run, in seconds.
    pub rank_seconds: f64,
    /// The machine of the worker that gets the lease.
    pub machine: MachineId,
    /// A slot of that worker that is free until the lease ends.
    pub slot: u32,
    /// The location of its work folder.
    pub files: Files,
    /// The worker's connection.
    pub channel: Channel,
    /// The session that the message belongs to.
    pub session: Session,
    /// The order, shared with the package's state until the build ends.
    pub to_build: Arc<ToBuild>,
    /// The outputs to test in place of a build.
    pub to_test: Option<Arc<ToTest>>,
    /// How the build uses kept work, in place of what the order says for all workers.
    pub keep: Option<Box<KeepOrder>>,
}

impl Granted {
    /// The lease in this run. The build is expected to write `written_bytes`; with `checks_reproducible` it runs twice,
    /// to compare the bytes.
    pub fn lease(&self, run: Number, written_bytes: u64, checks_reproducible: bool) -> Lease {
        Lease {
            build: self.build,
            attempt: self.attempt,
            rank_seconds: self.rank_seconds,
            run,
            slot: self.slot,
            files: self.files,
            written_bytes,
            order: BuildOrder { keep: self.keep.as_deref().cloned(), ..self.to_build.order.clone() },
            seen: self.to_build.seen.clone(),
            checks_reproducible,
            to_test: self.to_test.as_ref().map(|to_test| {
                let ToTest { outputs, order, .. } = &**to_test;
                Box::new(TestOnly { outputs: outputs.clone(), order: order.clone() })
            }),
            is_captured: false,
            to_check: Vec::new(),
        }
    }
}

/// A build that began before this coordinator was started, and may still be running.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// Its number in the store.
    pub build: Number,
    /// Its random id.
    pub attempt: Attempt,
    /// The name of the worker that had it. A worker of another name cannot take it over.
    pub worker: String,
    /// Its slot on that worker, which stays taken.
    pub slot: u32,
    /// The package that it builds.
    pub package: PackageId,
    /// Why it is built.
    pub reason: Reason,
    /// The version of its outputs, which may differ from what a new build would get.
    pub version: String,
    /// The key that it was started with.
    pub key: Key,
    /// The recorded stages. A repeated report of one of them changes nothing.
    pub stages: Vec<StageResult>,
    /// When it was granted first.
    pub began_seconds: f64,
}

/// Something for the view that is not recorded.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The progress of a build.
    Progress {
        /// A running build.
        build: Number,
        /// As the worker reported it.
        progress: Progress,
    },
    /// Another pool built a package with other contents.
    Differs {
        /// The package, whose first outputs are kept.
        package: String,
        /// A sentence without its period.
        message: String,
    },
    /// A request was refused.
    Refused {
        /// The user's request, which changes nothing.
        request: Request,
        /// A sentence for the user who made it.
        reason: String,
    },
}

/// A package's outputs from an earlier run or this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOutputs {
    /// The version of the recipe that they were built from.
    pub recipe_version: String,
    /// The number of times that outputs of this recipe version were kept.
    pub revision: u32,
    /// The content digest of each output, by name.
    pub contents: BTreeMap<String, String>,
}

/// The revision of the next outputs of this version of a recipe: above those in the store and those in the repository.
pub fn next_revision(kept: Option<&KeptOutputs>, recipe_version: &str, published_revision: u32) -> u32 {
    let kept = kept.filter(|kept| kept.recipe_version == recipe_version);
    kept.map_or(0, |kept| kept.revision).max(published_revision) + 1
}

/// The initial state of a package.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Its state. Final states stay; packages in all others start over.
    pub state: PackageState,
    /// Shown until the state changes.
    pub reason: Reason,
    /// The package to blame, if it is another one.
    pub blamed: Option<PackageId>,
    /// Whether the run handles it. The state of any other package is not recorded.
    pub is_in_run: bool,
    /// The version of the recipe in the plan.
    pub recipe_version: String,
    /// Its outputs, if there are any.
    pub kept: Option<KeptOutputs>,
    /// The highest revision of this recipe version in the repository; 0 if there is none. It may be above the store's,
    /// if that was lost or restored from a backup.
    pub published_revision: u32,
}

#[derive(Clone, Debug)]
struct Package {
    state: PackageState,
    reason: Reason,
    blamed: Option<PackageId>,
    is_in_run: bool,
    recipe_version: String,
    kept: Option<KeptOutputs>,
    published_revision: u32,
    /// The version of its outputs, and the key of their build.
    version: String,
    key: Option<Key>,
    /// Which recipe it will be prepared from.
    reading: Reading,
    /// Its prepared build. Dropped when the package is decided: keeping those of a large tree would take too much
    /// memory.
    to_build: Option<Arc<ToBuild>>,
    is_fetched: bool,
    /// The fetch stage, until it can be recorded with a build.
    fetch: Option<Box<StageResult>>,
    failures: retry::Failures,
    /// How often it was built again with further requirements.
    requirement_rounds: u32,
    /// Its next builds run while no other build does.
    is_alone: bool,
    /// What is left after its first build.
    round: Option<pools::Round>,
    /// The machines that may take it, as the scheduler knows them.
    classes: Classes,
    build: Option<Number>,
}

/// The worker and machine in the record of a build.
#[derive(Clone, Debug)]
struct Performer {
    worker: Option<String>,
    cores: u32,
    host: Option<Host>,
}

#[derive(Clone, Debug)]
struct LeaseState {
    package: PackageId,
    /// The build that its stages and its end are recorded with: its own, or the one whose outputs it tests.
    row: Number,
    attempt: Attempt,
    /// Absent for a build that began before this coordinator was started, until its worker reports it.
    machine: Option<MachineId>,
    /// The worker that it was granted to.
    worker: String,
    slot: u32,
    files: Files,
    ends_seconds: f64,
    /// When it was granted first, also by an earlier coordinator.
    began_seconds: f64,
    /// When it was last sent.
    granted_seconds: f64,
    /// Its worker reported that it has it.
    is_confirmed: bool,
    /// Its worker reported that it has started it.
    is_started: bool,
    /// It was revoked: the worker gives it back unless it has started.
    is_revoked: bool,
    /// The number of reports that were handled.
    reports: u64,
    /// Stages that are recorded, and that the worker may report again if their acknowledgement was lost.
    recorded: Vec<StageResult>,
    /// How the outputs are tested, if its worker does not test them.
    test: Option<TestOrder>,
    /// The stages of a test of another worker's outputs.
    test_stages: Vec<StageResult>,
    /// Whether [`Action::Ask`] was sent, and the answers: for the first build, and for the second.
    is_asked: [bool; 2],
    /// How often the outputs that it asked about had not arrived.
    unstored: u32,
    answers: [Option<Answer>; 2],
    /// A result that arrived before its answer, or waits for the deposit.
    result: Option<Box<BuildResult>>,
    /// Where its outputs are.
    deposit: Deposit,
    /// Whether its first stage began.
    has_begun: bool,
    /// A cancelled build keeps its slot until its worker has ended it.
    is_cancelled: bool,
    /// The core time of its finished stages.
    core_seconds: f64,
    /// The time since which it could use more than one core.
    is_parallel_since: Option<f64>,
    /// For how long it could before that, in the current stage.
    parallel_seconds: f64,
}

/// How a lease ended, for later messages of its worker.
#[derive(Clone, Debug)]
enum Ending {
    /// With the result of this worker.
    Acknowledged(String),
    /// With a result that another worker tests, or whose outputs are being stored. Its worker keeps it until it is
    /// recorded.
    Pending,
    /// Without a result.
    Superseded,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Coordinator {
    run: Number,
    graph: Arc<Graph>,
    packages: Vec<Package>,
    /// The number of packages in each state, in the order of [`PackageState::ALL`].
    counts: [u64; PackageState::ALL.len()],
    scheduler: Scheduler,
    seats: seats::Seats,
    health: health::Health,
    pools: pools::Pools,
    inputs: inputs::Inputs,
    /// Where kept work of packages is.
    kept: kept::Kept,
    /// The builds that machines prepare.
    announced: announce::Announced,
    /// The capabilities that a worker must have.
    required: Vec<String>,
    /// The last [`Action::Allot`].
    allotted: Vec<(Number, u32)>,
    leases: HashMap<Number, LeaseState>,
    /// The results whose outputs are not stored yet.
    deposits: deposits::Deposits,
    /// The builds with a lease, by attempt.
    open: HashMap<Attempt, Number>,
    /// The attempts whose lease ended in this run.
    ended: HashMap<Attempt, Ending>,
    /// The time of the last tick.
    ticked_seconds: Option<f64>,
    retries: RetryPolicy,
    /// The policies of packages that have their own.
    own_retries: BTreeMap<PackageId, RetryPolicy>,
    /// When packages in a pause before a retry are due.
    due_seconds: BTreeMap<PackageId, f64>,
    next_build: Number,
    attempts: Attempts,
    own_machine: Performer,
    /// The time of the current event.
    now_seconds: f64,
    is_stopping: bool,
    is_finished: bool,
}

impl Coordinator {
    /// A run of the scheduler's graph. The scheduler has no machines yet. `next_build` is the first free build number.
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
                reading: Reading::Cached,
                to_build: None,
                is_fetched: false,
                fetch: None,
                failures: retry::Failures::default(),
                requirement_rounds: 0,
                is_alone: false,
                round: None,
                classes: Classes::ALL,
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
            health: health::Health::default(),
            pools: pools::Pools::default(),
            inputs: inputs::Inputs::default(),
            kept: kept::Kept::default(),
            announced: announce::Announced::default(),
            required: Vec::new(),
            scheduler,
            allotted: Vec::new(),
            leases: HashMap::new(),
            deposits: deposits::Deposits::default(),
            open: HashMap::new(),
            ended: HashMap::new(),
            ticked_seconds: None,
            retries: RetryPolicy::default(),
            own_retries: BTreeMap::new(),
            due_seconds: BTreeMap::new(),
            next_build,
            attempts,
            own_machine: Performer { worker: None, cores: 1, host: None },
            now_seconds: 0.0,
            is_stopping: false,
            is_finished: false,
        }
    }

    /// Sets the retry policy.
    pub fn with_retries(self, retries: RetryPolicy) -> Coordinator {
        Coordinator { retries, ..self }
    }

    /// Sets the policies of packages that have their own.
    pub fn with_own_retries(self, own_retries: BTreeMap<PackageId, RetryPolicy>) -> Coordinator {
        Coordinator { own_retries, ..self }
    }

    /// Renews the lease of a build. A lease begins when the build is handed out, which may be later than the decision.
    pub fn renew(&mut self, now_seconds: f64, build: Number) {
        if let Some(lease) = self.leases.get_mut(&build) {
            lease.ends_seconds = now_seconds + LEASE_SECONDS;
        }
    }

    /// Sets the coordinator's own machine, by its name, number of cores, kernel and CPU. It is recorded for failed
    /// fetches, which happen on it.
    pub fn with_own_machine(self, worker: String, cores: u32, host: Option<Host>) -> Coordinator {
        Coordinator { own_machine: Performer { worker: Some(worker), cores, host }, ..self }
    }

    /// Refuses workers that lack one of these capabilities.
    pub fn with_required(self, required: Vec<String>) -> Coordinator {
        Coordinator { required, ..self }
    }

    /// Adds the attempts whose results an earlier process accepted, with their workers: a repeated result is
    /// acknowledged again.
    pub fn with_results(mut self, results: impl IntoIterator<Item = (Attempt, String)>) -> Coordinator {
        let ended = results.into_iter();
        self.ended.extend(ended.map(|(attempt, worker)| (attempt, Ending::Acknowledged(worker))));
        self
    }

    /// Adds builds that may still be running: their workers have the length of a lease to report them.
    pub fn with_open(mut self, now_seconds: f64, open: Vec<Open>) -> Coordinator {
        for open in open {
            let Open {
                build,
                attempt,
                worker,
                slot,
                package: id,
                reason,
                version,
                key,
                stages,
                began_seconds,
            } = open;
            if !self.is_in_run(id) || self.state(id) != PackageState::Waiting {
                continue;
            }
            self.set_state(id, PackageState::Building);
            let package = &mut self.packages[id.index()];
            package.build = Some(build);
            (package.round, package.reason) = pools::Round::taken_over(reason);
            self.pools.has_rounds |= package.round.is_some();
            package.version = version;
            package.key = Some(key);
            let lease = LeaseState {
                is_confirmed: true,
                is_started: true,
                recorded: stages,
                began_seconds,
                ..LeaseState::new(id, (build, attempt), None, worker, slot, Files::Disk, now_seconds)
            };
            self.leases.insert(build, lease);
            self.open.insert(attempt, build);
        }
        self
    }

    /// The state of a package.
    pub fn state(&self, package: PackageId) -> PackageState {
        self.packages[package.index()].state
    }

    /// The packages of the run and their states.
    pub fn states(&self) -> impl Iterator<Item = (&str, PackageState)> {
        let packages = self.graph.packages().zip(&self.packages).filter(|(_, package)| package.is_in_run);
        packages.map(|(id, package)| (self.graph.name(id), package.state))
    }

    /// The reason for its state.
    pub fn reason(&self, package: PackageId) -> &Reason {
        &self.packages[package.index()].reason
    }

    /// Whether a package is part of the run.
    pub fn is_in_run(&self, package: PackageId) -> bool {
        self.packages[package.index()].is_in_run
    }

    /// The packages that a package waits for, in ascending order.
    pub fn dependencies(&self, package: PackageId) -> &[PackageId] {
        self.graph.dependencies(package)
    }

    /// Whether a package is built before another one if both are ready.
    pub fn comes_before(&self, package: PackageId, other: PackageId) -> bool {
        self.scheduler.comes_before(package, other)
    }

    /// The existing outputs of a package.
    pub fn kept(&self, package: PackageId) -> Option<&KeptOutputs> {
        self.packages[package.index()].kept.as_ref()
    }

    /// The revision of the next outputs of a package.
    fn next_revision(&self, package: PackageId) -> u32 {
        let package = &self.packages[package.index()];
        next_revision(package.kept.as_ref(), &package.recipe_version, package.published_revision)
    }

    /// The number of builds that all present machines can run at once.
    pub fn slots(&self) -> u32 {
        self.scheduler.machines().map(|machine| self.scheduler.slots(machine)).sum()
    }

    /// The number of packages of the run in each state.
    pub fn counts(&self) -> Vec<(PackageState, u64)> {
        PackageState::ALL.into_iter().map(|state| (state, self.counts[state as usize])).collect()
    }

    /// Makes every change of state after the initial one.
    fn set_state(&mut self, id: PackageId, state: PackageState) {
        let package = &mut self.packages[id.index()];
        if package.is_in_run {
            self.counts[package.state as usize] -= 1;
            self.counts[state as usize] += 1;
        }
        package.state = state;
    }

    /// The longest path through undecided packages, in seconds.
    pub fn remaining_path_seconds(&self) -> f64 {
        let open = self.graph.packages().filter(|id| {
            let package = &self.packages[id.index()];
            package.is_in_run && !package.state.is_final()
        });
        open.map(|id| self.scheduler.rank_seconds(id)).fold(0.0, f64::max)
    }
}
