//! The world around the coordinator and the agents: time, network, store, threads and disasters.

#[path = "trouble.rs"]
mod trouble;

use crate::memory::{History, Memory};
use crate::random::Random;
use crate::worker::{Done, Due, Fates, Process, failure, name};
use kilnyard_agent::Event as AgentEvent;
use kilnyard_coordinator::{
    Action, Attempts, Channel, Coordinator, Event, Granted, NotStored, Prepared, RetryPolicy, Standing,
    Start, ToBuild,
};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::{BuildOrder, FamilyOrder, Key, RootOrder, Stage, StageOrder, TestOrder};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, FailureKind, PackageState};
use kilnyard_model::role::Role;
use kilnyard_protocol::{
    ANNOUNCED, Answer, Session, Test, ToCoordinator, ToWorker, VERSION, decode, encode, encode_as, open,
};
use kilnyard_schedule::{Basis, Limits, Scheduler, Work};
use kilnyard_store::{Record, RunState};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

const WORKERS: usize = 3;
/// The contents of outputs that a lying worker claims.
const LIE: &str = "poison";
/// How much clocks differ, in seconds.
const CLOCKS_SECONDS_MAX: f64 = 3.0 * 3600.0;
/// The worker that builds and does not test, in a world with pools.
const BUILDS_ONLY: usize = 1;
/// The worker whose pool is not trusted.
const UNTRUSTED: usize = 2;
const TICK_SECONDS: f64 = 2.0;
/// After this time, nothing is killed, paused or cut off.
const CALM_SECONDS: f64 = 1500.0;
/// A run that has not ended by this time counts as endless.
const END_SECONDS: f64 = 20_000.0;
const CAPABILITY: &str = "family:made-up";

/// A defect around the shipped types, which a check must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A result of an ended lease is taken for that of the current lease.
    Unfenced,
    /// Decisions are performed before they are recorded.
    ActsBeforeRecording,
    /// A store forgets its last transactions when the coordinator dies.
    StoreForgets,
    /// A worker sends a result only once.
    ResultsAreSaidOnce,
    /// A restarted coordinator has the secret of its predecessor.
    SameSecret,
}

/// The harshness of a world.
#[derive(Clone, Debug)]
pub struct Setting {
    drops_per_mille: u64,
    repeats_per_mille: u64,
    late_per_mille: u64,
    disasters: Vec<Disaster>,
    /// How many of a thousand messages of the worker whose pool is not trusted are lies.
    lies_per_mille: u64,
    /// The mean interval between disasters.
    disaster_seconds: f64,
    fates: Fates,
    /// Whether workers have pools and roles, and packages are verified.
    has_pools: bool,
    flaw: Option<Flaw>,
    is_traced: bool,
}

impl Setting {
    pub fn rough() -> Setting {
        use Disaster::{Cut, Drain, FillDisk, KillBoss, KillWorker, PauseBoss, PauseWorker, Press};
        Setting {
            drops_per_mille: 100,
            repeats_per_mille: 100,
            late_per_mille: 50,
            lies_per_mille: 30,
            disasters: vec![KillWorker, KillBoss, PauseWorker, PauseBoss, Cut, Cut, Drain, Press, FillDisk],
            disaster_seconds: 100.0,
            fates: Fates { build_seconds_max: 250.0, failures_per_mille: 80 },
            has_pools: true,
            flaw: None,
            is_traced: true,
        }
    }

    /// The network loses nothing, and the coordinator returns within the time of a lease.
    pub fn only_the_coordinator_dies() -> Setting {
        Setting {
            drops_per_mille: 0,
            late_per_mille: 0,
            lies_per_mille: 0,
            disasters: vec![Disaster::KillBoss],
            disaster_seconds: 60.0,
            fates: Fates { build_seconds_max: 250.0, failures_per_mille: 0 },
            has_pools: false,
            ..Setting::rough()
        }
    }

    /// Turns off the trace.
    pub fn untraced(self) -> Setting {
        Setting { is_traced: false, ..self }
    }

    pub fn with(flaw: Flaw) -> Setting {
        Setting { flaw: Some(flaw), ..Setting::rough() }
    }
}

