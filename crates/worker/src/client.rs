//! The client side of a worker: the loop around the pure [`Agent`], with a thread for each build and the cores that
//! they share.
//!
//! ```text
//! transport --bytes--> loop --> Agent::apply --> bytes --> transport
//! build     --report--> |                    --> start, cancel, answer --> build
//! cores     --demand--> |                    --> cores of each build --> cores
//! ```
//!
//! The loop waits for its own channel only. Build threads report to the loop. The transport carries messages as
//! bytes, and may lose them.
//!
//! Invariant: when [`Client::run`] returns, no build is running.

use crate::{Cores, InUse, Link, Share, Supply, Tenant, Unprovided, Worker, jobserver_path};
use kilnyard_agent::{Action, Agent, Event};
use kilnyard_model::artifact::Checked;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{Stage, TestOrder};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_process::jobserver::Style;
use kilnyard_process::{now_seconds, pressure};
use kilnyard_protocol::{
    Answer, BuildResult, Built, Hello, Lease, Progress, ToCoordinator, ToWorker, WireError, encode,
    encode_as, open,
};
use kilnyard_schedule::{Pressure, Usage};
use serde::Serialize;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How often core demand is sampled. A build that becomes parallel waits at most this long for its second core.
const LOOK: Duration = Duration::from_millis(25);
/// How often the agent gets a tick. It repeats messages after some seconds.
const TICK: Duration = Duration::from_secs(1);
/// The most builds that are prepared at once, whatever is announced.
const PREPARING_MAX: usize = 64;
/// How often memory pressure and free space are sampled. The kernel updates its averages every two seconds.
const PRESSURE_LOOK: Duration = Duration::from_secs(2);

/// Carries messages to a coordinator.
pub trait Transport {
    /// Sends a message, or loses it.
    fn send(&self, message: Vec<u8>);
}

/// An input of the loop.
#[derive(Debug)]
enum Incoming {
    /// A message from the coordinator.
    Message(Vec<u8>),
    /// An event of a build.
    Event(Box<Event>),
    /// The inbox was closed.
    Closed,
    /// The worker ends, and says so.
    Quit,
}

/// Receives messages from the coordinator and events of builds.
#[derive(Clone, Debug)]
pub struct Inbox(Sender<Incoming>);

impl Inbox {
    /// An inbox, and the receiver for [`Client::run`].
    pub fn new() -> (Inbox, Incomings) {
        let (sender, receiver) = mpsc::channel();
        (Inbox(sender.clone()), Incomings { receiver, sender })
    }

    /// Delivers a message from the coordinator. It is lost if the worker ended.
    pub fn deliver(&self, message: Vec<u8>) {
        let _ = self.0.send(Incoming::Message(message));
    }

    /// Notes that another coordinator may be at the other end of the connection.
    pub fn reconnected(&self) {
        let _ = self.0.send(Incoming::Event(Box::new(Event::Reconnected)));
    }

    /// Lets the worker end when its builds have: it takes no more.
    pub fn drain(&self) {
        let _ = self.0.send(Incoming::Event(Box::new(Event::Drain)));
    }

    /// Ends the worker: its builds are cancelled, and the coordinator then gives them to others at once.
    pub fn quit(&self) {
        let _ = self.0.send(Incoming::Quit);
    }

    /// Ends the worker: its builds are cancelled without further messages.
    pub fn close(&self) {
        let _ = self.0.send(Incoming::Closed);
    }
}

/// The receiver of an inbox.
#[derive(Debug)]
pub struct Incomings {
    receiver: Receiver<Incoming>,
    sender: Sender<Incoming>,
}

