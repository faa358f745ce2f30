//! The driver in virtual time: a world with a store, a solver and a worker whose delays a test sets. The worker is the
//! shipped agent.

mod failures;
mod recording;
mod slowness;

use crate::*;
use kilnyard_agent::{Action as OfAgent, Agent, Event as ToAgent};
use kilnyard_coordinator::{Attempts, Channel, Granted, LEASE_SECONDS, Start, ToBuild};
use kilnyard_model::graph::Graph;
use kilnyard_model::order::{BuildOrder, Key, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, PackageState};
use kilnyard_protocol::{
    Answer, BuildResult, Built, Hello, ToCoordinator, ToWorker, Versions, decode, encode, open,
};
use kilnyard_schedule::{Basis, Limits, Work};
use kilnyard_store::{RequestKind, RunState};
use std::collections::BTreeMap;
use std::ops::Range;

/// The interval of clock ticks.
const TICK_SECONDS: f64 = 1.0;
/// The latency of a worker's message.
const WIRE_SECONDS: f64 = 0.001;

/// The delays of a world.
struct Pace {
    commit_seconds: f64,
    prepare_seconds: f64,
    build_seconds: f64,
    /// When the disk is full.
    is_full: Range<f64>,
    /// The commits that fail, numbered from 1.
    fails: Vec<(usize, Refusal)>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            commit_seconds: 0.01,
            prepare_seconds: 0.01,
            build_seconds: 600.0,
            is_full: 0.0..0.0,
            fails: Vec::new(),
        }
    }
}

/// A scheduled input of the driver.
enum Coming {
    Input(Input),
    /// The store finishes a commit, with or without success.
    Stored(Arc<[Record]>),
    /// A build ends, after its stages or some time after its cancellation.
    Over(Number),
}

/// A build of the worker.
struct Building {
    attempt: Attempt,
    is_cancelled: bool,
}

struct World {
    driver: Driver,
    pace: Pace,
    now_seconds: f64,
    /// Scheduled inputs by time, in microseconds, and by the order in which they were sent.
    coming: BTreeMap<(u64, u64), Coming>,
    count: u64,
    commits: usize,
    store: Vec<Record>,
    agent: Agent,
    /// The worker is gone.
    is_silent: bool,
    building: BTreeMap<Number, Building>,
    performed: Vec<Action>,
    tasks: Vec<Task>,
    /// A copy of the coordinator without a driver, and its actions, to compare the order.
    twin: Coordinator,
    decided: Vec<Action>,
    ended: Option<Result<RunState, ()>>,
}

fn start() -> Start {
    Start {
        state: PackageState::Waiting,
        reason: Reason::Undecided,
        blamed: None,
        is_in_run: true,
        recipe_version: "1".into(),
        kept: None,
        published_revision: 0,
    }
}

fn to_build() -> Prepared {
    let key = Key { digest: "k".into(), lines: Vec::new() };
    let order = BuildOrder { version: "1".into(), key, ..BuildOrder::empty("") };
    Prepared::Build(Box::new(ToBuild {
        reason: Reason::FirstBuild,
        order,
        seen: Vec::new(),
        recipe_version: "1".into(),
        published_revision: 0,
    }))
}

fn outputs(build: Number) -> Vec<Output> {
    vec![Output {
        name: "x".into(),
        version: "1".into(),
        architecture: "amd64".into(),
        file: "x".into(),
        sha256: build.to_string(),
        size_bytes: 1,
        content: build.to_string(),
        description: String::new(),
        digests: Default::default(),
    }]
}

fn good(build: Number) -> BuildResult {
    BuildResult { build, outcome: Ok(outputs(build)), is_reproducible: None, provenance: None }
}

fn cancelled(build: Number) -> BuildResult {
    let failure = Failure {
        stage: Stage::Build,
        kind: FailureKind::Cancelled,
        message: "it was cancelled".into(),
        line_number: None,
        lines: Vec::new(),
    };
    BuildResult { build, outcome: Err(failure), is_reproducible: None, provenance: None }
}

fn asked(kind: RequestKind, package: &str) -> Input {
    Input::Event(Event::Requested(Request { kind, package: package.into() }))
}

