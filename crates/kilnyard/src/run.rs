//! Drives a run: performs what the coordinator decides, and brings it what happens.
//!
//! One thread owns the coordinator and the store. Slots and fetchers are threads of their own that only
//! send events; requests from other terminals are read from the store; signals are a flag.

mod fetch;
mod link;
mod slots;
pub mod view;

use crate::due::{Due, Known};
use crate::error::{Context, Kind, Result};
use crate::plan::{Forced, Planned, inputs_of};
use crate::shape::jobserver_style;
use crate::signals;
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use kilnyard_coordinator::{Action, Attempts, Coordinator, Event, Granted, Kept, Notice, Prepared, Start};
use kilnyard_mirror::DistfileStore;
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{BuildOrder, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, PackageState, StageSeen};
use kilnyard_process::jobserver::Style;
use kilnyard_process::pressure;
use kilnyard_protocol::{BuildResult, Lease, Progress};
use kilnyard_schedule::{MachineId, Pressure};
use kilnyard_store::{
    BuildRow, Current, ForcedRun, Number, PackageRow, Record, Request, RequestKind, RunRow, RunState, Store,
};
use kilnyard_worker::{Cores, JobserverStyle, Worker, jobserver_path};
use link::Local;
use rand::RngCore;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use view::{BuildSeen, Seen, Snapshot, View};

/// How often signals, requests and leases are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often it is looked at which cores builds could use: a build that turns parallel waits no longer for its first
/// further core.
const LOOK: Duration = Duration::from_millis(25);
/// How often it is looked at whether the machine is short of memory; the kernel renews its averages every two seconds.
const PRESSURE_LOOK: Duration = Duration::from_secs(2);

/// How long room on a full disk is waited for, and how often it is looked for.
const FULL_DISK_PATIENCE: Duration = Duration::from_secs(120);
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);
/// A disk that is full again sooner than this was full all the time, and is not reported again.
const ROOM_LASTING_MIN: Duration = Duration::from_secs(60);

/// What is done when cores are given to builds; reads after "failed to".
const SHARING: &str = "share out the cores";

/// How many builds of a package are looked at for what its work folder takes, and what its stages took.
const BUILDS_LOOKED_AT: usize = 5;

/// What a run is told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Packages that are built even if their outputs are right.
    pub forced: Forced,
    /// Whether each package is built twice, to compare.
    pub checks_reproducible: bool,
}

impl Options {
    /// What is forced, as the store keeps it.
    fn forced_run(&self) -> Option<ForcedRun> {
        let mut packages: Vec<String> = match &self.forced {
            Forced::Nothing => return None,
            Forced::Named(names) => names.iter().cloned().collect(),
            Forced::All => Vec::new(),
        };
        packages.sort_unstable();
        Some(ForcedRun { packages, checks_reproducible: self.checks_reproducible })
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The run's number; none where there was nothing to do.
    pub run: Option<Number>,
    /// How it ended.
    pub state: RunState,
    /// How many packages are in each state.
    pub counts: Vec<(PackageState, u64)>,
    /// Packages that nothing can be made of, and why.
    pub left_out: Vec<(String, String)>,
}

/// Something for the owner of the run.
pub enum Message {
    /// For the coordinator.
    Event(Box<Event>),
    /// This many bytes came from a mirror.
    Received(u64),
}

/// Everything that a run needs.
pub struct Run<'a> {
    /// The yard.
    pub yard: &'a Yard,
    /// The store.
    pub store: &'a mut dyn Store,
    /// The set and its plan.
    pub planned: Planned,
    /// The files.
    pub distfiles: Arc<DistfileStore>,
    /// What was asked.
    pub options: Options,
}

