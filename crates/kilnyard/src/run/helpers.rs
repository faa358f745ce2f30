//! Workers on other machines that help outside of runs: with the commands of a scan, and with the check of stored artifacts.
//! The door stores their output.

use super::contents::Packer;
use super::door::Door;
use super::{Message, capabilities};
use crate::error::Result;
use crate::words::now_seconds;
use crate::yard::Yard;
use crate::{mirror, signals};
use kilnyard_coordinator::{Asker, AskerAction, AskerEvent, Attempts, Event, Task};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::artifact::Checked;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{BuildOrder, Output};
use kilnyard_model::role::Role;
use kilnyard_process::{CaptureEnd, Captured};
use kilnyard_protocol::{ToCoordinator, ToWorker, encode, open};
use kilnyard_worker::{OUT_OF_TIME, TOO_LONG};
use kilnyard_yard::helpers::Helpers;
use rand::RngCore;
use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often workers are checked for silence.
const TICK: Duration = Duration::from_millis(500);
/// How long the first caller waits for workers to introduce themselves: they wait at the door.
const WAIT: Duration = Duration::from_secs(2);
/// How often a caller checks whether it is cancelled.
const STEP: Duration = Duration::from_millis(100);

/// The longest output of a command, with the lease's id: a little more than what a worker sends.
const OUTPUT_BYTES_MAX: u64 = 65 << 20;

/// The answer to a task: the id of its lease, and its output.
type Answer = std::result::Result<(Attempt, Vec<Output>), String>;

/// What the thread that asks workers receives.
enum Incoming {
    OfDoor(Message),
    Ask(Task, Sender<Answer>),
    End,
}

/// See the module documentation. It connects to the yard's door when it is first needed.
pub struct OtherMachines<'a> {
    yard: &'a Yard,
    connected: OnceLock<Option<Connected>>,
}

impl OtherMachines<'_> {
    /// Those of a yard.
    pub fn new(yard: &Yard) -> OtherMachines<'_> {
        OtherMachines { yard, connected: OnceLock::new() }
    }

    /// None if the yard has no door, or cannot use it.
    fn connected(&self) -> Option<&Connected> {
        self.connected.get_or_init(|| Connected::to(self.yard).unwrap_or_default()).as_ref()
    }
}

