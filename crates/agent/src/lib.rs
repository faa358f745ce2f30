//! The owner of a worker's state. [`Agent::apply`] takes an event and returns actions.
//!
//! The agent talks to a coordinator over a network that may lose, repeat, delay and reorder messages, and may be down
//! for hours. It starts every exchange, and repeats each message until it is answered:
//!
//! ```text
//! Greeting --Welcome--> Joined --Rejoin-> Greeting …          (the coordinator was restarted: builds continue)
//!     |                    +--Drain, nothing left--> Left
//!     +--Refused--> Refused
//! ```
//!
//! The states of a build:
//!
//! ```text
//! Announce: announced --Grant, of the same attempt--> Waiting
//!           +--Revoke, a lost session--> abandoned
//! Grant: Waiting --slot free, by rank--> Building --result--> Ended --Acknowledged--> forgotten
//!           +--Revoke, Cancel, Superseded--> forgotten  |
//!                                                       +--Superseded--> cancelled, and forgotten when it has ended
//! ```
//!
//! `apply` is pure: it reads no clock, uses no random numbers and does no I/O. The caller performs the actions in their
//! order, with threads that build and a transport for messages.
//!
//! Cores do not cross the wire: the coordinator sends ranks, by which the agent distributes the cores of its machine
//! whenever the demand of a build changes.
//!
//! Invariants: a build starts at most once; there are no more running builds than slots; a result is kept until the
//! coordinator has recorded or rejected it; builds continue while the coordinator is unreachable; messages of an
//! earlier session change nothing.
//!
//! The agent does not decide what is built, and its state does not survive its process: builds die with the worker,
//! which says hello as a new process.
//!
//! Known downside: messages are repeated at fixed intervals, whatever the latency.

mod builds;
#[cfg(test)]
mod tests;

use builds::Builds;
use kilnyard_model::attempt::Attempt;
use kilnyard_protocol::{
    Answer, BuildPhase, BuildResult, Built, Hello, Lease, Offer, Progress, Reports, Session, ToCoordinator,
    ToWorker, Welcome,
};
use kilnyard_schedule::{Machine, Pressure, Usage};
use std::collections::{BTreeMap, BTreeSet};

/// A message without an answer is repeated after this time, in seconds.
pub const REPEAT_SECONDS: f64 = 5.0;
/// The longest time between offers, in seconds. Offers renew leases.
pub const OFFER_SECONDS: f64 = 10.0;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A message of the coordinator.
    Received(Box<ToWorker>),
    /// The preparation of an announced build ended, whatever came of it.
    Prepared(Attempt),
    /// A report of a build.
    Reported {
        /// A build that has begun.
        attempt: Attempt,
        /// The report.
        progress: Progress,
    },
    /// The outputs of a build, which waits for the answer.
    Built {
        /// A build that has begun.
        attempt: Attempt,
        /// As the family's rules read them.
        built: Built,
    },
    /// A build ended, with all its processes.
    Ended {
        /// A build that has begun and was not forgotten.
        attempt: Attempt,
        /// Kept and repeated until it is acknowledged.
        result: Box<BuildResult>,
    },
    /// The memory pressure of the machine.
    Pressure(Pressure),
    /// Whether the machine's disk has room for builds. Without it, the worker takes no more.
    Room(bool),
    /// The cores that this run may use of a machine that several share. 0: it may start nothing.
    Share(u32),
    /// Another coordinator may be at the other end of the connection.
    Reconnected,
    /// Take no more builds, and leave when the running ones have ended.
    Drain,
    /// Leave at once: the process ends, and its builds with it.
    Quit,
    /// Time has passed. Repeats messages and makes offers when they are due.
    Tick,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message to the coordinator.
    Send(ToCoordinator),
    /// Fetch the inputs of an announced build, and make its root. [`Event::Prepared`] follows.
    Prepare(Box<Lease>),
    /// End the preparation of a build, which does not follow.
    Abandon(Attempt),
    /// Start a build.
    Begin(Box<Lease>),
    /// The running builds by number, the highest rank first, with the cores of each from now on.
    Allot(Vec<(u64, u32)>),
    /// Cancel a build. [`Event::Ended`] follows.
    Cancel(Attempt),
    /// Pass on the answer that a build waits for.
    Answer {
        /// A running build.
        attempt: Attempt,
        /// As the coordinator sent it.
        answer: Box<Answer>,
    },
    /// Bring the outputs of a build again, to another coordinator that may not have them. [`Event::Built`] follows.
    Deliver(Attempt),
    /// The worker left; with a reason if it was refused. Its process may exit once its builds have ended.
    Leave(Option<String>),
}