impl World {
    fn new(edges: &[(&str, &str)], slots: u32, pace: Pace) -> World {
        let mut graph = Graph::new();
        for (package, dependency) in edges {
            let (package, dependency) = (graph.add(package), graph.add(dependency));
            graph.depend(package, dependency);
        }
        let works = vec![Work::serial(1.0, Basis::Recorded); graph.len()];
        let starts = vec![start(); graph.len()];
        let limits = Limits { slots_max: Some(slots), ..Limits::default() };
        let scheduler = Scheduler::without_machines(Arc::new(graph), works, limits).unwrap();
        let hello = Hello {
            worker: "one".into(),
            process: "p".into(),
            versions: Versions::OURS,
            // The coordinator adds one.
            cores: (slots - 1).max(1),
            speed: 1.0,
            memory_bytes: None,
            disk_bytes: None,
            host: None,
            warm: Vec::new(),
            kept: Vec::new(),
        };
        let attempts = Attempts::new([7; Attempts::SECRET_BYTES]);
        let coordinator = Coordinator::new(1, starts, scheduler.clone(), 1, attempts);
        World {
            twin: coordinator.clone(),
            driver: Driver::new(coordinator, scheduler),
            pace,
            now_seconds: 0.0,
            coming: BTreeMap::new(),
            count: 0,
            commits: 0,
            store: Vec::new(),
            agent: Agent::new(hello),
            is_silent: false,
            building: BTreeMap::new(),
            performed: Vec::new(),
            tasks: Vec::new(),
            decided: Vec::new(),
            ended: None,
        }
    }

    fn id(&self, name: &str) -> PackageId {
        let graph = self.driver.scheduler.graph();
        graph.find(name).unwrap()
    }

    fn state(&self, name: &str) -> PackageState {
        self.driver.coordinator().state(self.id(name))
    }

    fn after(&mut self, seconds: f64, coming: Coming) {
        self.count += 1;
        let microseconds = ((self.now_seconds + seconds) * 1e6).round() as u64;
        self.coming.insert((microseconds, self.count), coming);
    }

    /// Applies an input now.
    fn apply(&mut self, input: Input) {
        // The twin gets the same, except for stale answers.
        if let Input::Event(event) = &input {
            self.pass_to_twin(event.clone());
        }
        if let Input::Prepared { package, prepared } = &input {
            let preparing = self.driver.preparing.as_ref();
            if preparing.is_some_and(|one| one.package == *package && !one.is_stale) {
                self.pass_to_twin(Event::Prepared { package: *package, prepared: prepared.clone() });
            }
        }
        let mut tasks = Vec::new();
        self.driver.apply(self.now_seconds, input, &mut tasks);
        for task in tasks {
            self.tasks.push(task.clone());
            self.task(task);
        }
    }

    fn pass_to_twin(&mut self, event: Event) {
        if event == Event::Tick {
            self.renew_of_twin();
        }
        let mut actions = Vec::new();
        self.twin.apply(self.now_seconds, event, &mut actions);
        let is_compared = |action: &Action| {
            !matches!(action, Action::Record(_) | Action::Prepare { .. }) && !is_cancel(action)
        };
        self.decided.extend(actions.into_iter().filter(is_compared));
    }

    /// Leases that have not begun do not lapse.
    fn renew_of_twin(&mut self) {
        let performed = self.performed.iter().filter(|action| matches!(action, Action::Grant(_))).count();
        let decided = self.decided.iter().filter_map(|action| match action {
            Action::Grant(granted) => Some(granted.build),
            _ => None,
        });
        for build in decided.skip(performed) {
            self.twin.renew(self.now_seconds, build);
        }
    }

    fn task(&mut self, task: Task) {
        match task {
            Task::Commit(records) => {
                self.commits += 1;
                let failure = self.pace.fails.iter().find(|(number, _)| *number == self.commits);
                let refusal = match failure {
                    Some((_, refusal)) => Some(*refusal),
                    None if self.pace.is_full.contains(&self.now_seconds) => Some(Refusal::NoRoom),
                    None => None,
                };
                let coming = match refusal {
                    Some(refusal) => Coming::Input(Input::NotCommitted(refusal)),
                    None => Coming::Stored(records),
                };
                self.after(self.pace.commit_seconds, coming);
            }
            Task::Prepare(ToPrepare { package, .. }) => {
                let prepared = to_build();
                let input = Input::Prepared { package, prepared };
                self.after(self.pace.prepare_seconds, Coming::Input(input));
            }
            Task::Reload => {
                let loaded = self.loaded();
                self.after(0.1, Coming::Input(Input::Loaded(Box::new(loaded))));
            }
            Task::GiveUp => self.ended = Some(Err(())),
            Task::Perform(action) => self.perform(action),
            Task::NoRoom | Task::Reloading => {}
        }
    }