impl Run<'_> {
    /// Runs until everything is decided, or somebody interrupts.
    pub fn run(mut self, view: &mut dyn View) -> Result<Outcome> {
        let included = self.included();
        let lead = self.store.lead().map_err(store_error)?;
        let previous = self.store.last_run().map_err(store_error)?;
        let resumed = previous
            .clone()
            .filter(|run| run.state != RunState::Finished && run.forced == self.options.forced_run())
            .filter(|run| self.is_same_set(run));
        let mut starts = self.starts(&included);
        let run = match &resumed {
            Some(run) => {
                self.resume(run, &mut starts)?;
                run.number
            }
            None => {
                let is_done =
                    starts.iter().all(|start| !start.is_in_run || start.state == PackageState::LeftOut);
                let rows = self.rows();
                let nothing = rows.iter().all(|row| row.state.is_final());
                if nothing || is_done {
                    return Ok(Outcome {
                        run: None,
                        state: RunState::Finished,
                        counts: counts(&rows),
                        left_out: left_out(&rows),
                    });
                }
                if let Some(previous) = previous.filter(|run| run.state == RunState::Running) {
                    self.close(&previous)?;
                }
                self.store.begin_run(&self.run_row(), &rows).map_err(store_error)?
            }
        };
        let mut secret = [0; Attempts::SECRET_BYTES];
        rand::rngs::OsRng.fill_bytes(&mut secret);
        let attempts = Attempts::new(secret);
        let scheduler = self.planned.scheduler()?;
        let coordinator = Coordinator::new(run, starts, scheduler, lead.next_build, attempts)
            .with_retries(self.yard.config.retries.clone())
            .with_own_machine(host_name(), self.planned.shape.machine.cores);
        self.drive(run, resumed.is_some(), coordinator, view)
    }

    /// The packages that this run is concerned with: those of the plan.
    fn included(&self) -> HashSet<PackageId> {
        let graph = self.planned.workshop.graph();
        self.planned.plan.packages.iter().filter_map(|row| graph.find(&row.package.name)).collect()
    }

    /// A run that was killed, and that another one follows, is over.
    fn close(&mut self, run: &RunRow) -> Result<()> {
        let builds = self.store.builds_in(run.number).map_err(store_error)?;
        let last_seconds = builds.iter().map(|build| build.ended_seconds.unwrap_or(build.started_seconds));
        let at_seconds = last_seconds.fold(run.started_seconds, f64::max);
        let mut records = lost(&builds);
        records.push(Record::Run { run: run.number, state: RunState::Interrupted, at_seconds });
        self.store.record(&records).map_err(store_error)
    }

    /// Whether that run was of the same packages, made from the same index, sources and options.
    fn is_same_set(&self, run: &RunRow) -> bool {
        if inputs_of(&run.plan_digest) != inputs_of(&self.planned.plan.digest) {
            return false;
        }
        let planned: HashSet<(&str, &str)> = self
            .planned
            .plan
            .packages
            .iter()
            .map(|row| (&*row.package.name, &*row.package.version))
            .collect();
        self.store.packages(run.number).is_ok_and(|rows| {
            rows.len() == planned.len()
                && rows.iter().all(|row| planned.contains(&(&*row.name, &*row.version)))
        })
    }

    fn starts(&self, included: &HashSet<PackageId>) -> Vec<Start> {
        let workshop = &self.planned.workshop;
        let graph = workshop.graph();
        let left_out: HashMap<&str, &str> =
            workshop.left_out().iter().map(|l| (l.name.as_str(), l.explanation.as_str())).collect();
        let start = |id: PackageId| {
            let name = graph.name(id);
            let explanation = left_out.get(name);
            // What is broken cannot stay, even if it is built to the same content.
            let is_whole = !self.planned.broken.contains_key(name);
            let kept = self.planned.current.get(name).map(|current| Kept {
                recipe_version: current.recipe_version.clone(),
                revision: current.revision,
                contents: current
                    .outputs
                    .iter()
                    .filter(|_| is_whole)
                    .map(|output| (output.name.clone(), output.content.clone()))
                    .collect(),
            });
            Start {
                state: if explanation.is_some() { PackageState::LeftOut } else { PackageState::Waiting },
                reason: explanation.map_or(Reason::Undecided, |text| Reason::impossible(*text)),
                blamed: None,
                is_in_run: included.contains(&id),
                recipe_version: workshop.version(id),
                kept,
                published_revision: workshop.published_revision(id),
            }
        };
        graph.packages().map(start).collect()
    }

    fn rows(&self) -> Vec<PackageRow> {
        self.planned.plan.packages.iter().map(|row| row.package.clone()).collect()
    }

    fn run_row(&self) -> RunRow {
        let shape = &self.planned.shape;
        RunRow {
            number: 0,
            started_seconds: now_seconds(),
            ended_seconds: None,
            state: RunState::Running,
            plan_digest: self.planned.plan.digest.clone(),
            cores: shape.machine.cores,
            slots: shape.slots(),
            expected_seconds: self.planned.plan.expected_seconds,
            bound_seconds: self.planned.plan.bound_seconds,
            forced: self.options.forced_run(),
        }
    }

    /// What an interrupted run has decided stays decided.
    fn resume(&mut self, run: &RunRow, starts: &mut [Start]) -> Result<()> {
        let graph = self.planned.workshop.graph();
        let mut records =
            vec![Record::Run { run: run.number, state: RunState::Running, at_seconds: now_seconds() }];
        for row in self.store.packages(run.number).map_err(store_error)? {
            let Some(id) = graph.find(&row.name) else { continue };
            let stays = matches!(
                row.state,
                PackageState::Built | PackageState::Unchanged | PackageState::Failed | PackageState::Skipped
            );
            if stays && starts[id.index()].state != PackageState::LeftOut {
                starts[id.index()].state = row.state;
                starts[id.index()].reason = row.reason;
            }
        }
        records.extend(lost(&self.store.builds_in(run.number).map_err(store_error)?));
        self.store.record(&records).map_err(store_error)
    }

    fn drive(
        self,
        run: Number,
        is_resumed: bool,
        coordinator: Coordinator,
        view: &mut dyn View,
    ) -> Result<Outcome> {
        let worker = Worker::new(crate::worker::settings(self.yard), self.distfiles.clone());
        for left in worker.sweep().context(Kind::Machine, "remove what an earlier run left")? {
            tell!("note: {left}");
        }
        let (sender, receiver) = mpsc::channel();
        let snapshot = Snapshot {
            run,
            is_resumed,
            started: Instant::now(),
            cores: self.planned.shape.machine.cores,
            slots: coordinator.slots(),
            expected_seconds: self.planned.plan.expected_seconds,
            counts: coordinator.counts(),
            builds: Vec::new(),
            remaining_path_seconds: coordinator.remaining_path_seconds(),
            bytes_fetched: 0,
        };
        std::thread::scope(|scope| {
            let slots = slots::Slots::start(scope, &worker, coordinator.slots());
            let fetchers = fetch::Fetchers::start(
                scope,
                self.yard,
                &worker,
                run,
                self.distfiles.clone(),
                sender.clone(),
            );
            let machine = self.planned.shape.machine.oversubscribed();
            let cores = Cores::new(&self.yard.folder.display().to_string(), machine.cores);
            let mut driver = Driver {
                run: self,
                coordinator,
                cores,
                is_pressed: Pressure::Low,
                lacked_room: None,
                orders: HashMap::new(),
                seen: HashMap::new(),
                to_prepare: Vec::new(),
                slots,
                fetchers,
                sender,
                snapshot,
            };
            let outcome = driver.drive(receiver, view);
            driver.slots.cancel_all();
            driver.fetchers.cancel();
            // At worst they are made again.
            let _ = worker.keep_layers();
            outcome
        })
    }
}