impl Helpers for OtherMachines<'_> {
    fn slots(&self, role: Role) -> u32 {
        self.connected().map_or(0, |connected| connected.slots(role))
    }

    fn run(&self, order: BuildOrder, cancel: &AtomicBool) -> io::Result<Captured> {
        let connected = self.connected().ok_or(io::ErrorKind::NotConnected)?;
        connected.run(order, cancel)
    }

    fn check(
        &self,
        artifacts: Vec<Sha256Hex>,
        cancel: &AtomicBool,
    ) -> io::Result<HashMap<Sha256Hex, Checked>> {
        let connected = self.connected().ok_or(io::ErrorKind::NotConnected)?;
        let checked = connected.ask(Task::Check(Arc::new(artifacts)), cancel)?;
        match checked.end {
            CaptureEnd::Exit(0) => serde_json::from_slice(&checked.output).map_err(io::Error::other),
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

/// The connection to workers. It ends when this is dropped: the door has one run at a time.
struct Connected {
    asking: Option<JoinHandle<()>>,
    incoming: Sender<Incoming>,
    slots: Arc<Slots>,
    started: Instant,
    packer: Mutex<Packer>,
    distfiles: FileStore,
}

impl Connected {
    /// Connects to the yard's door; none if there is none.
    fn to(yard: &Yard) -> Result<Option<Connected>> {
        if !Door::is_open(yard) {
            return Ok(None);
        }
        let (incoming, received) = mpsc::channel();
        let (owner, of_door) = mpsc::channel();
        let mut packer = Packer::new(yard);
        let Some(door) = Door::connect(yard, &owner, (0, None), &[], &mut packer) else { return Ok(None) };
        std::thread::spawn({
            let incoming = incoming.clone();
            move || {
                // Until the door's threads end.
                for message in of_door {
                    if incoming.send(Incoming::OfDoor(message)).is_err() {
                        return;
                    }
                }
            }
        });
        let slots = Arc::new(Slots::default());
        let asking = Asking { door, slots: slots.clone(), answers: HashMap::new(), count: 0 };
        let asking = Some(std::thread::spawn(move || asking.run(&received)));
        Ok(Some(Connected {
            asking,
            incoming,
            slots,
            started: Instant::now(),
            packer: Mutex::new(packer),
            distfiles: mirror::open_files(yard)?,
        }))
    }

    /// The output of a task, which its worker stored and is not needed any longer. A worker may name any file.
    fn output(&self, attempt: Attempt, output: &Output) -> io::Result<Captured> {
        let sha256 = Sha256Hex::parse(&output.sha256).map_err(io::Error::other)?;
        let file = fs_err::File::open(self.distfiles.path(&sha256))?;
        let mut bytes = Vec::new();
        file.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        let mark = format!("{attempt}\n");
        if bytes.len() as u64 > OUTPUT_BYTES_MAX || !bytes.starts_with(mark.as_bytes()) {
            return Err(io::Error::other("a worker named a file that is not the output of its task"));
        }
        bytes.drain(..mark.len());
        let _ = self.distfiles.artifacts().remove(&sha256);
        let end = match output.description.as_str() {
            OUT_OF_TIME => CaptureEnd::WallLimit,
            TOO_LONG => CaptureEnd::OutputLimit,
            code => CaptureEnd::Exit(code.parse().map_err(io::Error::other)?),
        };
        Ok(Captured { end, output: bytes, errors: Vec::new() })
    }

    fn slots(&self, role: Role) -> u32 {
        loop {
            let slots = self.slots.of(role).load(Ordering::Relaxed);
            if slots > 0 || self.started.elapsed() >= WAIT || signals::count() > 0 {
                return slots;
            }
            std::thread::sleep(STEP);
        }
    }

    fn run(&self, mut order: BuildOrder, cancel: &AtomicBool) -> io::Result<Captured> {
        let filled = self.packer.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut order.root);
        filled.map_err(|error| io::Error::other(error.one_line()))?;
        self.ask(Task::Run(Arc::new(order)), cancel)
    }

    fn ask(&self, task: Task, cancel: &AtomicBool) -> io::Result<Captured> {
        let (answer, answered) = mpsc::channel();
        let gone = || io::Error::other("the connection to other machines ended");
        self.incoming.send(Incoming::Ask(task, answer)).map_err(|_| gone())?;
        loop {
            match answered.recv_timeout(STEP) {
                Ok(Ok((attempt, outputs))) => {
                    let output = outputs.first().ok_or_else(|| io::Error::other("there is no output"))?;
                    return self.output(attempt, output);
                }
                Ok(Err(reason)) => return Err(io::Error::other(reason)),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) if cancel.load(Ordering::Relaxed) => {
                    return Ok(Captured {
                        end: CaptureEnd::Cancelled,
                        output: Vec::new(),
                        errors: Vec::new(),
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = self.incoming.send(Incoming::End);
        // The door is free for a run from here on.
        let _ = self.asking.take().map(JoinHandle::join);
    }
}

/// How many tasks the workers perform at once.
#[derive(Default)]
struct Slots {
    scan: AtomicU32,
    check: AtomicU32,
}

impl Slots {
    fn of(&self, role: Role) -> &AtomicU32 {
        match role {
            Role::Check => &self.check,
            _ => &self.scan,
        }
    }
}

/// The thread that asks workers.
struct Asking {
    door: Door,
    slots: Arc<Slots>,
    answers: HashMap<u64, Sender<Answer>>,
    count: u64,
}

impl Asking {
    fn run(mut self, received: &Receiver<Incoming>) {
        let mut secret = [0; Attempts::SECRET_BYTES];
        rand::rngs::OsRng.fill_bytes(&mut secret);
        let mut asker = Asker::new(Attempts::new(secret), capabilities());
        let mut ticked = Instant::now();
        loop {
            let event = match received.recv_timeout(TICK) {
                Ok(Incoming::Ask(task, answer)) => {
                    self.count += 1;
                    self.answers.insert(self.count, answer);
                    Some(AskerEvent::Ask(self.count, task))
                }
                Ok(Incoming::OfDoor(message)) => self.of_door(message),
                Err(RecvTimeoutError::Timeout) => None,
                Ok(Incoming::End) | Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut actions = Vec::new();
            event.into_iter().for_each(|event| asker.apply(now_seconds(), event, &mut actions));
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                asker.apply(now_seconds(), AskerEvent::Tick, &mut actions);
            }
            for role in [Role::Scan, Role::Check] {
                self.slots.of(role).store(asker.slots(role), Ordering::Relaxed);
            }
            actions.into_iter().for_each(|action| self.perform(action));
        }
    }

    /// The event of a message of the door. A worker may send anything.
    fn of_door(&mut self, message: Message) -> Option<AskerEvent> {
        match message {
            Message::Event(event) => match *event {
                Event::Workers(standings) => Some(AskerEvent::Workers(standings)),
                _ => None,
            },
            Message::OfWorker { worker: Some((worker, _waiting)), bytes } => {
                let message = open::<ToCoordinator>(&bytes).ok()?;
                if matches!(&message.body, ToCoordinator::Hello(hello) if hello.worker != worker) {
                    return None;
                }
                let from = self.door.channel(&worker);
                Some(AskerEvent::Received { from, message: Box::new(message) })
            }
            _ => None,
        }
    }

    fn perform(&mut self, action: AskerAction) {
        match action {
            AskerAction::Grant(to, message) => {
                if let (Ok(bytes), ToWorker::Grant { lease, .. }) = (encode(&message), &*message) {
                    self.door.grant(to, lease, bytes);
                }
            }
            AskerAction::Send(to, message) => {
                if let Ok(bytes) = encode(&message) {
                    self.door.send(to, &message, bytes);
                }
            }
            AskerAction::Answered(number, attempt, outcome) => {
                let answer = outcome.map(|outputs| (attempt, outputs)).map_err(|failure| failure.message);
                self.answer(number, answer);
            }
            AskerAction::Unanswered(number) => {
                self.answer(number, Err("no worker takes it".to_owned()));
            }
        }
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        // A cancelled caller has left.
        if let Some(caller) = self.answers.remove(&number) {
            let _ = caller.send(answer);
        }
    }
}