    /// Performs an action, whose records the store must have.
    fn perform(&mut self, action: Action) {
        let knows = |is: &dyn Fn(&Record) -> bool| self.store.iter().any(is);
        match &action {
            Action::Record(_) | Action::Prepare { .. } => panic!("{action:?} must not be performed"),
            Action::Grant(Granted { build, .. }) => {
                let is_it =
                    |record: &Record| matches!(record, Record::BuildBegan(row) if row.number == *build);
                assert!(knows(&is_it), "build {build} begins, but is not in the store");
            }
            Action::Adopt { package, .. } => {
                let name = self.driver.scheduler.graph().name(*package);
                let is_it = |record: &Record| matches!(record, Record::Outputs(row) if row.package == name);
                assert!(knows(&is_it), "{name} is done, but not in the store");
            }
            Action::Finish(_) => {
                assert!(knows(&|record: &Record| matches!(record, Record::Run { .. })));
            }
            Action::Fetch { .. }
            | Action::Allot(_)
            | Action::Announce(_)
            | Action::Send { .. }
            | Action::Ask { .. }
            | Action::Quarantine { .. }
            | Action::Forget { .. }
            | Action::Notify(_) => {}
        }
        match &action {
            Action::Fetch { package, .. } => {
                let fetched = Event::Fetched { package: *package, stage: None, outcome: Ok(()) };
                self.after(0.01, Coming::Input(Input::Event(fetched)));
            }
            Action::Grant(granted) => {
                self.twin.renew(self.now_seconds, granted.build);
                let (session, lease) = (granted.session, Box::new(granted.lease(1, 0, false)));
                self.say(&ToWorker::Grant { session, lease });
            }
            Action::Send { message, .. } => self.say(message),
            Action::Ask { built, .. } => {
                let (build, is_repeated, outputs) = (built.build, built.is_repeated, built.outputs.clone());
                let answer = Box::new(Answer::keep(outputs));
                let answered = Event::Answered { build, is_repeated, answer, deposit: None };
                self.after(0.01, Coming::Input(Input::Event(answered)));
            }
            Action::Finish(state) => self.ended = Some(Ok(*state)),
            _ => {}
        }
        self.performed.push(action);
    }

    /// The run's state in the store.
    fn loaded(&self) -> Loaded {
        let graph = self.driver.scheduler.graph().clone();
        let run = Reloaded { starts: vec![start(); graph.len()], open: Vec::new(), next_build: 1 };
        let mut loaded = Loaded { run, outputs: Vec::new(), epoch: 1 };
        for record in &self.store {
            match record {
                Record::Package { name, state, reason, .. } => {
                    let begins =
                        matches!(state, PackageState::Waiting | PackageState::Ready | PackageState::Building);
                    let at = &mut loaded.run.starts[graph.find(name).unwrap().index()];
                    at.state = if begins { PackageState::Waiting } else { *state };
                    at.reason.clone_from(reason);
                }
                Record::BuildBegan(row) => {
                    loaded.run.next_build = loaded.run.next_build.max(row.number + 1);
                    loaded.run.open.push(((**row).clone(), Reason::FirstBuild));
                }
                Record::BuildEnded { build, .. } => loaded.run.open.retain(|(row, _)| row.number != *build),
                Record::StageEnded { build, stage, .. } => {
                    let row = loaded.run.open.iter_mut().find(|(row, _)| row.number == *build);
                    row.unwrap().0.stages.push((**stage).clone());
                }
                Record::Outputs(row) => {
                    loaded.outputs.push((graph.find(&row.package).unwrap(), row.outputs.clone()));
                }
                _ => {}
            }
        }
        loaded
    }

    /// Processes scheduled inputs until this time or the end of the run.
    fn pass_until(&mut self, end_seconds: f64) {
        let mut ticked_seconds = self.now_seconds;
        while self.ended.is_none() && self.now_seconds < end_seconds {
            let next = self.coming.first_key_value().map_or(f64::INFINITY, |((at, _), _)| *at as f64 / 1e6);
            if ticked_seconds + TICK_SECONDS <= next {
                ticked_seconds += TICK_SECONDS;
                self.now_seconds = ticked_seconds;
                self.apply(Input::Event(Event::Tick));
                self.pass_to_agent(ToAgent::Tick);
                continue;
            }
            let (_, coming) = self.coming.pop_first().unwrap();
            self.now_seconds = next.max(self.now_seconds);
            match coming {
                Coming::Input(input) => self.apply(input),
                Coming::Stored(records) => {
                    self.store.extend(records.iter().cloned());
                    self.apply(Input::Committed);
                }
                Coming::Over(build) => self.is_over(build),
            }
        }
    }

