//! Has workers run single commands outside of any run, such as the make of a directory in a scan.
//!
//! A command is a lease whose output is its result. It has no state in the store: what is lost with a worker is asked
//! again. Only workers with the role `scan` in trusted pools are asked, since what they answer decides what is built.

use crate::seats::{Seats, machine_of};
use crate::{Attempts, Channel, LEASE_SECONDS, REGRANT_SECONDS, Standing};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{BuildOrder, Output};
use kilnyard_model::result::Failure;
use kilnyard_model::role::Role;
use kilnyard_protocol::{
    Answer, BuildPhase, Hello, Lease, Offer, Opened, Ranked, Session, Test, ToCoordinator, ToWorker,
    Versions, Welcome,
};
use kilnyard_schedule::{Files, MachineId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The time limit of a command whose order has none, in seconds.
const WALL_SECONDS_MAX: u64 = 15 * 60;
/// What a worker may need beyond the time limit of a command, in seconds: to get the tree, and to send the output.
const FURTHER_SECONDS: f64 = 600.0;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum AskerEvent {
    /// A worker's message.
    Received {
        /// Where answers go.
        from: Channel,
        /// The message, with the capabilities of its sender.
        message: Box<Opened<ToCoordinator>>,
    },
    /// What is known of the workers, by name.
    Workers(BTreeMap<String, Standing>),
    /// A command to run; its number is the caller's.
    Ask(u64, Arc<BuildOrder>),
    /// Time has passed.
    Tick,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum AskerAction {
    /// Send a lease, which allows its worker to read what the order names.
    Grant(Channel, Box<ToWorker>),
    /// Send another message.
    Send(Channel, Box<ToWorker>),
    /// A command ended: its output as an artifact, which begins with the lease's id, or why there is none.
    Answered(u64, Attempt, Result<Vec<Output>, Failure>),
    /// No worker can run a command, or the one that has it does not answer.
    Unanswered(u64),
}

/// A command that a worker has.
#[derive(Clone, Debug)]
struct Asked {
    number: u64,
    order: Arc<BuildOrder>,
    machine: MachineId,
    slot: u32,
    granted_seconds: f64,
    /// After this time, it is not waited for.
    ends_seconds: f64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Asker {
    seats: Seats,
    standings: BTreeMap<String, Standing>,
    required: Vec<String>,
    attempts: Attempts,
    waiting: VecDeque<(u64, Arc<BuildOrder>)>,
    asked: BTreeMap<Attempt, Asked>,
    /// Counts leases: each needs its own number on a worker.
    count: u64,
    now_seconds: f64,
}

impl Asker {
    /// Without workers yet. They must be capable of all that is required.
    pub fn new(attempts: Attempts, required: Vec<String>) -> Asker {
        Asker {
            seats: Seats::default(),
            standings: BTreeMap::new(),
            required,
            attempts,
            waiting: VecDeque::new(),
            asked: BTreeMap::new(),
            count: 0,
            now_seconds: 0.0,
        }
    }

    /// The number of commands that the present workers run at once.
    pub fn slots(&self) -> u32 {
        let machines = self.seats.in_session();
        let open = machines.into_iter().filter(|machine| self.takes(*machine));
        open.map(|machine| self.seats.get(machine).cores).sum()
    }

    /// Applies an event at this time, in seconds, and appends the actions that follow.
    pub fn apply(&mut self, now_seconds: f64, event: AskerEvent, actions: &mut Vec<AskerAction>) {
        self.now_seconds = now_seconds;
        match event {
            AskerEvent::Received { from, message } => self.receive(from, *message, actions),
            AskerEvent::Workers(standings) => self.standings = standings,
            AskerEvent::Ask(number, order) => self.waiting.push_back((number, order)),
            AskerEvent::Tick => {
                for machine in self.seats.silent_since(now_seconds - LEASE_SECONDS) {
                    self.leave(machine);
                }
                let is_late = |(_, asked): &(&Attempt, &Asked)| asked.ends_seconds < now_seconds;
                let late: Vec<Attempt> =
                    self.asked.iter().filter(is_late).map(|(attempt, _)| *attempt).collect();
                for attempt in late {
                    actions.extend(self.take(&attempt).map(|asked| AskerAction::Unanswered(asked.number)));
                }
            }
        }
        self.dispatch(actions);
        // The caller has a machine of its own.
        if !self.seats.in_session().into_iter().any(|machine| self.takes(machine)) {
            actions.extend(self.waiting.drain(..).map(|(number, _)| AskerAction::Unanswered(number)));
        }
    }

    fn takes(&self, machine: MachineId) -> bool {
        let seat = self.seats.get(machine);
        let standing = self.standings.get(&seat.worker);
        let may_scan = standing.is_some_and(|standing| {
            !standing.is_held && standing.is_trusted && standing.roles.contains(&Role::Scan)
        });
        seat.takes_more && may_scan
    }

    fn receive(&mut self, from: Channel, message: Opened<ToCoordinator>, actions: &mut Vec<AskerAction>) {
        let Opened { capabilities, body, .. } = message;
        let mut send = |message| actions.push(AskerAction::Send(from, Box::new(message)));
        let session = match (&body, body.session()) {
            (ToCoordinator::Hello(hello), _) => return send(self.hello(from, hello, &capabilities)),
            (_, Some(session)) => session,
            (_, None) => return,
        };
        let Some(machine) = self.seats.of_session(session) else { return send(ToWorker::Rejoin { session }) };
        let seat = self.seats.get_mut(machine);
        (seat.channel, seat.heard_seconds) = (from, self.now_seconds);
        match body {
            ToCoordinator::Hello(_) => {}
            ToCoordinator::Offer(offer) => self.offer(machine, &offer, actions),
            ToCoordinator::Progress(reports) => {
                let next = reports.first + reports.reports.len() as u64;
                send(ToWorker::Received { session, attempt: reports.attempt, next });
            }
            ToCoordinator::Built { attempt, built, .. } => {
                let outputs = built.outputs;
                let answer = Answer { refused: None, outputs, notes: Vec::new(), test: Test::Skip };
                let (answer, is_repeated) = (Box::new(answer), built.is_repeated);
                send(ToWorker::Answer { session, attempt, is_repeated, answer });
            }
            ToCoordinator::Result { attempt, result, .. } => {
                if self.asked.get(&attempt).is_some_and(|asked| asked.machine == machine)
                    && let Some(asked) = self.take(&attempt)
                {
                    actions.push(AskerAction::Answered(asked.number, attempt, result.outcome));
                }
                actions.push(AskerAction::Send(from, Box::new(ToWorker::Acknowledged { session, attempt })));
            }
            ToCoordinator::Leave { .. } => {
                self.leave(machine);
                self.seats.get_mut(machine).retire();
            }
        }
    }

    /// Seats a worker at once: a late hello costs a worker a session, and no more.
    fn hello(&mut self, channel: Channel, hello: &Hello, capabilities: &[String]) -> ToWorker {
        let process = hello.process.clone();
        let refused = |reason: String| ToWorker::Refused { process: hello.process.clone(), reason };
        let Some(version) = Versions::OURS.agree(hello.versions) else {
            return refused("install the same release on both machines".to_owned());
        };
        if let Err(reason) = machine_of(hello) {
            return refused(reason);
        }
        if let Some(lacking) = self.required.iter().find(|required| !capabilities.contains(required)) {
            return refused(format!("the scan needs workers that are capable of {lacking}"));
        }
        if !self.seats.has_place(&hello.worker) {
            return refused("there are too many workers in this scan".to_owned());
        }
        let seat = self.seats.of_worker(&hello.worker);
        let is_known = seat.is_some();
        let current = seat.filter(|seat| seat.process == hello.process).and_then(|seat| seat.session);
        let session = current.unwrap_or_else(|| {
            let machine = self.seats.place(&hello.worker);
            if is_known {
                self.leave(machine);
            }
            let session = Session::from(self.attempts.next());
            self.seats.join(machine, hello, session, channel, hello.cores, self.now_seconds);
            session
        });
        ToWorker::Welcome(Welcome {
            process,
            session,
            version,
            slots: hello.cores,
            cores: hello.cores,
            jobs_max: Some(1),
            lease_seconds: LEASE_SECONDS,
        })
    }

    fn offer(&mut self, machine: MachineId, offer: &Offer, actions: &mut Vec<AskerAction>) {
        self.seats.get_mut(machine).takes_more = offer.takes_more;
        let (channel, session) = (self.seats.get(machine).channel, offer.session);
        let mut ranked = Vec::new();
        for held in &offer.held {
            let attempt = held.attempt;
            match self.asked.get(&attempt) {
                Some(asked) if asked.machine == machine => {
                    ranked.push(Ranked { attempt, memory_bytes: 0, memory_per_core_bytes: 0 });
                }
                // A build of a run that is over.
                _ if held.phase != BuildPhase::Ended => {
                    let reason = "it belongs to no scan".to_owned();
                    let message = ToWorker::Superseded { session, attempt, reason };
                    actions.push(AskerAction::Send(channel, Box::new(message)));
                }
                _ => {}
            }
        }
        let now_seconds = self.now_seconds;
        let is_missing = |(attempt, asked): &(&Attempt, &Asked)| {
            asked.machine == machine
                && now_seconds - asked.granted_seconds >= REGRANT_SECONDS
                && offer.held.iter().all(|held| held.attempt != **attempt)
        };
        let missing: Vec<Attempt> =
            self.asked.iter().filter(is_missing).map(|(attempt, _)| *attempt).collect();
        for attempt in missing {
            if let Some(asked) = self.take(&attempt) {
                self.waiting.push_front((asked.number, asked.order));
            }
        }
        let message = ToWorker::Ranks { session, offer: offer.number, builds: ranked };
        actions.push(AskerAction::Send(channel, Box::new(message)));
    }

    /// Ends a lease, and frees its slot.
    fn take(&mut self, attempt: &Attempt) -> Option<Asked> {
        let asked = self.asked.remove(attempt)?;
        self.seats.get_mut(asked.machine).slots_free.insert(asked.slot);
        Some(asked)
    }

    /// A worker is gone; what it had is asked again.
    fn leave(&mut self, machine: MachineId) {
        self.seats.end_session(machine);
        let is_its = |(_, asked): &(&Attempt, &Asked)| asked.machine == machine;
        let lost: Vec<Attempt> = self.asked.iter().filter(is_its).map(|(attempt, _)| *attempt).collect();
        for attempt in lost {
            if let Some(asked) = self.take(&attempt) {
                self.waiting.push_front((asked.number, asked.order));
            }
        }
    }

    /// Gives what waits to workers with free slots, those with the most first.
    fn dispatch(&mut self, actions: &mut Vec<AskerAction>) {
        while !self.waiting.is_empty() {
            let machines = self.seats.in_session().into_iter().filter(|machine| self.takes(*machine));
            let free = |machine: &MachineId| self.seats.get(*machine).slots_free.len();
            let Some(machine) = machines.max_by_key(free).filter(|machine| free(machine) > 0) else { return };
            let Some((number, order)) = self.waiting.pop_front() else { return };
            let seat = self.seats.get_mut(machine);
            let (Some(slot), Some((channel, session))) = (seat.slots_free.pop_first(), seat.way()) else {
                return;
            };
            self.count += 1;
            let attempt = self.attempts.next();
            let lease = Box::new(Lease {
                build: self.count,
                attempt,
                rank_seconds: 0.0,
                run: 0,
                slot,
                files: Files::Disk,
                written_bytes: 0,
                order: (*order).clone(),
                seen: Vec::new(),
                checks_reproducible: false,
                to_test: None,
                is_captured: true,
            });
            let granted_seconds = self.now_seconds;
            let wall_seconds = order.terms.wall_seconds_max.unwrap_or(WALL_SECONDS_MAX);
            let ends_seconds = granted_seconds + wall_seconds as f64 + FURTHER_SECONDS;
            let asked = Asked { number, order, machine, slot, granted_seconds, ends_seconds };
            self.asked.insert(attempt, asked);
            actions.push(AskerAction::Grant(channel, Box::new(ToWorker::Grant { session, lease })));
        }
    }
}

#[cfg(test)]
mod tests;