/// The state of the conversation.
#[derive(Clone, Debug, PartialEq)]
enum Link {
    /// No session. The last hello was sent at this time, if any was.
    Greeting(Option<f64>),
    /// A session.
    Joined(Joined),
    /// The worker left.
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Joined {
    session: Session,
    slots: u32,
    /// The number of the last offer.
    offer: u64,
    offered_seconds: f64,
    /// Whether that offer was answered.
    is_answered: bool,
    /// Whether that offer is outdated.
    is_stale: bool,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Agent {
    hello: Hello,
    link: Link,
    builds: Builds,
    /// The announced builds that are being prepared.
    announced: BTreeSet<Attempt>,
    /// The machine that the builds share, as the coordinator last described it.
    machine: Machine,
    /// The maximum number of cores for one build, as the coordinator last described it.
    jobs_max: Option<u32>,
    /// The last [`Action::Allot`].
    allotted: Vec<(u64, u32)>,
    pressure: Pressure,
    is_draining: bool,
    has_room: bool,
    /// See [`Event::Share`]; absent if the machine is this run's alone.
    share: Option<u32>,
    /// The number of builds that it has begun.
    begun: u64,
    now_seconds: f64,
}

impl Agent {
    /// The agent of a worker with this hello.
    pub fn new(hello: Hello) -> Agent {
        let machine = Machine {
            speed: hello.speed,
            memory_bytes: hello.memory_bytes,
            disk_bytes: hello.disk_bytes,
            ..Machine::of_cores(hello.cores)
        };
        Agent {
            hello,
            link: Link::Greeting(None),
            builds: Builds::default(),
            announced: BTreeSet::new(),
            machine,
            jobs_max: None,
            allotted: Vec::new(),
            pressure: Pressure::Low,
            is_draining: false,
            has_room: true,
            share: None,
            begun: 0,
            now_seconds: 0.0,
        }
    }

    /// The worker's builds and their progress.
    pub fn held(&self) -> impl Iterator<Item = (Attempt, BuildPhase)> {
        self.builds.held().map(|(attempt, build)| (attempt, build.phase))
    }

    /// What its builds use of the machine. The caller knows whether further ones could start.
    pub fn usage(&self) -> Usage {
        let used = self.allotted.iter().map(|(_, cores)| *cores).sum();
        Usage {
            building: self.builds.building(),
            begun: self.begun,
            wanted: self.builds.wanted(),
            used,
            memory_bytes: self.builds.memory_bytes(&self.allotted),
            has_ready: false,
        }
    }

    /// Applies an event at this time, in seconds of a monotonic clock, and appends the actions that follow.
    pub fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.now_seconds = now_seconds;
        // The core that it leaves may be another yard's by now.
        let asks_for_share = self.share.is_some() && matches!(event, Event::Ended { .. });
        match event {
            Event::Received(message) => self.receive(*message, actions),
            Event::Prepared(attempt) => drop(self.announced.remove(&attempt)),
            Event::Reported { attempt, progress } => {
                if let Some(build) = self.builds.get_mut(attempt) {
                    build.report(progress);
                }
            }
            Event::Built { attempt, built } => {
                if let Some(build) = self.builds.get_mut(attempt) {
                    build.built = Some(built);
                    build.built_seconds = None;
                }
            }
            Event::Ended { attempt, result } => {
                self.builds.ended(attempt, result, now_seconds);
                self.renew_offer();
            }
            Event::Pressure(pressure) => {
                if std::mem::replace(&mut self.pressure, pressure) != pressure {
                    self.renew_offer();
                }
            }
            Event::Room(has_room) => {
                if std::mem::replace(&mut self.has_room, has_room) != has_room {
                    self.renew_offer();
                }
            }
            Event::Share(cores) => {
                if self.share.replace(cores) != Some(cores) {
                    self.renew_offer();
                }
            }
            Event::Reconnected => {
                self.introduce();
                for (attempt, build) in self.builds.held_mut() {
                    if build.built.take().is_some() {
                        actions.push(Action::Deliver(attempt));
                    }
                }
            }
            Event::Drain => self.drain(),
            Event::Quit => self.quit(actions),
            Event::Tick => self.builds.forget(now_seconds),
        }
        if !asks_for_share {
            self.begin(actions);
        }
        self.allot(actions);
        self.speak(actions);
    }

    /// Distributes the cores by rank and demand. This does not need the coordinator.
    fn allot(&mut self, actions: &mut Vec<Action>) {
        let cores = self.share.map_or(self.machine.cores, |share| share.clamp(1, self.machine.cores));
        let allotted = self.builds.share_out(&Machine { cores, ..self.machine }, self.jobs_max);
        if allotted != self.allotted {
            self.allotted.clone_from(&allotted);
            actions.push(Action::Allot(allotted));
        }
    }

    fn drain(&mut self) {
        if !std::mem::replace(&mut self.is_draining, true) {
            self.renew_offer();
        }
    }

    /// Leaves, so that others get the builds at once.
    fn quit(&mut self, actions: &mut Vec<Action>) {
        if let Link::Joined(Joined { session, .. }) = self.link {
            actions.push(Action::Send(ToCoordinator::Leave { session }));
        }
        if self.link != Link::Left {
            self.link = Link::Left;
            actions.push(Action::Leave(None));
        }
    }

    fn abandon_all(&mut self, actions: &mut Vec<Action>) {
        actions.extend(std::mem::take(&mut self.announced).into_iter().map(Action::Abandon));
    }

    /// Says at once what would otherwise wait for its time: another coordinator answers an offer with a request for a
    /// hello.
    fn introduce(&mut self) {
        match &mut self.link {
            Link::Greeting(said) => *said = None,
            Link::Joined(joined) => joined.is_stale = true,
            Link::Left => {}
        }
    }

    /// Marks the last offer as outdated.
    fn renew_offer(&mut self) {
        if let Link::Joined(joined) = &mut self.link {
            joined.is_stale = true;
        }
    }

    fn receive(&mut self, message: ToWorker, actions: &mut Vec<Action>) {
        let own = match &self.link {
            Link::Joined(joined) => Some(joined.session),
            Link::Greeting(_) | Link::Left => None,
        };
        // It belongs to an earlier session, or to one whose welcome has not arrived.
        if message.session().is_some() && message.session() != own {
            return;
        }
        match message {
            ToWorker::Welcome(welcome) => self.welcome(&welcome),
            ToWorker::Refused { process, reason } => {
                if process == self.hello.process && self.link != Link::Left {
                    self.link = Link::Left;
                    for (attempt, build) in self.builds.held_mut() {
                        build.cancel(attempt, actions);
                    }
                    self.builds.drop_waiting(self.now_seconds);
                    self.abandon_all(actions);
                    actions.push(Action::Leave(Some(reason)));
                }
            }
            ToWorker::Rejoin { .. } => {
                self.abandon_all(actions);
                self.link = Link::Greeting(None);
            }
            ToWorker::Ranks { offer, builds, .. } => {
                if let Link::Joined(joined) = &mut self.link
                    && joined.offer == offer
                {
                    joined.is_answered = true;
                    self.builds.rank(&builds);
                }
            }
            ToWorker::Announce { lease, .. } => {
                let is_new = !self.is_draining && !self.builds.is_known(lease.attempt);
                if is_new && self.announced.insert(lease.attempt) {
                    actions.push(Action::Prepare(lease));
                }
            }
            ToWorker::Grant { lease, .. } => {
                self.announced.remove(&lease.attempt);
                if self.builds.grant(lease) {
                    self.renew_offer();
                }
            }
            ToWorker::Revoke { attempt, .. } => {
                if self.announced.remove(&attempt) {
                    actions.push(Action::Abandon(attempt));
                }
                if self.builds.revoke(attempt, self.now_seconds) {
                    self.renew_offer();
                }
            }
            ToWorker::Cancel { attempt, .. } => {
                if self.builds.revoke(attempt, self.now_seconds) {
                    self.renew_offer();
                } else if let Some(build) = self.builds.get_mut(attempt) {
                    build.cancel(attempt, actions);
                }
            }
            ToWorker::Received { attempt, next, .. } => {
                if let Some(build) = self.builds.get_mut(attempt) {
                    build.acknowledge(next);
                }
            }
            ToWorker::Answer { attempt, is_repeated, answer, .. } => {
                if let Some(build) = self.builds.get_mut(attempt)
                    && build.built.as_ref().is_some_and(|built| built.is_repeated == is_repeated)
                {
                    build.built = None;
                    actions.push(Action::Answer { attempt, answer });
                }
            }
            ToWorker::Acknowledged { attempt, .. } => {
                if self.builds.get_mut(attempt).is_some_and(|build| build.phase == BuildPhase::Ended) {
                    self.builds.remove(attempt, self.now_seconds);
                    self.renew_offer();
                }
            }
            ToWorker::Superseded { attempt, .. } => {
                if let Some(build) = self.builds.get_mut(attempt) {
                    build.is_superseded = true;
                    build.cancel(attempt, actions);
                    if build.phase != BuildPhase::Building {
                        self.builds.remove(attempt, self.now_seconds);
                        self.renew_offer();
                    }
                }
            }
        }
    }

    fn welcome(&mut self, welcome: &Welcome) {
        if welcome.process != self.hello.process || !matches!(self.link, Link::Greeting(_)) {
            return;
        }
        self.machine.cores = welcome.cores.max(1);
        self.jobs_max = welcome.jobs_max;
        self.link = Link::Joined(Joined {
            session: welcome.session,
            slots: welcome.slots.max(1),
            offer: 0,
            offered_seconds: self.now_seconds,
            is_answered: false,
            is_stale: true,
        });
        // Messages without an answer are repeated in the new session.
        for (_, build) in self.builds.held_mut() {
            build.resend_all();
        }
    }

    /// Starts builds while slots are free, the highest rank first.
    fn begin(&mut self, actions: &mut Vec<Action>) {
        let Link::Joined(Joined { slots, .. }) = self.link else { return };
        let slots = self.share.map_or(slots, |share| slots.min(share));
        while !self.is_draining && self.builds.building() < slots {
            let Some(lease) = self.builds.next() else { break };
            self.begun += 1;
            actions.push(Action::Begin(lease));
            self.renew_offer();
        }
    }

    /// Sends the messages that are due.
    fn speak(&mut self, actions: &mut Vec<Action>) {
        let now_seconds = self.now_seconds;
        let is_due = |said: Option<f64>| said.is_none_or(|said| now_seconds - said >= REPEAT_SECONDS);
        let joined = match &mut self.link {
            Link::Left => return,
            Link::Greeting(said) => {
                if self.is_draining && self.builds.is_empty() {
                    self.link = Link::Left;
                    actions.push(Action::Leave(None));
                } else if is_due(*said) {
                    *said = Some(now_seconds);
                    actions.push(Action::Send(ToCoordinator::Hello(self.hello.clone())));
                }
                return;
            }
            Link::Joined(joined) => joined,
        };
        let session = joined.session;
        if self.is_draining && self.builds.is_empty() {
            self.link = Link::Left;
            actions.push(Action::Send(ToCoordinator::Leave { session }));
            actions.push(Action::Leave(None));
            return;
        }
        // A coordinator that has just taken over can give out builds before it knows how each of these is doing.
        let is_first = joined.offer == 0;
        let mut of_builds = Vec::new();
        for (attempt, build) in self.builds.held_mut() {
            build.speak(now_seconds, session, attempt, if is_first { &mut of_builds } else { actions });
        }
        let patience_seconds = if joined.is_answered { OFFER_SECONDS } else { REPEAT_SECONDS };
        if joined.is_stale || now_seconds - joined.offered_seconds >= patience_seconds {
            joined.offer += 1;
            joined.offered_seconds = now_seconds;
            (joined.is_answered, joined.is_stale) = (false, false);
            let offer = Offer {
                session,
                number: joined.offer,
                held: self.builds.offered(),
                slots_free: joined.slots.saturating_sub(self.builds.building()),
                pressure: self.pressure,
                takes_more: !self.is_draining && self.has_room && self.share != Some(0),
                cores: self.share.filter(|share| *share < self.machine.cores).map(|share| share.max(1)),
            };
            actions.push(Action::Send(ToCoordinator::Offer(offer)));
        }
        actions.append(&mut of_builds);
    }
}
