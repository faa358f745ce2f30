//! Has workers perform single tasks outside of any run: commands, such as the make of a directory in a scan, and checks of
//! stored artifacts.
//!
//! A task is a lease whose output is its result. It has no state in the store: what is lost with a worker is asked
//! again. Only workers with the role for it in trusted pools are asked, since what they answer decides what is built.

use crate::seats::{Seats, machine_of};
use crate::{Attempts, Channel, LEASE_SECONDS, REGRANT_SECONDS, Standing};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{BuildOrder, Output};
use kilnyard_model::result::Failure;
use kilnyard_model::role::Role;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_protocol::{
    Answer, BuildPhase, CHECKS, Hello, Lease, Offer, Opened, Ranked, Session, ToCoordinator, ToWorker,
    Versions, Welcome,
};
use kilnyard_schedule::{Files, MachineId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The time limit of a task that has none of its own, in seconds.
const WALL_SECONDS_MAX: u64 = 15 * 60;
/// What a worker may need beyond the time limit of a task, in seconds: to get the tree, and to send the output.
const FURTHER_SECONDS: f64 = 600.0;

/// The roles of workers that are asked.
const ROLES: [Role; 2] = [Role::Scan, Role::Check];

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
    /// A task; its number is the caller's.
    Ask(u64, Task),
    /// Time has passed.
    Tick,
}

/// What a worker is asked.
#[derive(Clone, Debug)]
pub enum Task {
    /// To run the command of an order.
    Run(Arc<BuildOrder>),
    /// To read artifacts where machines share them, and to say which are intact.
    Check(Arc<Vec<Sha256Hex>>),
}

impl Task {
    /// The role of workers that are asked.
    pub fn role(&self) -> Role {
        match self {
            Task::Run(_) => Role::Scan,
            Task::Check(_) => Role::Check,
        }
    }

