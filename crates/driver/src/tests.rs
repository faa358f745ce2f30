//! The driver in virtual time: a world with a store, a solver and workers that take as long as a test says.

mod failures;
mod recording;
mod slowness;

use crate::*;
use kilnyard_coordinator::{Attempts, Granted, LEASE_SECONDS, ToBuild};
use kilnyard_model::graph::Graph;
use kilnyard_model::order::{BuildOrder, FamilyOrder, Key, RootOrder, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, PackageState};
use kilnyard_protocol::Progress;
use kilnyard_schedule::{Basis, Limits, Machine, Work};
use kilnyard_store::{RequestKind, RunState};
use std::collections::BTreeMap;
use std::ops::Range;

/// How often a worker says that a build goes on.
const ALIVE_SECONDS: f64 = 20.0;
/// How often time goes by.
const TICK_SECONDS: f64 = 1.0;

/// How long everything takes.
struct Pace {
    commit_seconds: f64,
    prepare_seconds: f64,
    build_seconds: f64,
    /// When the disk is full.
    is_full: Range<f64>,
    /// The commits that fail, by their number from 1.
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

/// What comes to the driver at some time.
enum Coming {
    Input(Input),
    /// The store has written this, or has not.
    Stored(Arc<[Record]>),
    /// A worker goes on with this build, which ends at this time.
    Building(Number, f64),
}

struct World {
    driver: Driver,
    pace: Pace,
    now_seconds: f64,
    /// What comes when, in microseconds, and in the order in which it was sent.
    coming: BTreeMap<(u64, u64), Coming>,
    count: u64,
    commits: usize,
    store: Vec<Record>,
    /// Builds at work, and whether somebody ended them.
    building: BTreeMap<Number, bool>,
    performed: Vec<Action>,
    tasks: Vec<Task>,
    /// The same coordinator, which is driven by nobody, and what it decided: to compare the order.
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

/// A build.
fn to_build() -> Prepared {
    let order = BuildOrder {
        package: String::new(),
        version: "1".into(),
        family: FamilyOrder::default(),
        key: Key { digest: "k".into(), lines: Vec::new() },
        root: RootOrder::default(),
        work: None,
        fetch: None,
        stages: Vec::new(),
        clients: Vec::new(),
        fakeroots: Vec::new(),
        output_folder: String::new(),
    };
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
    }]
}

fn good(build: Number) -> Input {
    Input::Event(Event::Ended(BuildResult { build, outcome: Ok(outputs(build)), is_reproducible: None }))
}