/// The name of this machine, by which records name the worker that is in this process.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Says of builds that nobody ended that they were lost.
fn lost(builds: &[BuildRow]) -> Vec<Record> {
    let open = builds.iter().filter(|build| build.ended_seconds.is_none());
    let lost = open.map(|build| Record::BuildEnded {
        build: build.number,
        at_seconds: now_seconds(),
        outcome: BuildOutcome::Lost,
        failure: None,
        is_reproducible: None,
    });
    lost.collect()
}

/// What the work folder of a package's last build held. One that failed tells only what is needed at the least.
fn work_bytes(builds: &[BuildRow], guessed_bytes: u64) -> Option<u64> {
    builds.iter().find_map(|build| {
        let known = || build.stages.iter().filter_map(|stage| Some((stage.stage, stage.work_bytes?)));
        let whole = known().find(|(stage, _)| *stage == Stage::Collect).map(|(_, bytes)| bytes);
        let part = || known().map(|(_, bytes)| bytes).max();
        whole.or_else(|| part().map(|bytes| bytes.max(guessed_bytes)))
    })
}

fn left_out(rows: &[PackageRow]) -> Vec<(String, String)> {
    let left_out = rows.iter().filter(|row| row.state == PackageState::LeftOut);
    left_out.map(|row| (row.name.clone(), row.reason.to_string())).collect()
}

