//! The owner of a run: the thread to which everything that happens comes, and which performs what is decided. It waits for
//! nothing: the store, the solver and those who watch have threads of their own.

use super::feed::{Feed, Shown};
use super::fetch::Fetchers;
use super::link::Local;
use super::preparer::{BuildOf, Desk};
use super::slots::Slots;
use super::view::BuildSeen;
use super::{Message, SHARING};
use crate::error::{Context, Error, Kind, Result};
use crate::plan::Expected;
use crate::shape::jobserver_style;
use crate::signals;
use crate::words::now_seconds;
use crate::yard::Yard;
use kilnyard_coordinator::{Action, Event, Granted, Notice};
use kilnyard_driver::{Driver, Input, Job, Task};
use kilnyard_process::jobserver::Style;
use kilnyard_process::pressure;
use kilnyard_protocol::{Lease, Progress};
use kilnyard_schedule::{MachineId, Pressure};
use kilnyard_store::{Number, Request, RunState};
use kilnyard_worker::{Cores, JobserverStyle, jobserver_path};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How often signals and leases are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often it is looked at which cores builds could use: a build that turns parallel waits no longer for its first
/// further core.
const LOOK: Duration = Duration::from_millis(25);
/// How often it is looked at whether the machine is short of memory; the kernel renews its averages every two seconds.
const PRESSURE_LOOK: Duration = Duration::from_secs(2);

/// How a run ended.
pub enum Ended {
    /// As it should, or by request.
    In(RunState),
    /// The store refused something; the recorder has the reason.
    Refused,
}

/// See the module.
pub struct Owner<'a, 'scope> {
    pub yard: &'a Yard,
    pub run: Number,
    pub expected: Expected<'a>,
    /// Whether builds may use more than one core each.
    pub is_parallel: bool,
    pub checks_reproducible: bool,
    pub driver: Driver,
    pub cores: Cores,
    /// How the machine was off for memory when somebody last looked.
    pub is_pressed: Pressure,
    pub slots: Slots<'scope>,
    pub fetchers: Fetchers,
    pub jobs: Sender<Job>,
    pub desk: Desk,
    pub feed: Feed,
    /// For the links of builds; it keeps the channel open while there are none.
    pub sender: Sender<Message>,
    pub bytes_fetched: u64,
    pub ended: Option<Ended>,
}

