//! The owner of a run: the thread that receives all events and performs the decisions. It never blocks: the store, the
//! solver and the view have threads of their own.

use super::Message;
use super::contents::{Contents, Outgoing};
use super::deposit::Depositor;
use super::feed::{Feed, Shown};
use super::fetch::Fetchers;
use super::gathering::Gathering;
use super::host_name;
use super::link::{Link, Place, WORKER};
use super::preparer::{BuildOf, Desk};
use crate::error::{Context, Error, Kind, Result};
use crate::plan::Expected;
use crate::servers::Standby;
use crate::signals;
use crate::words::now_seconds;
use kilnyard_coordinator::{Action, Channel, Event, Granted, Notice, Reading};
use kilnyard_driver::{Driver, Input, Job, Task};
use kilnyard_model::order::TreePatch;
use kilnyard_protocol::{Answer, Built, Lease, ToCoordinator, ToWorker, encode, open};
use kilnyard_store::{Number, Request, RunState};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How often signals and leases are checked.
const TICK: Duration = Duration::from_millis(100);

/// How often measurements of workers are kept.
const MEASURED_STEP: Duration = Duration::from_secs(30);

/// How often the server hears how much work is left.
const BACKLOG_STEP: Duration = Duration::from_secs(1);
/// The most ready packages that it hears of: more than any farm could begin at once.
const READY_MAX: usize = 5000;

/// How a run ended.
pub enum Ended {
    /// Finished, or interrupted.
    In(RunState),
    /// The store failed; the recorder has the error.
    Refused,
    /// Another machine continues it.
    HandedOver,
}

/// See the module documentation.
pub struct Owner<'a> {
    pub run: Number,
    pub expected: Expected<'a>,
    pub checks_reproducible: bool,
    /// Whether outputs are tested.
    pub tests_outputs: bool,
    pub driver: Driver,
    pub link: Link,
    pub contents: Contents,
    /// The patches that lead to trees of the yard, for workers on other machines.
    pub patches: Vec<TreePatch>,
    pub fetchers: Fetchers,
    pub jobs: Sender<Job>,
    pub desk: Desk,
    /// Stores outputs for other machines; absent if there is no place for that.
    pub depositor: Option<Arc<Depositor>>,
    pub gathering: Gathering,
    pub feed: Feed,
    pub bytes_fetched: u64,
    pub ended: Option<Ended>,
    /// The cores of this machine that take part.
    pub own_cores: u32,
    /// Whether the server hears how much work is left: workers are started for it, or shared with other yards.
    pub reports_backlog: bool,
    /// Whether another machine can continue the run; absent if none ever can.
    pub standby: Option<Standby>,
}