#[derive(Clone, Copy, Debug)]
enum Disaster {
    KillWorker,
    KillBoss,
    PauseWorker,
    PauseBoss,
    Cut,
    Drain,
    Press,
    FillDisk,
}

/// Something that is due. Anything of a process belongs to one life of that process.
#[derive(Clone, Debug)]
enum SimEvent {
    ToBoss { worker: usize, bytes: Vec<u8> },
    ToWorker { worker: usize, bytes: Vec<u8> },
    BossTicks { life: u64 },
    BossStarts,
    Written { life: u64 },
    Performed { life: u64 },
    BossHears { life: u64, event: Box<Event> },
    WorkerTicks { worker: usize, life: u64 },
    WorkerStarts { worker: usize },
    DiskHasRoom { worker: usize, life: u64 },
    Steps { worker: usize, life: u64, due: Due },
    Strikes,
}

/// The decision of one event.
struct Batch {
    records: Vec<Record>,
    grants: Vec<(Granted, String)>,
    actions: Vec<Action>,
}

/// The coordinator's process.
struct Boss {
    coordinator: Coordinator,
    waiting: Vec<Batch>,
    is_writing: bool,
    recorded: Vec<Action>,
}

/// A worker's machine.
struct Place {
    process: Option<Process>,
    life: u64,
    paused_until: f64,
    cut_until: f64,
    cores: u32,
    /// What the clock of its process differs by, in seconds.
    clock_seconds: f64,
}

/// See the module documentation.
pub struct World {
    now: f64,
    queue: BTreeMap<(u64, u64), SimEvent>,
    count: u64,
    random: Random,
    setting: Setting,
    pub trace: Vec<String>,
    graph: Arc<Graph>,
    memory: Memory,
    /// The store some transactions ago.
    before: Memory,
    written: u64,
    /// The announced builds.
    announced: HashSet<Attempt>,
    history: History,
    boss: Option<Boss>,
    boss_life: u64,
    boss_paused_until: f64,
    /// What the clock of its process differs by, in seconds.
    boss_clock_seconds: f64,
    places: Vec<Place>,
    sessions: HashMap<String, Session>,
    said: HashSet<Vec<u8>>,
    /// Messages have fields of a later version of the program.
    is_later: bool,
    /// The attempts that were begun.
    begun: HashSet<Attempt>,
    complaint: Option<String>,
    finished: Option<RunState>,
}

impl World {
    pub fn new(seed: u64, setting: &Setting) -> World {
        let mut random = Random::new(seed);
        let mut graph = Graph::new();
        let ids: Vec<PackageId> =
            (0..6 + random.below(8)).map(|number| graph.add(&format!("p{number}"))).collect();
        for package in 1..ids.len() {
            for _ in 0..random.below(3) {
                graph.depend(ids[package], ids[random.below(package as u64) as usize]);
            }
        }
        let mut place = || Place {
            process: None,
            life: 0,
            paused_until: 0.0,
            cut_until: 0.0,
            clock_seconds: 0.0,
            cores: 1 + random.below(3) as u32,
        };
        let places = (0..WORKERS).map(|_| place()).collect();
        let mut world = World {
            now: 0.0,
            queue: BTreeMap::new(),
            count: 0,
            random,
            setting: setting.clone(),
            trace: Vec::new(),
            graph: Arc::new(graph),
            memory: Memory::default(),
            before: Memory::default(),
            written: 0,
            announced: HashSet::new(),
            history: History::default(),
            boss: None,
            boss_life: 0,
            boss_paused_until: 0.0,
            boss_clock_seconds: 0.0,
            places,
            sessions: HashMap::new(),
            said: HashSet::new(),
            is_later: seed.is_multiple_of(3),
            begun: HashSet::new(),
            complaint: None,
            finished: None,
        };
        world.after(0.0, SimEvent::BossStarts);
        for worker in 0..WORKERS {
            let seconds = world.random.seconds(30.0);
            world.after(seconds, SimEvent::WorkerStarts { worker });
        }
        let seconds = world.random.seconds(world.setting.disaster_seconds);
        world.after(seconds, SimEvent::Strikes);
        world
    }