fn cancelled(build: Number) -> Input {
    let failure = Failure {
        stage: Stage::Build,
        kind: FailureKind::Cancelled,
        message: "it was cancelled".into(),
        line_number: None,
        lines: Vec::new(),
    };
    Input::Event(Event::Ended(BuildResult { build, outcome: Err(failure), is_reproducible: None }))
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
        let machines = vec![Machine::of_cores(slots)];
        let scheduler = Scheduler::new(Arc::new(graph), works, machines, Limits::default()).unwrap();
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

    /// Applies what happens now.
    fn apply(&mut self, input: Input) {
        // The twin hears the same, but for what a stale answer says.
        if let Input::Event(event) = &input {
            self.tell_twin(event.clone());
        }
        if let Input::Prepared { package, prepared } = &input {
            let preparing = self.driver.preparing.as_ref();
            if preparing.is_some_and(|one| one.package == *package && !one.is_stale) {
                self.tell_twin(Event::Prepared { package: *package, prepared: prepared.clone() });
            }
        }
        let mut tasks = Vec::new();
        self.driver.apply(self.now_seconds, input, &mut tasks);
        for task in tasks {
            self.tasks.push(task.clone());
            self.task(task);
        }
    }

    fn tell_twin(&mut self, event: Event) {
        if event == Event::Tick {
            self.renew_of_twin();
        }
        let mut actions = Vec::new();
        self.twin.apply(self.now_seconds, event, &mut actions);
        let is_compared = |action: &Action| {
            !matches!(action, Action::Record(_) | Action::Prepare { .. } | Action::Cancel { .. })
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
                assert!(self.building.values().all(|is_cancelled| *is_cancelled), "builds were left alone");
                let loaded = self.loaded();
                self.after(0.1, Coming::Input(Input::Loaded(Box::new(loaded))));
            }
            Task::GiveUp => self.ended = Some(Err(())),
            Task::Perform(action) => self.perform(action),
            Task::Ended(_) | Task::NoRoom | Task::Reloading => {}
        }
    }

    /// Performs an action, of which the store must know.
    fn perform(&mut self, action: Action) {
        let knows = |is: &dyn Fn(&Record) -> bool| self.store.iter().any(is);
        match &action {
            Action::Record(_) | Action::Prepare { .. } => panic!("{action:?} is not to be performed"),
            Action::Tell(kilnyard_coordinator::Notice::State { package, state, .. }) => {
                let name = self.driver.scheduler.graph().name(*package);
                let is_it = |record: &Record| matches!(record, Record::Package { name: n, state: s, .. } if n == name && s == state);
                assert!(knows(&is_it), "{name} is {state} and the store does not know");
            }
            Action::Grant(Granted { build, .. }) => {
                let is_it =
                    |record: &Record| matches!(record, Record::BuildBegan(row) if row.number == *build);
                assert!(knows(&is_it), "build {build} begins and the store does not know");
            }
            Action::Adopt { package, .. } => {
                let name = self.driver.scheduler.graph().name(*package);
                let is_it = |record: &Record| matches!(record, Record::Outputs(row) if row.package == name);
                assert!(knows(&is_it), "{name} is there and the store does not know");
            }
            Action::Finish(_) => {
                assert!(knows(&|record: &Record| matches!(record, Record::Run { .. })));
            }
            Action::Fetch { .. }
            | Action::Allot(_)
            | Action::Cancel { .. }
            | Action::Send { .. }
            | Action::Ask { .. }
            | Action::Tell(_) => {}
        }
        match &action {
            Action::Fetch { package, .. } => {
                let fetched = Event::Fetched { package: *package, stage: None, outcome: Ok(()) };
                self.after(0.01, Coming::Input(Input::Event(fetched)));
            }
            Action::Grant(Granted { build, .. }) => {
                self.twin.renew(self.now_seconds, *build);
                self.building.insert(*build, false);
                let ends_seconds = self.now_seconds + self.pace.build_seconds;
                self.after(ALIVE_SECONDS, Coming::Building(*build, ends_seconds));
            }
            Action::Cancel { build } => {
                if let Some(is_cancelled) = self.building.get_mut(build) {
                    *is_cancelled = true;
                    self.after(1.0, Coming::Input(cancelled(*build)));
                }
            }
            Action::Finish(state) => self.ended = Some(Ok(*state)),
            _ => {}
        }
        self.performed.push(action);
    }

    /// The run as the store holds it.
    fn loaded(&self) -> Loaded {
        let graph = self.driver.scheduler.graph().clone();
        let mut loaded = Loaded { starts: vec![start(); graph.len()], outputs: Vec::new(), next_build: 1 };
        for record in &self.store {
            match record {
                Record::Package { name, state, reason, .. } => {
                    let begins =
                        matches!(state, PackageState::Waiting | PackageState::Ready | PackageState::Building);
                    let at = &mut loaded.starts[graph.find(name).unwrap().index()];
                    at.state = if begins { PackageState::Waiting } else { *state };
                    at.reason.clone_from(reason);
                }
                Record::BuildBegan(row) => loaded.next_build = loaded.next_build.max(row.number + 1),
                Record::Outputs(row) => {
                    loaded.outputs.push((graph.find(&row.package).unwrap(), row.outputs.clone()));
                }
                _ => {}
            }
        }
        loaded
    }

    /// Lets what comes come, until this time or the run's end.
    fn pass_until(&mut self, end_seconds: f64) {
        let mut ticked_seconds = self.now_seconds;
        while self.ended.is_none() && self.now_seconds < end_seconds {
            let next = self.coming.first_key_value().map_or(f64::INFINITY, |((at, _), _)| *at as f64 / 1e6);
            if ticked_seconds + TICK_SECONDS <= next {
                ticked_seconds += TICK_SECONDS;
                self.now_seconds = ticked_seconds;
                self.apply(Input::Event(Event::Tick));
                continue;
            }
            let (_, coming) = self.coming.pop_first().unwrap();
            self.now_seconds = next.max(self.now_seconds);
            match coming {
                Coming::Input(input) => {
                    if let Input::Event(Event::Ended(result)) = &input {
                        self.building.remove(&result.build);
                    }
                    self.apply(input);
                }
                Coming::Stored(records) => {
                    self.store.extend(records.iter().cloned());
                    self.apply(Input::Committed);
                }
                Coming::Building(build, ends_seconds) => self.go_on(build, ends_seconds),
            }
        }
    }

    fn go_on(&mut self, build: Number, ends_seconds: f64) {
        if self.building.get(&build) != Some(&false) {
            return;
        }
        if self.now_seconds >= ends_seconds {
            self.building.remove(&build);
            self.apply(Input::Admitted { build, outputs: outputs(build) });
            self.apply(good(build));
        } else {
            self.apply(Input::Event(Event::Progress { build, progress: Progress::Alive }));
            self.after(ALIVE_SECONDS, Coming::Building(build, ends_seconds));
        }
    }

    /// Lets the store have what it was given last.
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
    }

    /// How many builds are recorded to have ended so.
    fn count(&self, outcome: &BuildOutcome) -> usize {
        let is_it = |record: &&Record| matches!(record, Record::BuildEnded { outcome: other, .. } if other == outcome);
        self.store.iter().filter(is_it).count()
    }

    /// What was performed came in the order in which it was decided, and nothing is missing.
    fn check_order(&self) {
        let performed: Vec<&Action> =
            self.performed.iter().filter(|action| !matches!(action, Action::Cancel { .. })).collect();
        assert_eq!(performed, self.decided.iter().collect::<Vec<_>>());
    }
}
