//! The one owner of a worker's state: [`Agent::apply`] takes an event and says what is to be done.
//!
//! The agent holds a conversation with a coordinator over a network that may lose, repeat, delay and reorder what is sent, and that may
//! be gone for hours. It begins everything itself and repeats it until it is answered:
//!
//! ```text
//! Greeting --Welcome--> Joined --Again--> Greeting …          (the coordinator was started again: builds continue)
//!     |                    +--Drain, nothing left--> Left
//!     +--Refused--> Refused
//! ```
//!
//! A build goes this way:
//!
//! ```text
//! Grant: Waiting --slot free, by rank--> Building --result--> Ended --Acknowledged--> forgotten
//!           +--Revoke, Cancel, Superseded--> forgotten  |
//!                                                       +--Superseded--> cancelled, and forgotten when it has ended
//! ```
//!
//! `apply` is pure: it reads no clock, draws no random number, and calls nothing. Its driver performs the actions in their order:
//! threads that build, and a transport that carries messages.
//!
//! Cores do not cross the wire: the coordinator says ranks, and the agent shares out the cores of its machine by them whenever a
//! build can use another number than before.
//!
//! What must hold: a build begins at most once; no more builds than slots at once; a result is kept until the coordinator says that
//! it is recorded or does not count; builds continue while the coordinator is away. What the agent is told of a session
//! that is over changes nothing.
//!
//! It does not decide what is built; and it does not outlive its process: a worker that was killed has no builds, since they die
//! with it, and says hello as a new process.
//!
//! Known downside: what is not answered is said again at fixed intervals, however far away the coordinator is.

mod builds;
#[cfg(test)]
mod tests;

use builds::Builds;
use kilnyard_model::attempt::Attempt;
use kilnyard_protocol::{
    Answer, BuildResult, Built, Hello, Lease, Offer, Progress, Reports, Session, Standing, ToCoordinator,
    ToWorker, Welcome,
};
use kilnyard_schedule::{Machine, Pressure};
use std::collections::BTreeMap;

/// What was not answered is said again after this long, in seconds.
pub const REPEAT_SECONDS: f64 = 5.0;
/// What the worker has is said at least this often, in seconds: it renews its leases, which last two minutes.
pub const OFFER_SECONDS: f64 = 20.0;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The coordinator says something.
    Heard(Box<ToWorker>),
    /// A build reports how it goes.
    Reported {
        /// The build.
        attempt: Attempt,
        /// How it goes.
        progress: Progress,
    },
    /// The stages of a build are over, and it waits for the answer.
    Built {
        /// The build.
        attempt: Attempt,
        /// What was made.
        built: Built,
    },
    /// A build ended: no process of it is left.
    Ended {
        /// The build.
        attempt: Attempt,
        /// What became of it.
        result: Box<BuildResult>,
    },
    /// The machine is off for memory like this.
    Pressure(Pressure),
    /// The worker is to take nothing more, and to leave when its builds are done.
    Drain,
    /// The worker is to leave soon: its builds are cancelled.
    Stop,
    /// Time went by.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send this to the coordinator.
    Send(ToCoordinator),
    /// Begin a build.
    Begin(Box<Lease>),
    /// From now on these are the builds that go on, by their numbers and the highest rank first, and the cores of each.
    Allot(Vec<(u64, u32)>),
    /// End a build; it reports [`Event::Ended`] when it has.
    Cancel(Attempt),
    /// Give a build the answer that it waits for.
    Answer {
        /// The build.
        attempt: Attempt,
        /// The answer.
        answer: Box<Answer>,
    },
    /// The worker takes part no more, for this reason if it was refused: its process can end when its builds have.
    Leave(Option<String>),
}

/// How it stands with the coordinator.
#[derive(Clone, Debug, PartialEq)]
enum Link {
    /// It was greeted last at this time, if at all.
    Greeting(Option<f64>),
    /// There is a session.
    Joined(Joined),
    /// The worker takes part no more.
    Left,
}

/// A session.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Joined {
    session: Session,
    slots: u32,
    /// The number of the last offer that was made.
    offer: u64,
    /// When it was.
    offered_seconds: f64,
    /// Whether it was answered.
    is_answered: bool,
    /// Whether something else is to be offered since.
    is_stale: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Agent {
    hello: Hello,
    link: Link,
    builds: Builds,
    /// What the builds share, and the most cores that one of them may have: as the coordinator said last, which may be away now.
    machine: Machine,
    jobs_max: Option<u32>,
    /// Who had how many cores when that was said last.
    allotted: Vec<(u64, u32)>,
    pressure: Pressure,
    is_draining: bool,
    now_seconds: f64,
}