    /// The number of announced builds, and of those that began where they were announced.
    pub fn announced(&self) -> (usize, usize) {
        (self.announced.len(), self.announced.intersection(&self.begun).count())
    }

    /// How many times the coordinator was started.
    pub fn coordinator_lives(&self) -> u64 {
        self.boss_life
    }

    pub fn builds_begun(&self) -> usize {
        self.begun.len()
    }

    pub fn packages(&self) -> usize {
        self.graph.len()
    }

    /// Simulates until the run ends. The error describes a violation.
    pub fn run(&mut self) -> Result<(), String> {
        while self.finished.is_none() {
            let Some(((micros, _), event)) = self.queue.pop_first() else {
                return Err("no event is pending".into());
            };
            self.now = micros as f64 / 1e6;
            if self.now > END_SECONDS {
                return Err(format!("the run does not end: {:?}", self.memory.states));
            }
            self.handle(event);
            if let Some(complaint) = self.complaint.take() {
                self.note(|| format!("WRONG: {complaint}"));
                return Err(complaint);
            }
        }
        self.check_end()
    }

    fn check_end(&self) -> Result<(), String> {
        for package in self.graph.packages() {
            let name = self.graph.name(package);
            let state = self.memory.states.get(name).copied();
            match state {
                Some(PackageState::Built) if !self.memory.current.contains_key(name) => {
                    return Err(format!("{name} was built, but its outputs are lost"));
                }
                Some(
                    PackageState::Built
                    | PackageState::UpToDate
                    | PackageState::Failed
                    | PackageState::Blocked,
                ) => {}
                _ => return Err(format!("the run ended, but {name} is {state:?}")),
            }
        }
        match self.memory.open(&self.graph).first() {
            Some(open) => Err(format!("the run ended, but build {} did not", open.build)),
            None => Ok(()),
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.setting.is_traced {
            self.trace.push(format!("{:10.3}  {}", self.now, line()));
        }
    }

    fn after(&mut self, seconds: f64, event: SimEvent) {
        self.count += 1;
        // Rounded up, so that an event is never early.
        let micros = ((self.now + seconds) * 1e6).ceil() as u64 + 1;
        self.queue.insert((micros, self.count), event);
    }

    fn handle(&mut self, event: SimEvent) {
        match event {
            SimEvent::BossStarts => self.start_boss(),
            SimEvent::WorkerStarts { worker } => {
                let place = &mut self.places[worker];
                place.life += 1;
                place.clock_seconds = self.random.seconds(CLOCKS_SECONDS_MAX);
                let life = place.life;
                place.process = Some(Process::new(
                    worker,
                    life,
                    place.cores,
                    self.setting.fates,
                    !self.setting.has_pools || worker != BUILDS_ONLY,
                ));
                self.note(|| format!("{} starts", name(worker)));
                self.after(0.0, SimEvent::WorkerTicks { worker, life });
            }
            SimEvent::Strikes => {
                if self.now < CALM_SECONDS {
                    self.strike();
                    let seconds = self.random.seconds(2.0 * self.setting.disaster_seconds);
                    self.after(seconds, SimEvent::Strikes);
                }
            }
            SimEvent::ToBoss { worker, bytes } if self.boss.is_some() => {
                if self.now < self.boss_paused_until {
                    let wait = self.boss_paused_until - self.now;
                    return self.after(wait, SimEvent::ToBoss { worker, bytes });
                }
                self.deliver_to_boss(worker, &bytes);
            }
            SimEvent::ToBoss { .. } => {}
            SimEvent::BossTicks { life } if life == self.boss_life && self.boss.is_some() => {
                if self.now < self.boss_paused_until {
                    let wait = self.boss_paused_until - self.now;
                    return self.after(wait, SimEvent::BossTicks { life });
                }
                self.decide(Event::Tick);
                self.after(TICK_SECONDS, SimEvent::BossTicks { life });
            }
            SimEvent::BossHears { life, event } if life == self.boss_life && self.boss.is_some() => {
                self.decide(*event);
            }
            SimEvent::Written { life } if life == self.boss_life && self.boss.is_some() => self.write(),
            SimEvent::Performed { life } if life == self.boss_life => {
                let recorded = self.boss.as_mut().map(|boss| std::mem::take(&mut boss.recorded));
                self.perform(recorded.unwrap_or_default());
            }
            SimEvent::BossTicks { .. }
            | SimEvent::BossHears { .. }
            | SimEvent::Written { .. }
            | SimEvent::Performed { .. } => {}
            SimEvent::ToWorker { worker, bytes } => {
                let place = &self.places[worker];
                if self.now < place.paused_until {
                    let wait = place.paused_until - self.now;
                    return self.after(wait, SimEvent::ToWorker { worker, bytes });
                }
                match decode::<ToWorker>(&bytes) {
                    Ok(message) => self.work(worker, AgentEvent::Received(Box::new(message))),
                    Err(error) => self.complaint = Some(error.to_string()),
                }
            }
            SimEvent::WorkerTicks { worker, life } if self.lives(worker, life) => {
                let place = &self.places[worker];
                if self.now < place.paused_until {
                    let wait = place.paused_until - self.now;
                    return self.after(wait, SimEvent::WorkerTicks { worker, life });
                }
                self.work(worker, AgentEvent::Tick);
                self.after(TICK_SECONDS, SimEvent::WorkerTicks { worker, life });
            }
            SimEvent::DiskHasRoom { worker, life } if self.lives(worker, life) => {
                self.work(worker, AgentEvent::Room(true));
            }
            SimEvent::Steps { worker, life, due } if self.lives(worker, life) => {
                let place = &mut self.places[worker];
                if self.now < place.paused_until {
                    let wait = place.paused_until - self.now;
                    return self.after(wait, SimEvent::Steps { worker, life, due });
                }
                let Some(process) = &mut place.process else { return };
                let done = process.step(self.now + place.clock_seconds, &due, &mut self.random);
                self.did(worker, done);
            }
            SimEvent::WorkerTicks { .. } | SimEvent::DiskHasRoom { .. } | SimEvent::Steps { .. } => {}
        }
    }

    fn lives(&self, worker: usize, life: u64) -> bool {
        self.places[worker].life == life && self.places[worker].process.is_some()
    }

    /// Sends bytes between a worker and the coordinator, unless the network drops them.
    fn send(&mut self, worker: usize, event: SimEvent) {
        if self.now < self.places[worker].cut_until || self.random.happens(self.setting.drops_per_mille) {
            return;
        }
        let copies = 1 + u64::from(self.random.happens(self.setting.repeats_per_mille));
        for _ in 0..copies {
            let most = match self.random.happens(self.setting.late_per_mille) {
                true => [10.0, 200.0][self.random.below(2) as usize],
                false => 0.2,
            };
            let seconds = self.random.seconds(most);
            self.after(seconds, event.clone());
        }
    }

    fn work(&mut self, worker: usize, event: AgentEvent) {
        let place = &mut self.places[worker];
        let now_seconds = self.now + place.clock_seconds;
        let Some(process) = &mut place.process else { return };
        let done = process.apply(now_seconds, event, &mut self.random);
        self.did(worker, done);
    }

    fn did(&mut self, worker: usize, done: Done) {
        let life = self.places[worker].life;
        for attempt in done.begun {
            if !self.begun.insert(attempt) {
                self.complaint = Some(format!("{attempt} began twice"));
            }
        }
        for due in done.due {
            self.after(due.after_seconds, SimEvent::Steps { worker, life, due });
        }
        for message in done.sent {
            self.note(|| format!("{} sends {}", name(worker), brief(&message)));
            let bytes = encode_as(VERSION, &[CAPABILITY, ANNOUNCED].map(str::to_owned), &message);
            let bytes = bytes.map(|bytes| if self.is_later { of_a_later_program(&bytes) } else { bytes });
            let is_result = matches!(message, ToCoordinator::Result { .. });
            match bytes {
                Ok(bytes) => {
                    let is_new = !is_result || self.said.insert(bytes.clone());
                    if is_new || self.setting.flaw != Some(Flaw::ResultsAreSaidOnce) {
                        self.send(worker, SimEvent::ToBoss { worker, bytes });
                    }
                }
                Err(error) => self.complaint = Some(error.to_string()),
            }
        }
        if done.complaint.is_some() {
            self.complaint = done.complaint;
        }
        if done.is_over {
            self.note(|| format!("{} leaves", name(worker)));
            self.places[worker].process = None;
            let seconds = self.random.seconds(200.0);
            self.after(seconds, SimEvent::WorkerStarts { worker });
        }
    }

    fn deliver_to_boss(&mut self, worker: usize, bytes: &[u8]) {
        match open::<ToCoordinator>(bytes) {
            Ok(mut message) => {
                if worker == UNTRUSTED && self.random.happens(self.setting.lies_per_mille) {
                    self.lie(&mut message.body);
                }
                if self.setting.flaw == Some(Flaw::Unfenced) {
                    self.take_for_the_live_one(&mut message.body);
                }
                let from = Channel(worker as u64);
                self.decide(Event::Received { from, message: Box::new(message) });
            }
            Err(error) => self.complaint = Some(error.to_string()),
        }
    }

    fn start_boss(&mut self) {
        self.boss_life += 1;
        self.boss_clock_seconds = self.random.seconds(CLOCKS_SECONDS_MAX);
        let life = self.boss_life;
        let mut secret = [0; Attempts::SECRET_BYTES];
        if self.setting.flaw != Some(Flaw::SameSecret) {
            secret.fill_with(|| self.random.next() as u8);
        }
        let works = vec![Work::serial(100.0, Basis::Recorded); self.graph.len()];
        let scheduler = Scheduler::without_machines(self.graph.clone(), works, Limits::default()).unwrap();
        let start = |package| {
            let state = self.memory.states.get(self.graph.name(package)).copied();
            let stays =
                matches!(state, Some(PackageState::Built | PackageState::UpToDate | PackageState::Failed));
            Start {
                state: state.filter(|_| stays).unwrap_or(PackageState::Waiting),
                reason: Reason::default(),
                blamed: None,
                is_in_run: true,
                recipe_version: "1".into(),
                kept: None,
                published_revision: 0,
            }
        };
        let starts = self.graph.packages().map(start).collect();
        let retries =
            RetryPolicy::with(&[(FailureKind::Lost, 10), (FailureKind::Machine, 5)].into()).unwrap();
        let next_build = self.memory.next_build();
        let coordinator = Coordinator::new(1, starts, scheduler, next_build, Attempts::new(secret))
            .with_retries(retries)
            .with_required(vec![CAPABILITY.to_owned()])
            .with_verified_share(if self.setting.has_pools { 0.3 } else { 0.0 })
            .with_results(self.memory.results())
            .with_open(self.now + self.boss_clock_seconds, self.memory.open(&self.graph));
        self.note(|| "the coordinator starts".to_owned());
        self.boss = Some(Boss { coordinator, waiting: Vec::new(), is_writing: false, recorded: Vec::new() });
        if self.setting.has_pools {
            self.decide(Event::Workers(self.standings(None)));
        }
        self.decide(Event::Begin);
        self.after(TICK_SECONDS, SimEvent::BossTicks { life });
    }

    /// Passes an event to the coordinator; its decision waits for the record.
    fn decide(&mut self, event: Event) {
        let Some(boss) = &mut self.boss else { return };
        let mut actions = Vec::new();
        boss.coordinator.apply(self.now + self.boss_clock_seconds, event, &mut actions);
        let mut records = Vec::new();
        let mut grants = Vec::new();
        actions.retain(|action| match action {
            Action::Record(record) => {
                records.push(record.clone());
                false
            }
            Action::Grant(granted) => {
                grants.push((granted.clone(), name(granted.channel.0 as usize)));
                true
            }
            Action::Allot(_) | Action::Notify(_) => false,
            _ => true,
        });
        if records.is_empty() && actions.is_empty() {
            return;
        }
        if self.setting.flaw == Some(Flaw::ActsBeforeRecording) {
            let early = std::mem::take(&mut actions);
            self.perform(early);
        }
        let Some(boss) = &mut self.boss else { return };
        boss.waiting.push(Batch { records, grants, actions });
        if !std::mem::replace(&mut boss.is_writing, true) {
            let most = if self.random.happens(20) { 8.0 } else { 0.05 };
            let (seconds, life) = (self.random.seconds(most), self.boss_life);
            self.after(seconds, SimEvent::Written { life });
        }
    }

    /// Writes all decisions until now to the store.
    fn write(&mut self) {
        let Some(boss) = &mut self.boss else { return };
        boss.is_writing = false;
        let waiting = std::mem::take(&mut boss.waiting);
        self.written += 1;
        if self.written.is_multiple_of(8) {
            self.before = self.memory.clone();
        }
        for batch in waiting {
            for record in &batch.records {
                self.note(|| format!("recorded: {}", brief(record)));
            }
            if let Err(complaint) = self.memory.write(&mut self.history, &batch.records, &batch.grants) {
                self.complaint = Some(complaint);
            }
            if let Some(boss) = &mut self.boss {
                boss.recorded.extend(batch.actions);
            }
        }
        let (seconds, life) = (self.random.seconds(0.02), self.boss_life);
        self.after(seconds, SimEvent::Performed { life });
    }

    /// Returns after how many seconds it does.
    fn boss_hears(&mut self, seconds_max: f64, event: Event) -> f64 {
        let life = self.boss_life;
        let most = if self.random.happens(50) { 30.0 * seconds_max } else { seconds_max };
        let seconds = self.random.seconds(most);
        self.after(seconds, SimEvent::BossHears { life, event: Box::new(event) });
        seconds
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Prepare { package, .. } => {
                    let name = self.graph.name(package);
                    // A coordinator that dies while a package is verified leaves its outputs.
                    let prepared = match self.memory.current.contains_key(name) {
                        true => Prepared::UpToDate,
                        false => to_build(name),
                    };
                    self.boss_hears(2.0, Event::Prepared { package, prepared });
                }
                Action::Fetch { package, .. } => {
                    let fails = self.random.happens(20);
                    let outcome = if fails { Err(failure(FailureKind::Network)) } else { Ok(()) };
                    self.boss_hears(2.0, Event::Fetched { package, stage: None, outcome });
                }
                Action::Grant(granted) => {
                    self.check_grant(&granted);
                    self.grant(&granted);
                }
                Action::Announce(granted) => {
                    let (session, lease) = (granted.session, Box::new(granted.lease(1, 0, false)));
                    self.announced.insert(granted.attempt);
                    self.say(granted.channel.0 as usize, &ToWorker::Announce { session, lease });
                }
                Action::Send { to, message } => self.say(to.0 as usize, &message),
                Action::Ask { built, .. } => {
                    let test = match self.setting.has_pools && built.build % 2 == 0 {
                        true => Test::Run(Box::new(test_order())),
                        false => Test::Skip,
                    };
                    // What the files contain is checked where they are stored.
                    let is_lie = built.outputs.iter().any(|output| output.content == LIE);
                    let refused = is_lie.then(|| "the file has other contents".to_owned());
                    let answer = Answer { refused, test, ..Answer::keep(built.outputs) };
                    let (build, is_repeated) = (built.build, built.is_repeated);
                    let awaits_deposit = !is_lie && !is_repeated && self.setting.has_pools;
                    let answer = Box::new(answer);
                    let deposit = self.random.below(1 << 40);
                    let answered = Event::Answered {
                        build,
                        is_repeated,
                        answer,
                        deposit: awaits_deposit.then_some(deposit),
                    };
                    let seconds = self.boss_hears(2.0, answered);
                    if awaits_deposit {
                        // The store is away now and then.
                        let most = if self.random.happens(30) { 600.0 } else { 1.0 };
                        let seconds = seconds + self.random.seconds(most);
                        let is_lost = self.random.happens(100);
                        let lost = || Err(NotStored::Lost("an output is lost".to_owned()));
                        let outcome = if is_lost { lost() } else { Ok(()) };
                        let event = Box::new(Event::Deposited { build, deposit, outcome });
                        self.after(seconds, SimEvent::BossHears { life: self.boss_life, event });
                    }
                }
                Action::Quarantine { worker, .. } => {
                    // The roster names it, until the user resumes it.
                    let life = self.boss_life;
                    for (seconds, held) in [(1.0, Some(&*worker)), (500.0, None)] {
                        let event = Box::new(Event::Workers(self.standings(held)));
                        self.after(seconds, SimEvent::BossHears { life, event });
                    }
                }
                Action::Finish(state) => self.finished = Some(state),
                Action::Record(_)
                | Action::Allot(_)
                | Action::Adopt { .. }
                | Action::Forget { .. }
                | Action::Notify(_) => {}
            }
        }
    }

    fn grant(&mut self, granted: &Granted) {
        let package = granted.package;
        for dependency in self.graph.dependencies(package) {
            let state = self.memory.states.get(self.graph.name(*dependency)).copied();
            if !state.is_some_and(PackageState::has_outputs) {
                let (name, dependency) = (self.graph.name(package), self.graph.name(*dependency));
                self.complaint = Some(format!("{name} is granted while {dependency} is {state:?}"));
            }
        }
        let (session, lease) = (granted.session, Box::new(granted.lease(1, 0, false)));
        self.say(granted.channel.0 as usize, &ToWorker::Grant { session, lease });
    }

    fn say(&mut self, worker: usize, message: &ToWorker) {
        self.note(|| format!("to {}: {}", name(worker), brief(message)));
        match message {
            ToWorker::Welcome(welcome) => {
                self.sessions.insert(name(worker), welcome.session);
            }
            ToWorker::Acknowledged { attempt, .. } => match self.outcome_of(*attempt) {
                None | Some(BuildOutcome::Building) => {
                    self.complaint = Some(format!("{attempt} is acknowledged, but not recorded"));
                }
                Some(_) => {}
            },
            // Another worker may ask about it.
            ToWorker::Superseded { attempt, .. }
                if self.memory.outcome_of(*attempt) == Some(&BuildOutcome::Built)
                    && self.memory.worker_of(*attempt) == Some(&name(worker)) =>
            {
                self.complaint = Some(format!("{attempt} is superseded, but its outputs were adopted"));
            }
            _ => {}
        }
        match encode(message) {
            Ok(bytes) => {
                let bytes = if self.is_later { of_a_later_program(&bytes) } else { bytes };
                self.send(worker, SimEvent::ToWorker { worker, bytes });
            }
            Err(error) => self.complaint = Some(error.to_string()),
        }
    }
}

