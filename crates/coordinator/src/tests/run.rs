//! A run with one worker, whose messages the tests send.

use crate::*;
use kilnyard_model::order::{Key, Stage};
use kilnyard_model::result::FailureKind;
use kilnyard_protocol::{
    BuildPhase, Held, Hello, Offer, Reports, Test, VERSION, Versions, encode, encode_as, open,
};
use kilnyard_schedule::{Basis, Limits, Pressure, Work};
use kilnyard_store::RequestKind;
use std::collections::{BTreeMap, VecDeque};

/// A run with one worker, whose messages the tests write.
pub struct Run {
    pub coordinator: Coordinator,
    pub actions: Vec<Action>,
    pub now_seconds: f64,
    pub worker: Worker,
    /// The session of a second worker, if there is one.
    second: Option<Session>,
    /// How outputs are tested.
    pub test: Test,
    /// How builds use kept work, and why they are made.
    pub keep: Option<KeepOrder>,
    pub reason: Reason,
    /// The kept work that workers report when they join.
    pub kept: Vec<String>,
    /// The cores that its offers name.
    pub cores: Option<u32>,
    /// Whether results wait until outputs are stored.
    pub awaits_deposits: bool,
    /// What builds require in addition, as the answers to them say.
    pub requires: Option<Vec<String>>,
    /// What packages have to wait for, too, when they are prepared next.
    pub waits: BTreeMap<PackageId, Vec<PackageId>>,
}

/// The state of the run's worker.
pub struct Worker {
    pub cores: u32,
    /// How many times it was started.
    pub processes: u32,
    pub session: Session,
    pub offers: u64,
    pub pressure: Pressure,
    pub attempts: BTreeMap<Number, Attempt>,
    /// The number of its reports on each build.
    pub reports: BTreeMap<Number, u64>,
    pub held: Vec<Attempt>,
    /// The capabilities that its messages list.
    pub capabilities: Vec<String>,
}

/// An event or a message for the coordinator.
pub enum Incoming {
    Event(Event),
    Progress(Number, Progress),
    Ended(BuildResult),
    Pressure(Pressure),
}

impl From<Event> for Incoming {
    fn from(event: Event) -> Incoming {
        Incoming::Event(event)
    }
}