/// Why a worker cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The coordinator refused the worker.
    #[error("the coordinator refused this worker: {0}")]
    Refused(String),
    /// A message from the coordinator cannot be decoded.
    #[error("failed to decode a message from the coordinator: {0}")]
    Unreadable(#[source] WireError),
    /// Tokens or CPU weights of builds cannot be set.
    #[error("failed to distribute the cores: {0}")]
    Cores(#[from] std::io::Error),
}

/// See the module documentation.
pub struct Client<'a> {
    /// Performs the builds.
    pub worker: &'a Worker,
    /// Moves the files of builds.
    pub supply: &'a dyn Supply,
    /// The machine's cores, which builds share.
    pub cores: Cores,
    /// What it may use of a machine that several yards share; absent if it has the machine alone.
    pub tenant: Option<Tenant>,
    /// Whether builds get a jobserver.
    pub has_jobservers: bool,
    /// The capabilities of this worker.
    pub capabilities: Vec<String>,
    /// With less free space in the worker's folder, it takes no builds, in bytes. 0 where builds fail for lack of space
    /// instead.
    pub free_bytes_min: u64,
}

struct Running {
    build: u64,
    /// Whether it may leave kept work.
    keeps: bool,
    cancel: Arc<AtomicBool>,
    answers: Option<Sender<Reply>>,
}

/// What a build hears that has asked about its outputs.
enum Reply {
    Answer(Answer),
    /// Another coordinator may not have them.
    DeliverAgain,
}

/// The preparation of an announced build.
struct Preparing {
    /// Its number among those that share the cores.
    number: u64,
    cancel: Arc<AtomicBool>,
}

/// A client while it runs.
struct Talk<'a, 'scope, 'env> {
    client: &'a mut Client<'env>,
    agent: Agent,
    /// The version of the protocol: the welcome's, or the oldest one before there is a session.
    version: u32,
    running: HashMap<Attempt, Running>,
    /// The builds' attempts, by number.
    attempts: HashMap<u64, Attempt>,
    /// The announced builds that are being prepared.
    preparing: HashMap<Attempt, Preparing>,
    /// The number of builds that were prepared.
    prepared: u64,
    /// The builds that may have left kept work, until it is known whether they count.
    keeping: HashMap<Attempt, u64>,
    transport: &'a dyn Transport,
    sender: Sender<Incoming>,
    scope: &'scope Scope<'scope, 'env>,
    /// Set when the agent left; contains a reason if it was refused.
    left: Option<Option<String>>,
    /// Whether it ends by itself.
    quits: bool,
    /// The cores that it may use, as the agent knows them.
    shared: Option<u32>,
}

impl<'env> Client<'env> {
    /// Takes part in runs until the inbox is closed, or the worker was drained.
    ///
    /// # Errors
    /// The coordinator refused the worker, its messages cannot be decoded, or cores cannot be shared out.
    pub fn run(
        &mut self,
        hello: Hello,
        incomings: Incomings,
        transport: &dyn Transport,
    ) -> Result<(), ClientError> {
        let Incomings { receiver, sender } = incomings;
        let _ends = self.tenant.clone().map(Ends);
        let (ended, mut agent, version, quits) = std::thread::scope(|scope| {
            let mut talk = Talk {
                client: &mut *self,
                version: hello.versions.oldest,
                agent: Agent::new(hello),
                running: HashMap::new(),
                attempts: HashMap::new(),
                preparing: HashMap::new(),
                prepared: 0,
                keeping: HashMap::new(),
                transport,
                sender,
                scope,
                left: None,
                quits: false,
                shared: None,
            };
            let ended = talk.run(&receiver);
            let Talk { agent, version, quits, running, preparing, .. } = talk;
            let preparing = preparing.into_values().map(|preparing| preparing.cancel);
            for cancel in running.into_values().map(|running| running.cancel).chain(preparing) {
                cancel.store(true, Ordering::Relaxed);
            }
            (ended, agent, version, quits)
        });
        if quits {
            // After the builds have ended: their logs arrive while they are still this worker's.
            let mut actions = Vec::new();
            agent.apply(now_seconds(), Event::Quit, &mut actions);
            for action in actions {
                if let Action::Send(message) = action
                    && let Ok(bytes) = encode_as(version, &self.capabilities, &message)
                {
                    transport.send(bytes);
                }
            }
        }
        ended
    }
}

/// Notes that nothing runs any more when a client has ended.
struct Ends(Tenant);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cores(Usage::default());
    }
}

