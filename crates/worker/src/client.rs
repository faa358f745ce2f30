//! A worker that takes part in runs: the loop around the pure [`Agent`], with threads that build and the cores that they share.
//!
//! ```text
//! transport --bytes--> loop --> Agent::apply --> bytes --> transport
//! build     --how it goes--> |               --> begin, cancel, answer --> build
//! cores     --what builds can use--> |       --> who has how many --> cores
//! ```
//!
//! The loop waits for nothing but its own channel. Each build is a thread of its own, which says what it has to say to the loop. The
//! transport carries messages as bytes, and may lose them.
//!
//! What must hold: when [`Client::run`] returns, no build is left.

use crate::{Cores, Link, Share, Worker, jobserver_path};
use kilnyard_agent::{Action, Agent, Event};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::Stage;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_process::jobserver::Style;
use kilnyard_process::{now_seconds, pressure};
use kilnyard_protocol::{
    Answer, BuildResult, Built, Hello, Lease, Progress, ToWorker, WireError, encode, encode_as, open,
};
use kilnyard_schedule::Pressure;
use serde::Serialize;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How often the demand of builds for cores is sampled: a build that turns parallel waits no longer for its first further
/// core.
const LOOK: Duration = Duration::from_millis(25);
/// How often the agent is told that time went by; it repeats what is not answered after some seconds.
const TICK: Duration = Duration::from_secs(1);
/// How often the pressure of memory is sampled; the kernel renews its averages every two seconds.
const PRESSURE_LOOK: Duration = Duration::from_secs(2);

/// The way to a coordinator.
pub trait Transport {
    /// Sends a message, or loses it.
    fn send(&self, message: Vec<u8>);
}

/// Something for the loop.
#[derive(Debug)]
enum Incoming {
    /// A message of the coordinator.
    Message(Vec<u8>),
    /// Something of a build, or an order of the worker's owner.
    Event(Box<Event>),
    /// There will be no coordinator any more.
    Closed,
}

/// Where messages of the coordinator, and what builds have to say, come in.
#[derive(Clone, Debug)]
pub struct Inbox(Sender<Incoming>);

impl Inbox {
    /// An inbox, and the end of it that [`Client::run`] reads.
    pub fn new() -> (Inbox, Incomings) {
        let (sender, receiver) = mpsc::channel();
        (Inbox(sender.clone()), Incomings { receiver, sender })
    }

    /// Delivers a message of the coordinator. It is lost when the worker has ended.
    pub fn deliver(&self, message: Vec<u8>) {
        let _ = self.0.send(Incoming::Message(message));
    }

    /// Ends the worker: its builds are cancelled, and nothing more is said of them.
    pub fn close(&self) {
        let _ = self.0.send(Incoming::Closed);
    }
}

/// What comes in.
#[derive(Debug)]
pub struct Incomings {
    receiver: Receiver<Incoming>,
    sender: Sender<Incoming>,
}

/// Why a worker takes part no more.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The coordinator does not want it.
    #[error("the coordinator refused this worker: {0}")]
    Refused(String),
    /// What the coordinator says cannot be read.
    #[error("the coordinator said something that cannot be read: {0}")]
    Unreadable(#[source] WireError),
    /// Tokens or weights of builds cannot be set.
    #[error("the cores cannot be shared out: {0}")]
    Cores(#[from] std::io::Error),
}

/// See the module.
pub struct Client<'a> {
    /// What performs builds.
    pub worker: &'a Worker,
    /// The cores that builds share.
    pub cores: Cores,
    /// Whether builds get a jobserver.
    pub has_jobservers: bool,
    /// What this worker is capable of.
    pub capabilities: Vec<String>,
}

/// A build that goes on.
struct Going {
    build: u64,
    cancel: Arc<AtomicBool>,
    answers: Option<Sender<Answer>>,
}

/// A client while it runs.
struct Talk<'a, 'scope, 'env> {
    client: &'a mut Client<'env>,
    agent: Agent,
    /// The version of the protocol that the coordinator speaks, as far as that is known.
    version: u32,
    going: HashMap<Attempt, Going>,
    /// The builds' attempts, by number.
    attempts: HashMap<u64, Attempt>,
    transport: &'a dyn Transport,
    sender: Sender<Incoming>,
    scope: &'scope Scope<'scope, 'env>,
    /// The agent has left, for this reason if it was refused.
    left: Option<Option<String>>,
}

impl<'env> Client<'env> {
    /// Takes part until the inbox is closed, or the worker has drained and left.
    ///
    /// # Errors
    /// The coordinator refused it or cannot be understood, or cores cannot be shared out.
    pub fn run(
        &mut self,
        hello: Hello,
        incomings: Incomings,
        transport: &dyn Transport,
    ) -> Result<(), ClientError> {
        let Incomings { receiver, sender } = incomings;
        std::thread::scope(|scope| {
            let mut talk = Talk {
                client: self,
                version: hello.versions.oldest,
                agent: Agent::new(hello),
                going: HashMap::new(),
                attempts: HashMap::new(),
                transport,
                sender,
                scope,
                left: None,
            };
            let ended = talk.run(&receiver);
            for going in talk.going.into_values() {
                going.cancel.store(true, Ordering::Relaxed);
            }
            ended
        })
    }
}