fn counts(rows: &[PackageRow]) -> Vec<(PackageState, u64)> {
    let count = |state| rows.iter().filter(|row| row.state == state).count() as u64;
    PackageState::ALL.into_iter().map(|state| (state, count(state))).collect()
}

struct Driver<'a, 'scope> {
    run: Run<'a>,
    coordinator: Coordinator,
    cores: Cores,
    /// How the machine was off for memory when somebody last looked.
    is_pressed: Pressure,
    /// When the disk had no room for a record the last time.
    lacked_room: Option<Instant>,
    orders: HashMap<PackageId, BuildOrder>,
    /// What the stages of these packages took before.
    seen: HashMap<PackageId, Vec<StageSeen>>,
    /// Ready packages of which it is not worked out yet what they need.
    to_prepare: Vec<PackageId>,
    slots: slots::Slots<'scope>,
    fetchers: fetch::Fetchers,
    /// For the links of builds; it keeps the channel open while there are none.
    sender: Sender<Message>,
    snapshot: Snapshot,
}

impl Driver<'_, '_> {
    fn drive(&mut self, receiver: mpsc::Receiver<Message>, view: &mut dyn View) -> Result<Outcome> {
        view.see(&Seen::Began, &self.snapshot);
        // What was asked before the run comes before its first decision.
        for package in self.run.yard.config.build.first.clone() {
            let request = Request { kind: RequestKind::Bump, package };
            self.apply(Event::Requested(request), view)?;
        }
        let mut finished = self.take_requests(view)?;
        if finished.is_none() {
            finished = self.apply(Event::Begin, view)?;
        }
        let (mut ticked, mut looked, mut pressed) = (Instant::now(), Instant::now(), Instant::now());
        let mut is_stopping = false;
        while finished.is_none() {
            // Of a large tree thousands of packages are ready at once: the first builds do not wait for all of them.
            let patience = if self.to_prepare.is_empty() { LOOK } else { Duration::ZERO };
            match receiver.recv_timeout(patience) {
                Ok(Message::Event(event)) => finished = self.apply(*event, view)?,
                Ok(Message::Received(bytes)) => self.snapshot.bytes_fetched += bytes,
                Err(RecvTimeoutError::Timeout) => finished = self.prepare_next(view)?,
                // The owner holds a sender of its own.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if finished.is_none() && (signals::count() > 0 || view.wants_end()) && !is_stopping {
                is_stopping = true;
                view.see(&Seen::Stopping, &self.snapshot);
                self.fetchers.cancel();
                finished = self.apply(Event::Stop, view)?;
            }
            if finished.is_none() && looked.elapsed() >= LOOK {
                looked = Instant::now();
                finished = self.look_at_cores(view)?;
            }
            if finished.is_none() && pressed.elapsed() >= PRESSURE_LOOK {
                pressed = Instant::now();
                finished = self.look_at_memory(view)?;
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                finished = finished.or(self.take_requests(view)?);
                if finished.is_none() {
                    finished = self.apply(Event::Tick, view)?;
                }
                self.snapshot.remaining_path_seconds = self.coordinator.remaining_path_seconds();
                view.tick(&self.snapshot);
            }
        }
        let state = finished.unwrap_or(RunState::Interrupted);
        for request in self.requests()? {
            view.see(&Seen::Refused { request: &request, reason: "the run is over" }, &self.snapshot);
        }
        self.snapshot.counts = self.coordinator.counts();
        view.see(&Seen::Ended(state), &self.snapshot);
        let run = self.snapshot.run;
        let counts = self.run.store.counts(run).map_err(store_error)?;
        Ok(Outcome { run: Some(run), state, counts, left_out: left_out(&self.run.rows()) })
    }