impl Owner<'_> {
    /// Runs until everything is decided, or the run is interrupted. `asked` has the requests from before the run.
    pub fn drive(&mut self, receiver: &Receiver<Message>, asked: Vec<Request>) -> Result<Ended> {
        self.show_standing();
        let (mut ticked, mut kept, mut reported) = (Instant::now(), Instant::now(), Instant::now());
        let (mut has_begun, mut asked, mut early) = (false, asked, Vec::new());
        let (mut is_enough, mut is_stopping) = (false, false);
        loop {
            if let Some(ended) = self.ended.take() {
                self.keep_measured();
                return Ok(ended);
            }
            if !has_begun && (self.gathering.is_over() || signals::count() > 0 || is_enough) {
                has_begun = true;
                // Requests from before the run come before its first decision, and nothing that they cause before it is begun.
                for request in asked.drain(..) {
                    self.apply_event(Event::Requested(request))?;
                }
                self.apply_event(Event::Begin)?;
                for input in early.drain(..) {
                    self.apply_input(input)?;
                }
            }
            match receiver.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
                Ok(Message::Event(event)) => self.apply_event(*event)?,
                Ok(Message::Input(input)) if !has_begun => early.push(*input),
                Ok(Message::Input(input)) => self.apply_input(*input)?,
                Ok(Message::OfWorker { worker: None, bytes }) => {
                    self.gathering.heard(&host_name());
                    self.hear_worker(&bytes)?;
                }
                Ok(Message::OfWorker { worker: Some((worker, _waiting)), bytes }) => {
                    self.gathering.heard(&worker);
                    self.hear_far(&worker, &bytes)?;
                }
                Ok(Message::Received(bytes)) => self.bytes_fetched += bytes,
                Ok(Message::Completed(completed)) => self.send_completed(*completed)?,
                Ok(Message::Enough) => is_enough = true,
                Ok(Message::Failed(error)) => return Err(*error),
                Ok(Message::Gone) => {
                    return Err(Error::new(Kind::Internal, "a thread of the run ended too early"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The owner holds a sender of its own.
                Err(RecvTimeoutError::Disconnected) => return Ok(Ended::In(RunState::Interrupted)),
            }
            if self.ended.is_none() && (signals::count() > 0 || is_enough) && has_begun && !is_stopping {
                is_stopping = true;
                if signals::is_handover() && self.standby.as_ref().is_some_and(Standby::is_there) {
                    // Builds of other machines continue, and what was decided is recorded before the leader leaves.
                    self.ended = Some(Ended::HandedOver);
                    continue;
                }
                self.feed.show(Shown::Stopping);
                if let Some(standby) = &self.standby {
                    standby.forget_run();
                }
                self.fetchers.cancel();
                if let Some(depositor) = &self.depositor {
                    depositor.stop();
                }
                self.apply_event(Event::Stop)?;
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.apply_event(Event::Tick)?;
                if kept.elapsed() >= MEASURED_STEP {
                    kept = Instant::now();
                    self.keep_measured();
                }
                if self.reports_backlog && reported.elapsed() >= BACKLOG_STEP {
                    reported = Instant::now();
                    self.report_backlog();
                }
                let remaining_path_seconds = self.driver.coordinator().remaining_path_seconds();
                let bytes_fetched = self.bytes_fetched;
                self.feed.show(Shown::Tick { remaining_path_seconds, bytes_fetched });
            }
        }
    }

    fn apply_input(&mut self, input: Input) -> Result<()> {
        match input {
            Input::Event(event) => self.apply_event(event),
            input => self.apply(input),
        }
    }

    /// Keeps what is measured of workers on other machines.
    fn keep_measured(&self) {
        if let Some(door) = &self.link.door {
            door.keep_measured(self.driver.coordinator().measured());
        }
    }

    /// Reports to the server how much work is left, for pools with machines on demand.
    fn report_backlog(&self) {
        if let Some(door) = &self.link.door {
            door.report_backlog(self.driver.coordinator().backlog(READY_MAX, self.own_cores));
        }
    }

    /// Passes an event to the coordinator.
    fn apply_event(&mut self, event: Event) -> Result<()> {
        if let Event::Requested(request) = &event {
            self.feed.show(Shown::Asked(request.clone()));
        }
        self.apply(Input::Event(event))
    }

    /// Passes a message of the worker in this process to the coordinator.
    fn hear_worker(&mut self, bytes: &[u8]) -> Result<()> {
        self.link.received(bytes)?;
        let message = Box::new(open(bytes).or_internal("read a message of the worker")?);
        self.apply(Input::Event(Event::Received { from: WORKER, message }))
    }

    /// Passes a message of a worker on another machine to the coordinator. Such a worker may send anything.
    fn hear_far(&mut self, worker: &str, bytes: &[u8]) -> Result<()> {
        let (Some(door), Ok(mut message)) = (&mut self.link.door, open::<ToCoordinator>(bytes)) else {
            return Ok(());
        };
        // Sessions are random, and each worker knows its own alone.
        if matches!(&message.body, ToCoordinator::Hello(hello) if hello.worker != worker) {
            return Ok(());
        }
        let from = door.channel(worker);
        door.correct(worker, &mut message.body);
        self.link.received(bytes)?;
        if let ToCoordinator::Hello(hello) = &message.body
            && hello.worker == host_name()
        {
            let reason = format!("{worker} is the name of the yard's own machine");
            return self.send(from, ToWorker::Refused { process: hello.process.clone(), reason });
        }
        self.apply(Input::Event(Event::Received { from, message: Box::new(message) }))
    }

    /// Applies an input and performs its tasks.
    fn apply(&mut self, input: Input) -> Result<()> {
        let (is_loaded, is_committed) =
            (matches!(input, Input::Loaded(_)), matches!(input, Input::Committed));
        if let (Input::Loaded(loaded), Some(door)) = (&input, &self.link.door) {
            door.lead_in(loaded.epoch);
        }
        let mut tasks = Vec::new();
        self.driver.apply(now_seconds(), input, &mut tasks);
        if is_loaded {
            self.show_standing();
        }
        if is_committed {
            self.feed.show(Shown::Committed);
        }
        for task in tasks {
            match task {
                Task::Commit(records) => self.record(Job::Commit(records)),
                Task::Reload => self.record(Job::Reload),
                Task::Prepare(to_prepare) => {
                    if to_prepare.reading == Reading::Fresh {
                        // The recipe may have changed.
                        self.contents.forget_trees();
                    }
                    self.desk.prepare(to_prepare);
                }
                Task::Perform(action) => self.perform(action)?,
                Task::NoRoom => drop(self.feed.show(Shown::DiskFull)),
                Task::Reloading => drop(self.feed.show(Shown::Reloading)),
                Task::GiveUp => self.ended = Some(Ended::Refused),
            }
        }
        Ok(())
    }

    /// Gives the recorder a job. If the recorder has ended, it reports that itself.
    fn record(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    fn show_standing(&self) {
        let states = self.driver.coordinator().states();
        let named = states.map(|(package, state)| (package.to_owned(), state));
        self.feed.show(Shown::BuildPhase(named.collect()));
    }

    fn perform(&mut self, action: Action) -> Result<()> {
        match action {
            // The driver turns these into tasks.
            Action::Record(_) | Action::Prepare { .. } => {}
            Action::Fetch { package, to_build } => self.fetchers.fetch(package, &to_build.order),
            Action::Grant(granted) => self.grant(&granted, false)?,
            Action::Announce(granted) => self.grant(&granted, true)?,
            Action::Allot(cores) => drop(self.feed.show(Shown::Allotted(cores))),
            Action::Send { to, message } => self.send(to, message)?,
            Action::Ask { package, version, attempt, built } => {
                let family = match self.link.place(&attempt) {
                    Some(Place::Here) => None,
                    Some(Place::Elsewhere(build)) => Some(build.family.clone()),
                    None => {
                        let answer =
                            Box::new(Answer::refuse("another process granted this build".to_owned()));
                        let Built { build, is_repeated, .. } = built;
                        return self.apply_event(Event::Answered {
                            build,
                            is_repeated,
                            answer,
                            deposit: None,
                        });
                    }
                };
                let of = BuildOf { package, version, tests_outputs: self.tests_outputs, family };
                self.desk.built(of, built);
            }
            Action::Adopt { package, outputs } => drop(self.desk.adopt(package, outputs)),
            Action::Quarantine { worker, reason } => {
                if let Some(door) = &self.link.door {
                    door.quarantine(&worker, &reason);
                }
                self.feed.show(Shown::Quarantined { worker, reason });
            }
            Action::Notify(Notice::Progress { build, progress }) => {
                self.feed.show(Shown::Progress { build, progress });
            }
            Action::Notify(Notice::Differs { package, message }) => {
                self.feed.show(Shown::Differs { package, message });
            }
            Action::Notify(Notice::Refused { request, reason }) => {
                self.feed.show(Shown::Refused { request, reason });
            }
            Action::Forget { worker, attempt } => {
                if let Some(door) = &mut self.link.door {
                    door.forget(&worker, &attempt);
                }
            }
            Action::Finish(state) => self.ended = Some(Ended::In(state)),
        }
        Ok(())
    }

    /// Sends a lease, or announces it.
    fn grant(&mut self, granted: &Granted, is_announced: bool) -> Result<()> {
        let written_bytes = self.expected.written_bytes(granted.package);
        let lease = Box::new(granted.lease(self.run, written_bytes, self.checks_reproducible));
        let mut outgoing = Outgoing::Lease { granted: Box::new(granted.clone()), lease, is_announced };
        if granted.channel != WORKER {
            outgoing.add_patches(&self.patches);
        }
        if granted.channel != WORKER && outgoing.is_incomplete() {
            self.contents.complete(outgoing);
            return Ok(());
        }
        match outgoing {
            Outgoing::Lease { granted, lease, .. } => self.send_lease(&granted, lease, is_announced),
            Outgoing::Answer(..) => Ok(()),
        }
    }

    /// Sends what other machines can use now.
    fn send_completed(
        &mut self,
        (outgoing, outcome): (Outgoing, std::result::Result<(), String>),
    ) -> Result<()> {
        match (outgoing, outcome) {
            (Outgoing::Lease { granted, lease, is_announced }, outcome) => {
                self.contents.completed(granted.attempt, is_announced);
                match outcome {
                    Ok(()) => self.send_lease(&granted, lease, is_announced),
                    // If the build begins, it fails with this.
                    Err(_) if is_announced => Ok(()),
                    Err(explanation) => {
                        self.apply_event(Event::Unsendable { build: granted.build, explanation })
                    }
                }
            }
            (Outgoing::Answer(to, message), Ok(())) => self.send_now(to, *message),
            (Outgoing::Answer(to, message), Err(reason)) => match *message {
                ToWorker::Answer { session, attempt, is_repeated, .. } => {
                    let answer = Box::new(Answer::refuse(reason));
                    self.send_now(to, ToWorker::Answer { session, attempt, is_repeated, answer })
                }
                message => self.send_now(to, message),
            },
        }
    }

    /// Sends a lease that its worker can use.
    fn send_lease(&mut self, granted: &Granted, lease: Box<Lease>, is_announced: bool) -> Result<()> {
        let (build, session) = (granted.build, granted.session);
        if is_announced {
            let message = ToWorker::Announce { session, lease };
            // One that is too large is lost: if the build begins, that is its failure.
            return encode(&message).map_or(Ok(()), |bytes| self.link.send(granted.channel, &message, bytes));
        }
        let message = ToWorker::Grant { session, lease };
        match (encode(&message), message) {
            (Ok(bytes), ToWorker::Grant { lease, .. }) => self.link.grant(granted, &lease, bytes),
            (Ok(_), _) => Ok(()),
            (Err(error), _) => self.apply_event(Event::Unsendable { build, explanation: error.to_string() }),
        }
    }

    /// Sends a message other than a lease.
    fn send(&mut self, to: Channel, message: ToWorker) -> Result<()> {
        if to == WORKER || !matches!(message, ToWorker::Answer { .. }) {
            return self.send_now(to, message);
        }
        let mut outgoing = Outgoing::Answer(to, Box::new(message));
        outgoing.add_patches(&self.patches);
        match outgoing.is_incomplete() {
            true => self.contents.complete(outgoing),
            false => self.send_completed((outgoing, Ok(())))?,
        }
        Ok(())
    }

    /// Sends a message that its worker can use.
    fn send_now(&mut self, to: Channel, message: ToWorker) -> Result<()> {
        let (bytes, message) = match (encode(&message), message) {
            (Ok(bytes), message) => (bytes, message),
            // A test may have a large order; all other messages are small.
            (Err(error), ToWorker::Answer { session, attempt, is_repeated, .. }) => {
                let answer = Box::new(Answer::refuse(error.to_string()));
                let message = ToWorker::Answer { session, attempt, is_repeated, answer };
                (encode(&message).or_internal(SENDING)?, message)
            }
            (Err(error), _) => return Err(error).or_internal(SENDING),
        };
        self.link.send(to, &message, bytes)
    }
}

/// Reads after "failed to".
const SENDING: &str = "send a message to the worker";