pub fn start() -> Start {
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

/// The prepared build of a package.
pub fn to_build() -> Prepared {
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

pub fn attempts() -> Attempts {
    Attempts::new([7; Attempts::SECRET_BYTES])
}

/// Every package takes a second on one core.
pub fn scheduler(graph: Graph, slots: u32) -> Scheduler {
    let works = vec![Work::serial(1.0, Basis::Recorded); graph.len()];
    let limits = Limits { slots_max: Some(slots), ..Limits::default() };
    Scheduler::without_machines(Arc::new(graph), works, limits).unwrap()
}

pub fn answer(outputs: Vec<Output>) -> Answer {
    Answer::keep(outputs)
}

impl Run {
    pub fn new(edges: &[(&str, &str)], slots: u32) -> Run {
        let mut graph = Graph::new();
        for (package, dependency) in edges {
            let (package, dependency) = (graph.add(package), graph.add(dependency));
            graph.depend(package, dependency);
        }
        Run::of(
            Coordinator::new(1, vec![start(); graph.len()], scheduler(graph, slots), 1, attempts()),
            slots,
        )
    }

    /// A run of this coordinator, with a worker on a machine whose builds share as many cores as there are slots.
    pub fn of(coordinator: Coordinator, slots: u32) -> Run {
        let worker = Worker {
            // The coordinator adds one.
            cores: (slots - 1).max(1),
            processes: 0,
            session: Session::from(Attempt::from_bytes([0; 16])),
            offers: 0,
            pressure: Pressure::Low,
            attempts: BTreeMap::new(),
            reports: BTreeMap::new(),
            held: Vec::new(),
            capabilities: Vec::new(),
        };
        let coordinator = coordinator.with_own_machine("kiln-1".to_owned(), slots, None);
        let mut run = Run {
            coordinator,
            actions: Vec::new(),
            now_seconds: 0.0,
            worker,
            second: None,
            test: Test::Skip,
            keep: None,
            reason: Reason::FirstBuild,
            kept: Vec::new(),
            cores: None,
            awaits_deposits: false,
            requires: None,
            waits: BTreeMap::new(),
        };
        run.starts_worker();
        run
    }

    /// The worker is started, again if it was before: it says hello and makes an offer.
    pub fn starts_worker(&mut self) -> Vec<(Number, String)> {
        self.worker.processes += 1;
        self.worker.held.clear();
        self.worker.offers = 0;
        self.worker.session = self.greet("kiln-1", &self.worker.processes.to_string());
        self.send(Incoming::Pressure(self.worker.pressure))
    }

    /// The worker says hello again, with the builds that it has.
    pub fn rejoins(&mut self) -> Vec<(Number, String)> {
        self.worker.offers = 0;
        self.worker.session = self.greet("kiln-1", &self.worker.processes.to_string());
        self.send(Incoming::Pressure(self.worker.pressure))
    }

    /// Says hello as a worker. Returns its session.
    fn greet(&mut self, worker: &str, process: &str) -> Session {
        let hello = Hello {
            worker: worker.to_owned(),
            process: process.to_owned(),
            versions: Versions::OURS,
            cores: self.worker.cores,
            speed: 1.0,
            memory_bytes: None,
            disk_bytes: None,
            host: None,
            warm: Vec::new(),
            kept: self.kept.clone(),
        };
        self.say(ToCoordinator::Hello(hello));
        let welcome = self.actions.iter().rev().find_map(|action| match action {
            Action::Send { message: ToWorker::Welcome(welcome), .. } => Some(welcome.session),
            _ => None,
        });
        welcome.unwrap()
    }

    /// A second worker is started.
    pub fn starts_another(&mut self, worker: &str) -> Vec<(Number, String)> {
        let session = self.greet(worker, "other");
        self.second = Some(session);
        self.say(ToCoordinator::Offer(Offer {
            session,
            number: 1,
            held: Vec::new(),
            slots_free: 0,
            pressure: Pressure::Low,
            takes_more: true,
            cores: None,
        }))
    }

    pub fn second_session(&self) -> Session {
        self.second.unwrap()
    }

    /// The second worker reports a failure.
    pub fn fails_another(&mut self, build: Number, kind: FailureKind) -> Vec<(Number, String)> {
        let (session, attempt) = (self.second.unwrap(), self.worker.attempts[&build]);
        let Incoming::Ended(result) = bad(build, kind) else { unreachable!() };
        self.say(ToCoordinator::Result { session, attempt, result: Box::new(result) })
    }

    /// Whether a build was granted to the second worker.
    pub fn is_of_second(&self, build: Number) -> bool {
        self.actions.iter().any(|action| {
            matches!(action, Action::Grant(granted) if granted.build == build && granted.machine == MachineId(1))
        })
    }

    /// The second worker built outputs, and reports the result.
    pub fn builds_another(&mut self, build: Number, outputs: Vec<Output>) -> Vec<(Number, String)> {
        let (session, attempt) = (self.second.unwrap(), self.worker.attempts[&build]);
        let built = Built { build, outputs: outputs.clone(), is_repeated: false };
        self.say(ToCoordinator::Built { session, attempt, built });
        let result =
            Box::new(BuildResult { build, outcome: Ok(outputs), is_reproducible: None, provenance: None });
        self.say(ToCoordinator::Result { session, attempt, result })
    }

    /// Makes the worker one on another machine than the coordinator's.
    pub fn elsewhere(mut self) -> Run {
        self.coordinator = self.coordinator.with_own_machine("own".to_owned(), 1, None);
        self
    }

    /// Lets the worker's messages list these capabilities.
    pub fn with_capabilities(mut self, capabilities: &[&str]) -> Run {
        self.worker.capabilities = capabilities.iter().map(|text| (*text).to_owned()).collect();
        self.send(Incoming::Pressure(Pressure::Low));
        self
    }

    pub fn say(&mut self, message: ToCoordinator) -> Vec<(Number, String)> {
        self.send(received(message))
    }

    /// The event of this message of the worker.
    pub fn event(&mut self, incoming: Incoming) -> Event {
        let session = self.worker.session;
        let unknown = Attempt::from_bytes([1; 16]);
        let attempt = |run: &Run, build| run.worker.attempts.get(&build).copied().unwrap_or(unknown);
        let message = match incoming {
            Incoming::Event(event) => return event,
            Incoming::Progress(build, progress) => {
                let attempt = attempt(self, build);
                let said = self.worker.reports.entry(build).or_default();
                *said += 1;
                let reports = vec![progress];
                ToCoordinator::Progress(Reports { session, attempt, first: *said - 1, reports })
            }
            Incoming::Ended(result) => {
                let attempt = attempt(self, result.build);
                self.worker.held.retain(|held| *held != attempt);
                ToCoordinator::Result { session, attempt, result: Box::new(result) }
            }
            Incoming::Pressure(pressure) => {
                self.worker.pressure = pressure;
                self.worker.offers += 1;
                let held = self.worker.held.iter();
                ToCoordinator::Offer(Offer {
                    session,
                    number: self.worker.offers,
                    held: held
                        .map(|attempt| Held { attempt: *attempt, phase: BuildPhase::Building })
                        .collect(),
                    slots_free: 0,
                    pressure,
                    takes_more: true,
                    cores: self.cores,
                })
            }
        };
        let bytes = encode_as(VERSION, &self.worker.capabilities, &message).unwrap();
        Event::Received { from: Channel(3), message: Box::new(open(&bytes).unwrap()) }
    }

    /// Whether the worker was asked to end a build.
    pub fn is_cancelled(&self, build: Number) -> bool {
        let attempt = self.worker.attempts[&build];
        self.actions.iter().any(|action| {
            matches!(action, Action::Send { message: ToWorker::Cancel { attempt: a, .. }, .. } if *a == attempt)
        })
    }

    pub fn id(&self, name: &str) -> PackageId {
        self.coordinator.graph.find(name).unwrap()
    }

    /// Lets time pass without messages. Returns the grants.
    pub fn pass(&mut self, seconds: f64) -> Vec<(Number, String)> {
        let end = self.now_seconds + seconds;
        let mut granted = Vec::new();
        while self.now_seconds < end {
            self.now_seconds = (self.now_seconds + 1.0).min(end);
            granted.extend(self.send(Event::Tick));
        }
        granted
    }

    pub fn state(&self, name: &str) -> PackageState {
        self.coordinator.state(self.id(name))
    }

    /// Applies an event, and answers questions immediately: all packages have to be built, all files are
    /// there. Returns the grants.
    pub fn send(&mut self, incoming: impl Into<Incoming>) -> Vec<(Number, String)> {
        let mut grants = Vec::new();
        let mut events = VecDeque::from([self.event(incoming.into())]);
        while let Some(event) = events.pop_front() {
            let mut actions = Vec::new();
            self.coordinator.apply(self.now_seconds, event, &mut actions);
            for (state, count) in self.coordinator.counts() {
                let in_it = self.coordinator.packages.iter().filter(|p| p.is_in_run && p.state == state);
                assert_eq!(count, in_it.count() as u64, "{state}");
            }
            for action in &actions {
                match action {
                    Action::Prepare { package, .. } if self.waits.contains_key(package) => {
                        let prepared = Prepared::Waits(self.waits.remove(package).unwrap());
                        events.push_back(Event::Prepared { package: *package, prepared });
                    }
                    Action::Prepare { package, .. } => {
                        let mut prepared = to_build();
                        if let Prepared::Build(to_build) = &mut prepared {
                            to_build.order.keep.clone_from(&self.keep);
                            to_build.reason = self.reason.clone();
                        }
                        events.push_back(Event::Prepared { package: *package, prepared });
                    }
                    Action::Fetch { package, .. } => {
                        events.push_back(Event::Fetched { package: *package, stage: None, outcome: Ok(()) })
                    }
                    Action::Grant(Granted { build, attempt, package, .. }) => {
                        self.worker.attempts.insert(*build, *attempt);
                        self.worker.held.push(*attempt);
                        grants.push((*build, self.coordinator.graph.name(*package).to_owned()));
                    }
                    Action::Ask { built: Built { build, outputs, is_repeated }, .. } => {
                        let (build, is_repeated) = (*build, *is_repeated);
                        let test = self.test.clone();
                        let answer = Box::new(match self.requires.clone() {
                            None => Answer { test, ..answer(outputs.clone()) },
                            requires => Answer { requires, ..Answer::refuse("it requires more".to_owned()) },
                        });
                        events.push_back(Event::Answered {
                            build,
                            is_repeated,
                            answer,
                            deposit: self.awaits_deposits.then_some(build),
                        });
                    }
                    _ => {}
                }
            }
            self.actions.extend(actions);
        }
        grants
    }

    pub fn finished(&self) -> Option<RunState> {
        self.actions.iter().find_map(|action| match action {
            Action::Finish(state) => Some(*state),
            _ => None,
        })
    }
}

pub fn output(name: &str, content: &str) -> Output {
    Output {
        name: name.into(),
        version: "1".into(),
        architecture: "amd64".into(),
        file: name.into(),
        sha256: content.into(),
        size_bytes: 1,
        content: content.into(),
        description: String::new(),
        digests: Default::default(),
    }
}

/// A message, passed through JSON.
pub fn received(message: ToCoordinator) -> Event {
    let message = Box::new(open(&encode(&message).unwrap()).unwrap());
    Event::Received { from: Channel(3), message }
}

pub fn good(build: Number) -> Incoming {
    let outcome = Ok(vec![output("x", &build.to_string())]);
    Incoming::Ended(BuildResult { build, outcome, is_reproducible: None, provenance: None })
}

pub fn bad(build: Number, kind: FailureKind) -> Incoming {
    let failure =
        Failure { stage: Stage::Build, kind, message: "no".into(), line_number: None, lines: Vec::new() };
    Incoming::Ended(BuildResult { build, outcome: Err(failure), is_reproducible: None, provenance: None })
}

pub fn asked(kind: RequestKind, package: &str) -> Event {
    Event::Requested(Request { kind, package: package.into() })
}