    /// Which cores builds could use now.
    fn look_at_cores(&mut self, view: &mut dyn View) -> Result<Option<RunState>> {
        let mut finished = None;
        let changes = self.cores.look(now_seconds()).context(Kind::Machine, SHARING)?;
        for (build, cores) in changes {
            finished = finished.or(self.apply(Event::Wants { build, cores }, view)?);
        }
        Ok(finished)
    }

    /// Whether the machine is short of memory.
    fn look_at_memory(&mut self, view: &mut dyn View) -> Result<Option<RunState>> {
        let is_pressed = match pressure::Pressure::of(pressure::memory_stalled_percent()) {
            pressure::Pressure::High => Pressure::High,
            _ => Pressure::Low,
        };
        if std::mem::replace(&mut self.is_pressed, is_pressed) == is_pressed {
            return Ok(None);
        }
        self.apply(Event::Pressure { machine: MachineId(0), pressure: is_pressed }, view)
    }

    fn take_requests(&mut self, view: &mut dyn View) -> Result<Option<RunState>> {
        let mut finished = None;
        for request in self.requests()? {
            view.see(&Seen::Asked(&request), &self.snapshot);
            finished = finished.or(self.apply(Event::Requested(request), view)?);
        }
        Ok(finished)
    }

    /// What was asked since the last time. What cannot be taken from a full disk stays there for later.
    fn requests(&mut self) -> Result<Vec<Request>> {
        match self.run.store.take_requests() {
            Err(error) if error.is_full() => Ok(Vec::new()),
            other => other.map_err(store_error),
        }
    }