    fn wall_seconds_max(&self) -> u64 {
        match self {
            Task::Run(order) => order.terms.wall_seconds_max.unwrap_or(WALL_SECONDS_MAX),
            Task::Check(_) => WALL_SECONDS_MAX,
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum AskerAction {
    /// Send a lease, which allows its worker to read what the order names.
    Grant(Channel, Box<ToWorker>),
    /// Send another message.
    Send(Channel, Box<ToWorker>),
    /// A task ended: its output as an artifact, which begins with the lease's id, or why there is none.
    Answered(u64, Attempt, Result<Vec<Output>, Failure>),
    /// No worker can perform a task, or the one that has it does not answer.
    Unanswered(u64),
}

/// A task that a worker has.
#[derive(Clone, Debug)]
struct Asked {
    number: u64,
    task: Task,
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
    /// Workers whose program can check artifacts.
    checkers: BTreeSet<MachineId>,
    waiting: BTreeMap<Role, VecDeque<(u64, Task)>>,
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
            checkers: BTreeSet::new(),
            waiting: BTreeMap::new(),
            asked: BTreeMap::new(),
            count: 0,
            now_seconds: 0.0,
        }
    }

    /// The number of tasks for this role that the present workers perform at once.
    pub fn slots(&self, role: Role) -> u32 {
        let machines = self.seats.in_session();
        let open = machines.into_iter().filter(|machine| self.takes(*machine, role));
        open.map(|machine| self.seats.get(machine).cores).sum()
    }

    /// Applies an event at this time, in seconds, and appends the actions that follow.
    pub fn apply(&mut self, now_seconds: f64, event: AskerEvent, actions: &mut Vec<AskerAction>) {
        self.now_seconds = now_seconds;
        match event {
            AskerEvent::Received { from, message } => self.receive(from, *message, actions),
            AskerEvent::Workers(standings) => self.standings = standings,
            AskerEvent::Ask(number, task) => {
                self.waiting.entry(task.role()).or_default().push_back((number, task))
            }
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
        for role in ROLES {
            if self.slots(role) == 0 {
                let unanswered = self.waiting.remove(&role).unwrap_or_default().into_iter();
                actions.extend(unanswered.map(|(number, _)| AskerAction::Unanswered(number)));
            }
        }
    }

    fn takes(&self, machine: MachineId, role: Role) -> bool {
        let seat = self.seats.get(machine);
        let standing = self.standings.get(&seat.worker);
        let may_take = standing.is_some_and(|standing| {
            !standing.is_held && standing.is_trusted && standing.roles.contains(&role)
        });
        seat.takes_more && may_take && (role != Role::Check || self.checkers.contains(&machine))
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
                let answer = Answer::keep(outputs);
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
            return refused(format!("this needs workers that are capable of {lacking}"));
        }
        if !self.seats.has_place(&hello.worker) {
            return refused("there are too many workers here".to_owned());
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
            match capabilities.iter().any(|known| known == CHECKS) {
                true => self.checkers.insert(machine),
                false => self.checkers.remove(&machine),
            };
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
                    let reason = "it belongs to no run".to_owned();
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
                self.again(asked);
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

    /// Asks before all others what a worker has lost.
    fn again(&mut self, asked: Asked) {
        self.waiting.entry(asked.task.role()).or_default().push_front((asked.number, asked.task));
    }

    /// A worker is gone; what it had is asked again.
    fn leave(&mut self, machine: MachineId) {
        self.seats.end_session(machine);
        let is_its = |(_, asked): &(&Attempt, &Asked)| asked.machine == machine;
        let lost: Vec<Attempt> = self.asked.iter().filter(is_its).map(|(attempt, _)| *attempt).collect();
        for attempt in lost {
            if let Some(asked) = self.take(&attempt) {
                self.again(asked);
            }
        }
    }

    /// Gives what waits to workers with free slots, those with the most first.
    fn dispatch(&mut self, actions: &mut Vec<AskerAction>) {
        for role in ROLES {
            while let Some(number_and_task) = self.waiting.get_mut(&role).and_then(VecDeque::pop_front) {
                let machines = self.seats.in_session().into_iter();
                let free = |machine: &MachineId| self.seats.get(*machine).slots_free.len();
                let machine = machines.filter(|machine| self.takes(*machine, role)).max_by_key(free);
                let granted = machine.and_then(|machine| self.grant(machine, &number_and_task));
                match granted {
                    Some(action) => actions.push(action),
                    None => {
                        self.waiting.entry(role).or_default().push_front(number_and_task);
                        break;
                    }
                }
            }
        }
    }

    /// Gives a task to a worker, if it has a free slot.
    fn grant(&mut self, machine: MachineId, (number, task): &(u64, Task)) -> Option<AskerAction> {
        let seat = self.seats.get_mut(machine);
        let (channel, session) = seat.way()?;
        let slot = seat.slots_free.pop_first()?;
        self.count += 1;
        let attempt = self.attempts.next();
        let (order, to_check) = match task {
            Task::Run(order) => ((**order).clone(), Vec::new()),
            Task::Check(artifacts) => (BuildOrder::empty("check"), (**artifacts).clone()),
        };
        let lease = Box::new(Lease {
            build: self.count,
            attempt,
            rank_seconds: 0.0,
            run: 0,
            slot,
            files: Files::Disk,
            written_bytes: 0,
            order,
            seen: Vec::new(),
            checks_reproducible: false,
            to_test: None,
            is_captured: to_check.is_empty(),
            to_check,
        });
        let granted_seconds = self.now_seconds;
        let ends_seconds = granted_seconds + task.wall_seconds_max() as f64 + FURTHER_SECONDS;
        let (number, task) = (*number, task.clone());
        self.asked.insert(attempt, Asked { number, task, machine, slot, granted_seconds, ends_seconds });
        Some(AskerAction::Grant(channel, Box::new(ToWorker::Grant { session, lease })))
    }
}

#[cfg(test)]
mod tests;