impl Client<'_> {
    /// Whether the disk has room for builds.
    fn has_room(&self) -> bool {
        let facts = rustix::fs::statvfs(&*self.worker.settings.yard);
        let is_enough =
            |facts: rustix::fs::StatVfs| facts.f_bavail.saturating_mul(facts.f_frsize) >= self.free_bytes_min;
        // A folder that cannot be read fails builds with a reason.
        facts.map_or(true, is_enough)
    }
}

impl<'scope, 'env: 'scope> Talk<'_, 'scope, 'env> {
    fn run(&mut self, receiver: &Receiver<Incoming>) -> Result<(), ClientError> {
        // Before the first offer: it must not name cores that are others'.
        self.take_share()?;
        self.apply(Event::Tick)?;
        let (mut ticked, mut looked, mut pressed) = (Instant::now(), Instant::now(), Instant::now());
        loop {
            if let Some(reason) = self.left.take_if(|_| self.running.is_empty()) {
                return reason.map_or(Ok(()), |reason| Err(ClientError::Refused(reason)));
            }
            let building = self.agent.usage().building;
            match receiver.recv_timeout(LOOK.saturating_sub(looked.elapsed())) {
                Ok(Incoming::Message(bytes)) => self.receive(&bytes)?,
                Ok(Incoming::Event(event)) => self.happened(*event)?,
                Ok(Incoming::Closed) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Incoming::Quit) => {
                    self.quits = true;
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.agent.usage().building != building {
                // The agent begins nothing in place of a build that has ended until it has its share.
                self.shared = None;
                self.take_share()?;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.take_share()?;
                for (build, cores) in self.client.cores.sample(now_seconds())? {
                    if let Some(attempt) = self.attempts.get(&build).copied() {
                        self.apply(Event::Reported { attempt, progress: Progress::Wants(cores) })?;
                    }
                }
            }
            if pressed.elapsed() >= PRESSURE_LOOK {
                pressed = Instant::now();
                let pressure = match pressure::Pressure::of(pressure::memory_stalled_percent()) {
                    pressure::Pressure::High => Pressure::High,
                    _ => Pressure::Low,
                };
                self.apply(Event::Pressure(pressure))?;
                self.apply(Event::Room(self.client.has_room()))?;
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.apply(Event::Tick)?;
            }
        }
    }

    /// Learns what may be used of a machine that several yards share.
    fn take_share(&mut self) -> Result<(), ClientError> {
        let cores = self.client.tenant.as_ref().map(|tenant| tenant.cores(self.agent.usage()));
        match cores {
            Some(cores) if self.shared != Some(cores) => {
                self.shared = Some(cores);
                self.apply(Event::Share(cores))
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let message = open::<ToWorker>(bytes).map_err(ClientError::Unreadable)?.body;
        match &message {
            ToWorker::Welcome(welcome) => self.version = welcome.version,
            ToWorker::Acknowledged { attempt, .. } => drop(self.keeping.remove(attempt)),
            // Another worker's test of its outputs has failed, or the lease was over.
            ToWorker::Superseded { attempt, .. } => {
                if let Some(build) = self.keeping.remove(attempt) {
                    self.client.worker.forget_kept(build);
                }
            }
            _ => {}
        }
        self.apply(Event::Received(Box::new(message)))
    }

    /// Handles an event of a build.
    fn happened(&mut self, event: Event) -> Result<(), ClientError> {
        match &event {
            Event::Reported { attempt, progress } => {
                let Some(running) = self.running.get(attempt) else { return Ok(()) };
                match progress {
                    Progress::StageBegan(_) => self.client.cores.stage_began(running.build),
                    Progress::Sample { runnable, .. } => self.client.cores.counted(running.build, *runnable),
                    Progress::StageEnded(_) | Progress::Wants(_) => {}
                }
            }
            Event::Prepared(attempt) => {
                if let Some(preparing) = self.preparing.remove(attempt) {
                    self.client.cores.end(preparing.number)?;
                }
            }
            Event::Ended { attempt, .. } => {
                if let Some(running) = self.running.remove(attempt) {
                    self.attempts.remove(&running.build);
                    self.client.cores.end(running.build)?;
                    if running.keeps {
                        self.keeping.insert(*attempt, running.build);
                    }
                }
            }
            _ => {}
        }
        self.apply(event)
    }

    fn apply(&mut self, event: Event) -> Result<(), ClientError> {
        let mut actions = Vec::new();
        self.agent.apply(now_seconds(), event, &mut actions);
        for action in actions {
            match action {
                Action::Send(mut message) => {
                    if let ToCoordinator::Hello(hello) = &mut message {
                        // Builds may have changed it since the last one.
                        hello.warm = self.client.supply.warm();
                        hello.kept = self.client.worker.kept_keys();
                    }
                    // Messages with outputs and results were checked; all others are small.
                    if let Ok(bytes) = encode_as(self.version, &self.client.capabilities, &message) {
                        self.transport.send(bytes);
                    }
                }
                Action::Prepare(lease) => self.prepare(*lease)?,
                Action::Abandon(attempt) => {
                    if let Some(preparing) = self.preparing.get(&attempt) {
                        preparing.cancel.store(true, Ordering::Relaxed);
                    }
                }
                Action::Begin(lease) => self.begin(*lease),
                Action::Allot(cores) => self.client.cores.allot(&cores)?,
                Action::Cancel(attempt) => {
                    if let Some(running) = self.running.get_mut(&attempt) {
                        running.cancel.store(true, Ordering::Relaxed);
                        // It stops waiting for an answer.
                        running.answers = None;
                    }
                }
                Action::Answer { attempt, answer } => {
                    if let Some(answers) =
                        self.running.get(&attempt).and_then(|running| running.answers.as_ref())
                    {
                        // A cancelled build has no receiver.
                        let _ = answers.send(Reply::Answer(*answer));
                    }
                }
                Action::Deliver(attempt) => {
                    if let Some(answers) =
                        self.running.get(&attempt).and_then(|running| running.answers.as_ref())
                    {
                        let _ = answers.send(Reply::DeliverAgain);
                    }
                }
                Action::Leave(reason) => self.left = Some(reason),
            }
        }
        Ok(())
    }

    /// Fetches the inputs of an announced build, and makes the layers of its root. If its build begins meanwhile, that waits
    /// for those that are being made.
    fn prepare(&mut self, lease: Lease) -> Result<(), ClientError> {
        let attempt = lease.attempt;
        if self.preparing.len() >= PREPARING_MAX || !self.client.has_room() {
            return self.apply(Event::Prepared(attempt));
        }
        // No build has such a number. That of the lease may be another build's when this one begins.
        self.prepared += 1;
        let number = u64::MAX - self.prepared;
        let (share, cancel) = (self.client.cores.begin(number, None), Arc::new(AtomicBool::new(false)));
        self.preparing.insert(attempt, Preparing { number, cancel: cancel.clone() });
        let (worker, supply, sender) = (self.client.worker, self.client.supply, self.sender.clone());
        self.scope.spawn(move || {
            let prepare = || {
                let _in_use = worker.using(&lease);
                // What fails here fails again when the build begins, with a log.
                if supply.prepare(&lease, &cancel) {
                    let _ = worker.stack(&lease, &share, &cancel);
                }
            };
            // A panic has been reported, and concerns this preparation only.
            let _ = catch_unwind(AssertUnwindSafe(prepare));
            let _ = sender.send(Incoming::Event(Box::new(Event::Prepared(attempt))));
        });
        Ok(())
    }

    fn begin(&mut self, lease: Lease) {
        let (build, attempt) = (lease.build, lease.attempt);
        let path = jobserver_path(&self.client.worker.settings.yard, build);
        // With one job, a build takes no tokens.
        let has_jobserver = self.client.has_jobservers && lease.order.terms.jobs_max != Some(1);
        let style = has_jobserver.then_some(Style::Named(path));
        let share = self.client.cores.begin(build, style);
        let cancel = Arc::new(AtomicBool::new(false));
        let (answers, answered) = mpsc::channel();
        self.attempts.insert(build, attempt);
        let (keeps, answers) = (lease.order.keep.is_some(), Some(answers));
        self.running.insert(attempt, Running { build, keeps, cancel: cancel.clone(), answers });
        let (worker, supply) = (self.client.worker, self.client.supply);
        let link = OfBuild {
            attempt,
            sender: self.sender.clone(),
            answered,
            worker,
            supply,
            cancel,
            logs: Mutex::default(),
            in_use: Mutex::default(),
        };
        self.scope.spawn(move || {
            // From before its files are looked for until its logs have arrived.
            let _in_use = worker.using(&lease);
            let result = Box::new(perform(worker, &lease, &share, &link));
            let logs = link.logs.into_inner().unwrap_or_else(PoisonError::into_inner);
            supply.end(&lease, &logs);
            // Without a loop there is no receiver.
            let _ = link.sender.send(Incoming::Event(Box::new(Event::Ended { attempt, result })));
        });
    }
}

/// The link of a build to the loop.
struct OfBuild<'a> {
    attempt: Attempt,
    sender: Sender<Incoming>,
    answered: Receiver<Reply>,
    worker: &'a Worker,
    supply: &'a dyn Supply,
    cancel: Arc<AtomicBool>,
    /// The logs of the stages that ended.
    logs: Mutex<Vec<String>>,
    /// What its tests use.
    in_use: Mutex<Vec<InUse>>,
}

impl Link for OfBuild<'_> {
    fn report(&self, progress: Progress) {
        if let Progress::StageEnded(stage) = &progress {
            self.logs.lock().unwrap_or_else(PoisonError::into_inner).extend(stage.log.clone());
        }
        let event = Event::Reported { attempt: self.attempt, progress };
        let _ = self.sender.send(Incoming::Event(Box::new(event)));
    }

    fn built(&self, built: &Built, folder: &Path) -> Result<Answer, String> {
        check(built)?;
        let is_over = || "the connection to the coordinator was lost".to_owned();
        loop {
            self.supply.deliver(self.attempt, built, folder, &self.cancel)?;
            let event = Event::Built { attempt: self.attempt, built: built.clone() };
            self.sender.send(Incoming::Event(Box::new(event))).map_err(|_| is_over())?;
            if let Reply::Answer(answer) = self.answered.recv().map_err(|_| is_over())? {
                return Ok(answer);
            }
        }
    }

    fn provide_test(&self, test: &TestOrder) -> Result<(), Unprovided> {
        let in_use = self.worker.using_for_test(test);
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).push(in_use);
        self.supply.provide_test(test, &self.cancel)
    }