    /// Writes what was decided. A full disk is waited for: the build that filled it ends by that, and its root
    /// goes.
    fn record(&mut self, records: &[Record], view: &mut dyn View) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.run.store.record(records) {
                Err(error)
                    if error.is_full() && began.elapsed() < FULL_DISK_PATIENCE && signals::count() == 0 =>
                {
                    let last = self.lacked_room.replace(Instant::now());
                    if last.is_none_or(|last| last.elapsed() >= ROOM_LASTING_MIN) {
                        view.see(&Seen::DiskFull, &self.snapshot);
                    }
                    std::thread::sleep(FULL_DISK_PAUSE);
                }
                other => return other.map_err(store_error),
            }
        }
    }

    /// Applies an event and performs what follows from it; the run's end, if it is over.
    fn apply(&mut self, mut event: Event, view: &mut dyn View) -> Result<Option<RunState>> {
        if let Event::Ended(result) = &mut event {
            self.judge(result);
        }
        self.note(&event, view);
        if let Event::Ended(result) = &event {
            self.cores.end(result.build).context(Kind::Machine, SHARING)?;
        }
        let mut finished = None;
        let mut actions = Vec::new();
        self.coordinator.apply(now_seconds(), event, &mut actions);
        let records: Vec<Record> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Record(record) => Some(record.clone()),
                _ => None,
            })
            .collect();
        if !records.is_empty() {
            self.record(&records, view)?;
        }
        for action in actions {
            match action {
                Action::Record(_) => {}
                Action::Prepare(package) => self.to_prepare.push(package),
                Action::Fetch(package) => {
                    if let Some(order) = self.orders.get(&package) {
                        self.fetchers.fetch(package, order);
                    }
                }
                Action::Grant(granted) => self.grant(granted),
                Action::Allot(cores) => {
                    self.cores.allot(&cores).context(Kind::Machine, SHARING)?;
                    for seen in &mut self.snapshot.builds {
                        let own = cores.iter().find(|(build, _)| *build == seen.build);
                        seen.cores = own.map_or(seen.cores, |(_, cores)| *cores);
                    }
                }
                Action::Cancel { build } => self.slots.cancel(build),
                // The slots of this process say nothing by messages.
                Action::Send { .. } | Action::Ask { .. } => {}
                Action::Adopt { package, outputs } => self.run.planned.workshop.adopt(package, &outputs),
                Action::Tell(notice) => {
                    if let Notice::State { package, state, .. } = &notice
                        && state.is_final()
                    {
                        // Of a large tree they are too many to keep; a retry makes another one.
                        self.orders.remove(package);
                        self.seen.remove(package);
                    }
                    self.tell(&notice, view);
                }
                Action::Finish(state) => finished = Some(state),
            }
        }
        self.snapshot.counts = self.coordinator.counts();
        Ok(finished)
    }

    /// Fails a build whose outputs must not be published in the name of its package, whatever its worker says.
    fn judge(&self, result: &mut BuildResult) {
        let Some(seen) = self.snapshot.builds.iter().find(|seen| seen.build == result.build) else { return };
        let workshop = &self.run.planned.workshop;
        let (Ok(outputs), Some(id)) = (&result.outcome, workshop.graph().find(&seen.package)) else { return };
        let refused = match workshop.admit(id, &seen.version, outputs) {
            Ok(admitted) if admitted.outputs == *outputs => return,
            Ok(_) => "these are not the outputs that were admitted".to_owned(),
            Err(refused) => refused.to_string(),
        };
        result.outcome = Err(Failure {
            stage: Stage::Collect,
            kind: FailureKind::Outputs,
            message: refused,
            line_number: None,
            lines: Vec::new(),
        });
    }

    /// Works out what the package needs that is to be built before all other ready ones.
    fn prepare_next(&mut self, view: &mut dyn View) -> Result<Option<RunState>> {
        let places = 0..self.to_prepare.len();
        let comes_before =
            |a: usize, b: usize| self.coordinator.comes_before(self.to_prepare[a], self.to_prepare[b]);
        let Some(first) = places.reduce(|a, b| if comes_before(b, a) { b } else { a }) else {
            return Ok(None);
        };
        let package = self.to_prepare.swap_remove(first);
        let prepared = self.prepare(package)?;
        self.apply(Event::Prepared { package, prepared }, view)
    }

    fn prepare(&mut self, package: PackageId) -> Result<Prepared> {
        let workshop = &self.run.planned.workshop;
        let name = workshop.graph().name(package).to_owned();
        let revision = self.coordinator.next_revision(package);
        let builds = self.run.store.builds_of(&name, BUILDS_LOOKED_AT).map_err(store_error)?;
        let order = match workshop.order(package, revision) {
            Ok(mut order) => {
                self.seen.insert(package, StageSeen::of(builds.iter().flat_map(|build| &build.stages)));
                if let Some(work) = &mut order.work
                    && let Some(bytes) = work_bytes(&builds, work.expected_bytes)
                {
                    work.expected_bytes = bytes;
                }
                order
            }
            Err(impossible) => return Ok(Prepared::Impossible(impossible.explanation)),
        };
        let kept = self.run.store.current(&name).map_err(store_error)?;
        let last = builds.first().map(BuildRow::as_last);
        // What this run has made itself is whole.
        let is_broken = kept.as_ref().is_some_and(|kept| self.is_broken(&name, kept));
        let known = Known {
            is_forced: self.run.options.forced.contains(&name),
            kept: kept.as_ref(),
            broken: is_broken.then(|| self.run.planned.broken[&name].as_str()),
            last: last.as_ref(),
        };
        let Due::Build(reason) = known.with_key(&order.key, workshop.former_root()) else {
            return Ok(Prepared::UpToDate);
        };
        let prepared = Prepared::Build { reason, version: order.version.clone(), key: order.key.clone() };
        self.orders.insert(package, order);
        Ok(prepared)
    }

    /// Whether a file of these outputs was found gone or not whole when the run was planned.
    fn is_broken(&self, name: &str, kept: &Current) -> bool {
        let planned = self.run.planned.current.get(name);
        self.run.planned.broken.contains_key(name)
            && planned.is_some_and(|planned| planned.build == kept.build)
    }

    fn grant(&mut self, granted: Granted) {
        let Granted { build, attempt, package, slot, files, rank_seconds, .. } = granted;
        let Some(order) = self.orders.get(&package) else { return };
        self.snapshot.builds.push(BuildSeen {
            build,
            package: order.package.clone(),
            version: order.version.clone(),
            slot,
            stage: None,
            started: Instant::now(),
            stage_started: Instant::now(),
            cores: 1,
            memory_bytes: 0,
            estimate_seconds: self.estimate(package),
        });
        let lease = Lease {
            build,
            attempt,
            rank_seconds,
            run: self.snapshot.run,
            slot,
            files,
            written_bytes: self.run.planned.written_bytes(package),
            order: order.clone(),
            seen: self.seen.get(&package).cloned().unwrap_or_default(),
            checks_reproducible: self.run.options.checks_reproducible,
        };
        let path = jobserver_path(&self.run.yard.folder, build);
        let is_on = jobserver_style(self.run.yard) != JobserverStyle::Off;
        let has_jobserver = is_on && self.run.planned.shape.jobs > 1;
        let share = self.cores.begin(build, has_jobserver.then_some(Style::Named(path)));
        let set = self.run.planned.workshop.clone();
        let link = Local::new(&lease, package, set, self.run.yard.config.build.test, self.sender.clone());
        self.slots.build(lease, link, share);
    }

    fn estimate(&self, package: PackageId) -> f64 {
        let name = self.run.planned.workshop.graph().name(package);
        let packages = &self.run.planned.plan.packages;
        let found = packages.binary_search_by(|row| row.package.name.as_str().cmp(name));
        found.map_or(0.0, |index| packages[index].package.estimate_seconds)
    }

    /// Keeps the picture of what is being built.
    fn note(&mut self, event: &Event, view: &mut dyn View) {
        match event {
            Event::Progress { build, progress } => self.note_progress(*build, progress, view),
            Event::Ended(result) => self.note_end(result, view),
            _ => {}
        }
    }

    fn note_progress(&mut self, build: Number, progress: &Progress, view: &mut dyn View) {
        let Some(seen) = self.snapshot.builds.iter_mut().find(|seen| seen.build == build) else {
            return;
        };
        match progress {
            Progress::StageBegan(stage) => {
                self.cores.stage_began(build);
                seen.stage = Some(*stage);
                seen.stage_started = Instant::now();
                let seen = seen.clone();
                view.see(&Seen::StageBegan(&seen, *stage), &self.snapshot);
            }
            Progress::StageEnded(_) | Progress::Alive | Progress::Wants(_) => {}
            Progress::Sample { runnable, memory_bytes, .. } => {
                self.cores.counted(build, *runnable);
                seen.memory_bytes = *memory_bytes;
            }
        }
    }

    fn note_end(&mut self, result: &BuildResult, view: &mut dyn View) {
        let ended = self.snapshot.builds.iter().position(|seen| seen.build == result.build);
        if let Some(position) = ended {
            let seen = self.snapshot.builds.remove(position);
            view.see(&Seen::BuildEnded(&seen, result), &self.snapshot);
        }
    }

    fn tell(&mut self, notice: &Notice, view: &mut dyn View) {
        match notice {
            Notice::State { package, state, reason } => {
                let name = self.run.planned.workshop.graph().name(*package);
                self.snapshot.counts = self.coordinator.counts();
                view.see(&Seen::State { package: name, state: *state, reason }, &self.snapshot);
            }
            Notice::Progress { build, progress } => self.note_progress(*build, progress, view),
            Notice::Ended(result) => self.note_end(result, view),
            Notice::Refused { request, reason } => {
                view.see(&Seen::Refused { request, reason }, &self.snapshot);
            }
        }
    }
}