/// The message as a later version would write it: with unknown fields.
fn of_a_later_program(bytes: &[u8]) -> Vec<u8> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    value["of-a-later-program"] = serde_json::json!({ "a": [1] });
    if let Some(body) = value["body"].as_object_mut() {
        for said in body.values_mut().filter_map(serde_json::Value::as_object_mut) {
            said.insert("of-a-later-program".to_owned(), serde_json::json!("b"));
        }
    }
    serde_json::to_vec(&value).unwrap()
}

/// The beginning of the debug output.
fn brief(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").chars().take(300).collect()
}

/// The prepared build of a package.
fn test_order() -> TestOrder {
    TestOrder {
        root: RootOrder::default(),
        inputs: Vec::new(),
        texts: Vec::new(),
        stage: StageOrder { stage: Stage::Test, commands: Vec::new() },
    }
}

fn to_build(package: &str) -> Prepared {
    let order = BuildOrder {
        package: package.to_owned(),
        version: "1".into(),
        family: FamilyOrder { name: "made up".into(), facts: BTreeMap::new() },
        key: Key { digest: "k".into(), lines: Vec::new() },
        root: RootOrder::default(),
        work: None,
        fetch: None,
        stages: Vec::new(),
        clients: Vec::new(),
        fakeroots: Vec::new(),
        output_folder: "/".into(),
        terms: Default::default(),
        keep: None,
    };
    Prepared::Build(Box::new(ToBuild {
        reason: Reason::FirstBuild,
        order,
        seen: Vec::new(),
        recipe_version: "1".into(),
        published_revision: 0,
    }))
}