    /// Passes a message to the worker, through JSON.
    fn say(&mut self, message: &ToWorker) {
        let message = decode(&encode(message).unwrap()).unwrap();
        self.pass_to_agent(ToAgent::Received(Box::new(message)));
    }

    fn pass_to_agent(&mut self, event: ToAgent) {
        if self.is_silent {
            return;
        }
        let mut actions = Vec::new();
        self.agent.apply(self.now_seconds, event, &mut actions);
        for action in actions {
            match action {
                OfAgent::Send(message) => {
                    let message = Box::new(open::<ToCoordinator>(&encode(&message).unwrap()).unwrap());
                    let heard = Event::Received { from: Channel(0), message };
                    self.after(WIRE_SECONDS, Coming::Input(Input::Event(heard)));
                }
                OfAgent::Begin(lease) => {
                    self.building
                        .insert(lease.build, Building { attempt: lease.attempt, is_cancelled: false });
                    self.after(self.pace.build_seconds, Coming::Over(lease.build));
                }
                OfAgent::Cancel(attempt) => {
                    let one = self.building.iter_mut().find(|(_, building)| building.attempt == attempt);
                    let (build, building) = one.expect("only running builds are cancelled");
                    building.is_cancelled = true;
                    let build = *build;
                    self.after(1.0, Coming::Over(build));
                }
                OfAgent::Answer { attempt, .. } => self.ends(attempt, good),
                OfAgent::Prepare(_)
                | OfAgent::Abandon(_)
                | OfAgent::Allot(_)
                | OfAgent::Deliver(_)
                | OfAgent::Leave(_) => {}
            }
        }
    }

    fn is_over(&mut self, build: Number) {
        let Some(Building { attempt, is_cancelled }) = self.building.get(&build) else { return };
        let attempt = *attempt;
        match is_cancelled {
            true => self.ends(attempt, cancelled),
            false => {
                let built = Built { build, outputs: outputs(build), is_repeated: false };
                self.pass_to_agent(ToAgent::Built { attempt, built });
            }
        }
    }

    fn ends(&mut self, attempt: Attempt, result: fn(Number) -> BuildResult) {
        let build = self.building.iter().find(|(_, building)| building.attempt == attempt);
        let Some(build) = build.map(|(build, _)| *build) else { return };
        self.building.remove(&build);
        self.pass_to_agent(ToAgent::Ended { attempt, result: Box::new(result(build)) });
    }

    /// Whether the worker was asked to end a build.
    fn is_asked_to_cancel(&self, build: Number) -> bool {
        let granted = self.performed.iter().find_map(|action| match action {
            Action::Grant(granted) if granted.build == build => Some(granted.attempt),
            _ => None,
        });
        self.performed.iter().any(|action| match action {
            Action::Send { message: ToWorker::Cancel { attempt, .. }, .. } => Some(*attempt) == granted,
            _ => false,
        })
    }

    /// Finishes the commit in progress.
    fn commit(&mut self) {
        let last = self.tasks.iter().rev().find_map(|task| match task {
            Task::Commit(records) => Some(records.clone()),
            _ => None,
        });
        self.store.extend(last.unwrap().iter().cloned());
        self.apply(Input::Committed);
    }

    fn begin(&mut self) {
        self.apply(Input::Event(Event::Begin));
        self.pass_to_agent(ToAgent::Tick);
    }

    /// The number of builds recorded with this outcome.
    fn count(&self, outcome: &BuildOutcome) -> usize {
        let is_it = |record: &&Record| matches!(record, Record::BuildEnded { outcome: other, .. } if other == outcome);
        self.store.iter().filter(is_it).count()
    }

    /// Asserts that actions were performed in the order of their decisions, and none is missing.
    fn check_order(&self) {
        let performed: Vec<&Action> = self.performed.iter().filter(|action| !is_cancel(action)).collect();
        assert_eq!(performed, self.decided.iter().collect::<Vec<_>>());
    }
}

fn is_cancel(action: &Action) -> bool {
    matches!(action, Action::Send { message: ToWorker::Cancel { .. }, .. })
}