impl Agent {
    /// The agent of a worker that says this when it comes.
    pub fn new(hello: Hello) -> Agent {
        let machine = Machine {
            cores: hello.cores,
            speed: hello.speed,
            memory_bytes: hello.memory_bytes,
            disk_bytes: hello.disk_bytes,
        };
        Agent {
            hello,
            link: Link::Greeting(None),
            builds: Builds::default(),
            machine,
            jobs_max: None,
            allotted: Vec::new(),
            pressure: Pressure::Low,
            is_draining: false,
            now_seconds: 0.0,
        }
    }

    /// The builds that it has, with how far they are.
    pub fn held(&self) -> impl Iterator<Item = (Attempt, Standing)> {
        self.builds.held().map(|(attempt, build)| (attempt, build.standing))
    }

    /// Takes one event at this time, in seconds, which never goes back, and appends what is to be done.
    pub fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.now_seconds = now_seconds;
        match event {
            Event::Heard(message) => self.heard(*message, actions),
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
            Event::Drain => self.drain(),
            Event::Stop => {
                self.drain();
                for (attempt, build) in self.builds.held_mut() {
                    build.cancel(attempt, actions);
                }
                self.builds.drop_waiting(now_seconds);
            }
            Event::Tick => self.builds.forget(now_seconds),
        }
        self.begin(actions);
        self.allot(actions);
        self.speak(actions);
    }

    /// Shares the cores out, by rank and by what builds can use: while the coordinator is away too.
    fn allot(&mut self, actions: &mut Vec<Action>) {
        let allotted = self.builds.share_out(&self.machine, self.jobs_max);
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

    /// What was offered last is not so any more.
    fn renew_offer(&mut self) {
        if let Link::Joined(joined) = &mut self.link {
            joined.is_stale = true;
        }
    }

    fn heard(&mut self, message: ToWorker, actions: &mut Vec<Action>) {
        let own = match &self.link {
            Link::Joined(joined) => Some(joined.session),
            Link::Greeting(_) | Link::Left => None,
        };
        // Of a session that is over, or one that was welcomed by a message that is still under way.
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
                    actions.push(Action::Leave(Some(reason)));
                }
            }
            ToWorker::Again { .. } => self.link = Link::Greeting(None),
            ToWorker::Ranks { offer, builds, .. } => {
                if let Link::Joined(joined) = &mut self.link
                    && joined.offer == offer
                {
                    joined.is_answered = true;
                    self.builds.rank(&builds);
                }
            }
            ToWorker::Grant { lease, .. } => {
                if self.builds.grant(lease) {
                    self.renew_offer();
                }
            }
            ToWorker::Revoke { attempt, .. } => {
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
            ToWorker::Heard { attempt, next, .. } => {
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
                if self.builds.get_mut(attempt).is_some_and(|build| build.standing == Standing::Ended) {
                    self.builds.remove(attempt, self.now_seconds);
                    self.renew_offer();
                }
            }
            ToWorker::Superseded { attempt, .. } => {
                if let Some(build) = self.builds.get_mut(attempt) {
                    build.is_superseded = true;
                    build.cancel(attempt, actions);
                    if build.standing != Standing::Building {
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
        // What was not answered in another session is said in this one.
        for (_, build) in self.builds.held_mut() {
            build.say_all_again();
        }
    }

    /// Begins builds while slots are free, the highest rank first.
    fn begin(&mut self, actions: &mut Vec<Action>) {
        let Link::Joined(Joined { slots, .. }) = self.link else { return };
        while !self.is_draining && self.builds.building() < slots {
            let Some(lease) = self.builds.next() else { break };
            actions.push(Action::Begin(lease));
            self.renew_offer();
        }
    }

    /// Says what is to be said now.
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
        for (attempt, build) in self.builds.held_mut() {
            build.speak(now_seconds, session, attempt, actions);
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
                takes_more: !self.is_draining,
            };
            actions.push(Action::Send(ToCoordinator::Offer(offer)));
        }
    }
}