    fn check(&self, sha256: &Sha256Hex) -> Result<Checked, String> {
        self.supply.check(sha256, &self.cancel)
    }
}

/// Checks that a part of a message can be encoded.
fn check(said: &impl Serialize) -> Result<(), String> {
    encode(said).map(drop).map_err(|error| error.to_string())
}

/// Signs a result with outputs that this worker built.
fn signed(mut result: BuildResult, lease: &Lease, link: &OfBuild<'_>) -> BuildResult {
    if let (Ok(outputs), None, false) = (&result.outcome, &lease.to_test, lease.is_no_build()) {
        result.provenance = link.supply.sign(lease, outputs);
    }
    result
}

/// Performs a build. A panic fails this build only.
fn perform(worker: &Worker, lease: &Lease, share: &Share, link: &OfBuild<'_>) -> BuildResult {
    let failed = |message: String| BuildResult {
        build: lease.build,
        outcome: Err(Failure {
            stage: Stage::Build,
            kind: FailureKind::Machine,
            message,
            line_number: None,
            lines: Vec::new(),
        }),
        is_reproducible: None,
        provenance: None,
    };
    let perform = || match link.supply.provide(lease, &link.cancel) {
        Ok(()) => signed(worker.perform(lease, share, &link.cancel, link), lease, link),
        Err(failure) => {
            BuildResult { build: lease.build, outcome: Err(failure), is_reproducible: None, provenance: None }
        }
    };
    match catch_unwind(AssertUnwindSafe(perform)) {
        Ok(result) => match check(&result) {
            Ok(()) => result,
            Err(error) => failed(error),
        },
        Err(_) => failed("a bug in Kilnyard ended this build; see standard error".to_owned()),
    }
}