impl<'scope, 'env: 'scope> Talk<'_, 'scope, 'env> {
    fn run(&mut self, receiver: &Receiver<Incoming>) -> Result<(), ClientError> {
        self.apply(Event::Tick)?;
        let (mut ticked, mut looked, mut pressed) = (Instant::now(), Instant::now(), Instant::now());
        loop {
            if let Some(reason) = self.left.take_if(|_| self.going.is_empty()) {
                return reason.map_or(Ok(()), |reason| Err(ClientError::Refused(reason)));
            }
            match receiver.recv_timeout(LOOK.saturating_sub(looked.elapsed())) {
                Ok(Incoming::Message(bytes)) => self.hear(&bytes)?,
                Ok(Incoming::Event(event)) => self.happened(*event)?,
                Ok(Incoming::Closed) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                for (build, cores) in self.client.cores.look(now_seconds())? {
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
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.apply(Event::Tick)?;
            }
        }
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let message = open::<ToWorker>(bytes).map_err(ClientError::Unreadable)?.body;
        if let ToWorker::Welcome(welcome) = &message {
            self.version = welcome.version;
        }
        self.apply(Event::Heard(Box::new(message)))
    }

    /// A build says something.
    fn happened(&mut self, event: Event) -> Result<(), ClientError> {
        match &event {
            Event::Reported { attempt, progress } => {
                let Some(going) = self.going.get(attempt) else { return Ok(()) };
                match progress {
                    Progress::StageBegan(_) => self.client.cores.stage_began(going.build),
                    Progress::Sample { runnable, .. } => self.client.cores.counted(going.build, *runnable),
                    Progress::StageEnded(_) | Progress::Wants(_) => {}
                }
            }
            Event::Ended { attempt, .. } => {
                if let Some(going) = self.going.remove(attempt) {
                    self.attempts.remove(&going.build);
                    self.client.cores.end(going.build)?;
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
                Action::Send(message) => {
                    // What builds say was tried before; the rest is small.
                    if let Ok(bytes) = encode_as(self.version, &self.client.capabilities, &message) {
                        self.transport.send(bytes);
                    }
                }
                Action::Begin(lease) => self.begin(*lease),
                Action::Allot(cores) => self.client.cores.allot(&cores)?,
                Action::Cancel(attempt) => {
                    if let Some(going) = self.going.get_mut(&attempt) {
                        going.cancel.store(true, Ordering::Relaxed);
                        // One that waits for its answer waits no more.
                        going.answers = None;
                    }
                }
                Action::Answer { attempt, answer } => {
                    if let Some(answers) = self.going.get(&attempt).and_then(|going| going.answers.as_ref()) {
                        // A build that was cancelled does not listen.
                        let _ = answers.send(*answer);
                    }
                }
                Action::Leave(reason) => self.left = Some(reason),
            }
        }
        Ok(())
    }

    fn begin(&mut self, lease: Lease) {
        let (build, attempt) = (lease.build, lease.attempt);
        let path = jobserver_path(&self.client.worker.settings.yard, build);
        let style = self.client.has_jobservers.then_some(Style::Named(path));
        let share = self.client.cores.begin(build, style);
        let cancel = Arc::new(AtomicBool::new(false));
        let (answers, answered) = mpsc::channel();
        self.attempts.insert(build, attempt);
        self.going.insert(attempt, Going { build, cancel: cancel.clone(), answers: Some(answers) });
        let link = OfBuild { attempt, sender: self.sender.clone(), answered };
        let worker = self.client.worker;
        self.scope.spawn(move || {
            let result = Box::new(perform(worker, &lease, &share, &cancel, &link));
            // Without a loop there is nobody to report to.
            let _ = link.sender.send(Incoming::Event(Box::new(Event::Ended { attempt, result })));
        });
    }
}

/// The way of a build to the loop.
struct OfBuild {
    attempt: Attempt,
    sender: Sender<Incoming>,
    answered: Receiver<Answer>,
}

impl Link for OfBuild {
    fn report(&self, progress: Progress) {
        let event = Event::Reported { attempt: self.attempt, progress };
        let _ = self.sender.send(Incoming::Event(Box::new(event)));
    }

    fn built(&self, built: Built) -> Result<Answer, String> {
        check(&built)?;
        let event = Event::Built { attempt: self.attempt, built };
        let is_over = || "the coordinator is gone".to_owned();
        self.sender.send(Incoming::Event(Box::new(event))).map_err(|_| is_over())?;
        self.answered.recv().map_err(|_| is_over())
    }
}

/// Whether something can be said.
fn check(said: &impl Serialize) -> Result<(), String> {
    encode(said).map(drop).map_err(|error| error.to_string())
}

/// Performs a build; a bug in one fails that one alone.
fn perform(
    worker: &Worker,
    lease: &Lease,
    share: &Share,
    cancel: &AtomicBool,
    link: &OfBuild,
) -> BuildResult {
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
    };
    let perform = || worker.perform(lease, share, cancel, link);
    match catch_unwind(AssertUnwindSafe(perform)) {
        Ok(result) => match check(&result) {
            Ok(()) => result,
            Err(error) => failed(error),
        },
        Err(_) => failed("a bug in Kilnyard ended this build; standard error has more".to_owned()),
    }
}