impl Owner<'_, '_> {
    /// Runs until everything is decided, or somebody interrupts. `asked` is what was asked before.
    pub fn drive(&mut self, receiver: &Receiver<Message>, asked: Vec<Request>) -> Result<Ended> {
        self.show_standing();
        // What was asked before the run comes before its first decision.
        for request in asked {
            self.hear(Event::Requested(request))?;
        }
        self.hear(Event::Begin)?;
        let (mut ticked, mut looked, mut pressed) = (Instant::now(), Instant::now(), Instant::now());
        let (mut is_enough, mut is_stopping) = (false, false);
        loop {
            if let Some(ended) = self.ended.take() {
                return Ok(ended);
            }
            match receiver.recv_timeout(LOOK) {
                Ok(Message::Event(event)) => self.hear(*event)?,
                Ok(Message::Input(input)) => match *input {
                    Input::Event(event) => self.hear(event)?,
                    input => self.apply(input)?,
                },
                Ok(Message::Received(bytes)) => self.bytes_fetched += bytes,
                Ok(Message::Enough) => is_enough = true,
                Ok(Message::Failed(error)) => return Err(*error),
                Ok(Message::Gone) => {
                    return Err(Error::new(Kind::Internal, "a part of the run has ended before it"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The owner holds a sender of its own.
                Err(RecvTimeoutError::Disconnected) => return Ok(Ended::In(RunState::Interrupted)),
            }
            if self.ended.is_none() && (signals::count() > 0 || is_enough) && !is_stopping {
                is_stopping = true;
                self.feed.show(Shown::Stopping);
                self.fetchers.cancel();
                self.hear(Event::Stop)?;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look_at_cores()?;
            }
            if pressed.elapsed() >= PRESSURE_LOOK {
                pressed = Instant::now();
                self.look_at_memory()?;
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.hear(Event::Tick)?;
                let remaining_path_seconds = self.driver.coordinator().remaining_path_seconds();
                let bytes_fetched = self.bytes_fetched;
                self.feed.show(Shown::Tick { remaining_path_seconds, bytes_fetched });
            }
        }
    }

    /// Which cores builds could use now.
    fn look_at_cores(&mut self) -> Result<()> {
        let changes = self.cores.look(now_seconds()).context(Kind::Machine, SHARING)?;
        changes.into_iter().try_for_each(|(build, cores)| self.hear(Event::Wants { build, cores }))
    }

    /// Whether the machine is short of memory.
    fn look_at_memory(&mut self) -> Result<()> {
        let is_pressed = match pressure::Pressure::of(pressure::memory_stalled_percent()) {
            pressure::Pressure::High => Pressure::High,
            _ => Pressure::Low,
        };
        match std::mem::replace(&mut self.is_pressed, is_pressed) == is_pressed {
            true => Ok(()),
            false => self.hear(Event::Pressure { machine: MachineId(0), pressure: is_pressed }),
        }
    }

    /// Takes an event for the coordinator.
    fn hear(&mut self, event: Event) -> Result<()> {
        match &event {
            Event::Requested(request) => {
                self.feed.show(Shown::Asked(request.clone()));
            }
            Event::Progress { build, progress } => {
                match progress {
                    Progress::StageBegan(_) => self.cores.stage_began(*build),
                    Progress::Sample { runnable, .. } => self.cores.counted(*build, *runnable),
                    Progress::StageEnded(_) | Progress::Alive | Progress::Wants(_) => {}
                }
                self.feed.show(Shown::Progress { build: *build, progress: progress.clone() });
            }
            Event::Ended(result) => self.cores.end(result.build).context(Kind::Machine, SHARING)?,
            _ => {}
        }
        self.apply(Input::Event(event))
    }

    /// Applies what happened, and performs what follows from it.
    fn apply(&mut self, input: Input) -> Result<()> {
        let is_loaded = matches!(input, Input::Loaded(_));
        let mut tasks = Vec::new();
        self.driver.apply(now_seconds(), input, &mut tasks);
        if is_loaded {
            self.show_standing();
        }
        for task in tasks {
            match task {
                Task::Commit(records) => self.record(Job::Commit(records)),
                Task::Reload => self.record(Job::Reload),
                Task::Prepare(to_prepare) => drop(self.desk.prepare(to_prepare)),
                Task::Perform(action) => self.perform(action)?,
                Task::Ended(result) => drop(self.feed.show(Shown::Ended(result))),
                Task::NoRoom => drop(self.feed.show(Shown::DiskFull)),
                Task::Reloading => drop(self.feed.show(Shown::Reloading)),
                Task::GiveUp => self.ended = Some(Ended::Refused),
            }
        }
        Ok(())
    }

    /// A recorder that has ended says so itself.
    fn record(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    fn show_standing(&self) {
        let coordinator = self.driver.coordinator();
        self.feed.show(Shown::Standing(coordinator.standing()));
    }

    fn perform(&mut self, action: Action) -> Result<()> {
        match action {
            // The driver gives them to the recorder and the preparer.
            Action::Record(_) | Action::Prepare { .. } => {}
            Action::Fetch { package, to_build } => self.fetchers.fetch(package, &to_build.order),
            Action::Grant(granted) => self.grant(granted),
            Action::Allot(cores) => {
                self.cores.allot(&cores).context(Kind::Machine, SHARING)?;
                self.feed.show(Shown::Allotted(cores));
            }
            Action::Cancel { build } => self.slots.cancel(build),
            // The slots of this process say nothing by messages.
            Action::Send { .. } | Action::Ask { .. } => {}
            Action::Adopt { package, outputs } => drop(self.desk.adopt(package, outputs)),
            Action::Tell(Notice::State { package, state, reason }) => {
                self.feed.show(Shown::State { package, state, reason });
            }
            Action::Tell(Notice::Progress { build, progress }) => {
                self.feed.show(Shown::Progress { build, progress });
            }
            Action::Tell(Notice::Ended(result)) => drop(self.feed.show(Shown::Ended(Box::new(result)))),
            Action::Tell(Notice::Refused { request, reason }) => {
                self.feed.show(Shown::Refused { request, reason });
            }
            Action::Finish(state) => self.ended = Some(Ended::In(state)),
        }
        Ok(())
    }

    fn grant(&mut self, granted: Granted) {
        let Granted { build, attempt, package, rank_seconds, slot, files, to_build, .. } = granted;
        let order = &to_build.order;
        self.feed.show(Shown::Granted(Box::new(BuildSeen {
            build,
            package: order.package.clone(),
            version: order.version.clone(),
            slot,
            stage: None,
            started: Instant::now(),
            stage_started: Instant::now(),
            cores: 1,
            memory_bytes: 0,
            estimate_seconds: self.expected.seconds(&order.package),
        })));
        let lease = Lease {
            build,
            attempt,
            rank_seconds,
            run: self.run,
            slot,
            files,
            written_bytes: self.expected.written_bytes(package),
            order: order.clone(),
            seen: to_build.seen.clone(),
            checks_reproducible: self.checks_reproducible,
        };
        let path = jobserver_path(&self.yard.folder, build);
        let is_on = jobserver_style(self.yard) != JobserverStyle::Off;
        let has_jobserver = is_on && self.is_parallel;
        let share = self.cores.begin(build, has_jobserver.then_some(Style::Named(path)));
        let of = BuildOf {
            build,
            package,
            version: order.version.clone(),
            tests_outputs: self.yard.config.build.test,
        };
        let link = Local::new(of, self.desk.clone(), self.sender.clone());
        self.slots.build(lease, link, share);
    }
}
