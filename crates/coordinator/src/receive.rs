//! Messages of workers, and their answers.
//!
//! A message is applied like any event. Its answers are actions, so that they are sent after the commit of the
//! records before them: a worker that received an acknowledgement knows that its result is recorded. Answers follow
//! from the state of the run, not from remembered messages, so a repeat gets the same answer.

use crate::deposits::{Deposit, not_stored};
use crate::pools::Round;
use crate::seats::machine_of;
use crate::{Action, Channel, Coordinator, Ending, LEASE_SECONDS, LeaseState, Notice, REGRANT_SECONDS};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::Stage;
use kilnyard_model::result::{Failure, FailureKind, StageResult};
use kilnyard_protocol::{
    ANNOUNCED, Answer, BuildPhase, BuildResult, Built, Hello, Offer, Opened, Progress, Ranked, Reports,
    Session, Test, ToCoordinator, ToWorker, Versions, Welcome,
};
use kilnyard_schedule::{Event as ScheduleEvent, Machine, MachineId};
use kilnyard_store::Number;
use kilnyard_store::{EventKind, WorkerChange};
use std::collections::HashMap;

/// How often a worker may ask about outputs that have not arrived. It repeats its question every five seconds.
const UNSTORED_MAX: u32 = 6;

impl Coordinator {
    /// Handles a message.
    pub(crate) fn receive(
        &mut self,
        from: Channel,
        message: Opened<ToCoordinator>,
        actions: &mut Vec<Action>,
    ) {
        let Opened { capabilities, body, .. } = message;
        let session = match (&body, body.session()) {
            (ToCoordinator::Hello(hello), _) => return self.hello(from, hello, &capabilities, actions),
            (_, Some(session)) => session,
            (_, None) => return,
        };
        if self.seats.of_session(session).is_none()
            && let Some(hello) = self.seats.confirm(session)
        {
            self.join(from, &hello, session, actions);
        }
        let Some(machine) = self.seats.of_session(session) else {
            return actions.push(Action::Send { to: from, message: ToWorker::Rejoin { session } });
        };
        let seat = self.seats.get_mut(machine);
        (seat.channel, seat.heard_seconds) = (from, self.now_seconds);
        seat.prepares_announced = capabilities.iter().any(|known| known == ANNOUNCED);
        match body {
            ToCoordinator::Hello(_) => {}
            ToCoordinator::Offer(offer) => self.offer(machine, &offer, actions),
            ToCoordinator::Progress(reports) => self.reports(machine, reports, actions),
            ToCoordinator::Built { attempt, built, .. } => self.built(machine, attempt, built, actions),
            ToCoordinator::Result { attempt, result, .. } => {
                self.result(machine, attempt, *result, actions);
            }
            ToCoordinator::Leave { .. } => {
                self.leave(machine, actions);
                self.seats.get_mut(machine).retire();
            }
        }
    }

    /// Sends a message to the worker of a machine, if it has a session.
    pub(crate) fn say(
        &self,
        machine: MachineId,
        message: impl FnOnce(Session) -> ToWorker,
        actions: &mut Vec<Action>,
    ) {
        let seat = self.seats.get(machine);
        if let Some(session) = seat.session {
            actions.push(Action::Send { to: seat.channel, message: message(session) });
        }
    }

    fn hello(&mut self, to: Channel, hello: &Hello, capabilities: &[String], actions: &mut Vec<Action>) {
        let process = hello.process.clone();
        let message = match self.admit(hello, capabilities) {
            Ok((session, version, about)) => ToWorker::Welcome(Welcome {
                process,
                session,
                version,
                slots: self.scheduler.slots_of(&about),
                cores: about.cores,
                jobs_max: Some(self.scheduler.jobs_max_of(&about)),
                lease_seconds: LEASE_SECONDS,
            }),
            Err(reason) => ToWorker::Refused { process, reason },
        };
        actions.push(Action::Send { to, message });
    }

    /// Admits a worker: its session, the version of the protocol, and its machine. The error is the reason for a
    /// refusal.
    ///
    /// A hello has no other effect, since it may be a late one of a process that ended: the worker takes its seat with
    /// its first message in the session.
    fn admit(&mut self, hello: &Hello, capabilities: &[String]) -> Result<(Session, u32, Machine), String> {
        let about = machine_of(hello)?.oversubscribed();
        let Some(version) = Versions::OURS.agree(hello.versions) else {
            let (own, other) = (Versions::OURS, hello.versions);
            return Err(format!(
                "the coordinator supports versions {} to {} of the protocol, and the worker {} to {}; install the same \
                 release on both machines",
                own.oldest, own.newest, other.oldest, other.newest
            ));
        };
        if let Some(lacking) = self.required.iter().find(|required| !capabilities.contains(required)) {
            return Err(format!("the run needs workers that are capable of {lacking}"));
        }
        if !self.has_class_for(&hello.worker) {
            return Err("there are too many combinations of pools and roles in this run".to_owned());
        }
        if !self.seats.has_place(&hello.worker) {
            return Err("there are too many workers in this run".to_owned());
        }
        let seat = self.seats.of_worker(&hello.worker);
        if seat.is_some_and(|seat| seat.is_earlier_process(&hello.process)) {
            return Err(format!("another process is now {}; each worker needs its own name", hello.worker));
        }
        let current = seat.filter(|seat| seat.process == hello.process).and_then(|seat| seat.session);
        // The welcome was lost, or the hello was repeated.
        let known = current.or_else(|| self.seats.expected(hello));
        let session = known.unwrap_or_else(|| {
            let session = Session::from(self.attempts.next());
            self.seats.expect(session, hello);
            session
        });
        Ok((session, version, about))
    }

    /// Seats a welcomed worker, in place of an earlier process of it.
    fn join(&mut self, channel: Channel, hello: &Hello, session: Session, actions: &mut Vec<Action>) {
        // `admit` checked it.
        let Ok(about) = machine_of(hello).map(Machine::oversubscribed) else { return };
        let Some(class) = self.class_of(&hello.worker, actions) else { return };
        let speed = self.speed_of(&hello.worker, about.speed);
        let about = Machine { class, speed, ..about };
        let machine = self.seats.place(&hello.worker);
        // A session in place of another one is no news.
        let was_here = self.seats.of_worker(&hello.worker).is_some_and(|seat| seat.session.is_some());
        if let Some(seat) = self.seats.of_worker(&hello.worker) {
            let is_other = seat.process != hello.process;
            self.leave(machine, actions);
            if is_other {
                self.seats.get_mut(machine).retire();
            }
        }
        let slots = self.scheduler.slots_of(&about);
        self.seats.join(machine, hello, session, channel, slots, self.now_seconds);
        if !was_here {
            self.note_worker(machine, WorkerChange::Joined, actions);
        }
        let seat = self.seats.get_mut(machine);
        (seat.is_open, seat.class) = (false, class);
        (seat.cores_all, seat.cores_now) = (about.cores, about.cores);
        self.say_rate(machine, actions);
        self.say_warm(machine, &hello.warm, actions);
        // Before it gets builds.
        self.note_kept(machine, &hello.kept, actions);
        // Its first offer opens it: it may have builds of an earlier session, or of an earlier process of this run.
        self.schedule(ScheduleEvent::Joined { machine, about, is_open: false }, actions);
    }

    /// Handles the departure of a worker. Its builds are lost.
    pub(crate) fn leave(&mut self, machine: MachineId, actions: &mut Vec<Action>) {
        self.withdraw_all(machine, actions);
        if self.seats.end_session(machine) {
            // First, so that lost builds do not start here again.
            self.schedule(ScheduleEvent::Closed(machine), actions);
            for build in self.builds_on(machine) {
                self.lose(build, actions);
            }
            self.schedule(ScheduleEvent::Left(machine), actions);
        }
    }

    /// Reports a change of a worker.
    pub(crate) fn note_worker(&self, machine: MachineId, change: WorkerChange, actions: &mut Vec<Action>) {
        let name = self.seats.get(machine).worker.clone();
        self.note(None, EventKind::Worker { name, change, why: None, author: None }, actions);
    }

    /// The builds of a machine, by number.
    fn builds_on(&self, machine: MachineId) -> Vec<Number> {
        let own = self.leases.iter().filter(|(_, lease)| lease.machine == Some(machine));
        let mut builds: Vec<Number> = own.map(|(build, _)| *build).collect();
        builds.sort_unstable();
        builds
    }

    fn offer(&mut self, machine: MachineId, offer: &Offer, actions: &mut Vec<Action>) {
        let seat = self.seats.get_mut(machine);
        if seat.offer.is_some_and(|last| last >= offer.number) {
            return;
        }
        let is_first = seat.offer.replace(offer.number).is_none();
        let pressed = std::mem::replace(&mut seat.pressure, offer.pressure) != offer.pressure;
        seat.takes_more = offer.takes_more;
        let cores = offer.cores.map_or(seat.cores_all, |cores| cores.clamp(1, seat.cores_all));
        let has_other_cores = std::mem::replace(&mut seat.cores_now, cores) != cores;
        let held: HashMap<Attempt, BuildPhase> =
            offer.held.iter().map(|held| (held.attempt, held.phase)).collect();
        // In the worker's order, so that the same messages give the same actions.
        for held in &offer.held {
            if self.own(machine, held.attempt, actions).is_none() {
                self.say_ended(machine, held.attempt, actions);
            }
        }
        if is_first {
            self.lose_forgotten_builds(machine, actions);
        }
        for build in self.builds_on(machine) {
            self.reconcile(machine, build, &held, actions);
        }
        if has_other_cores {
            self.schedule(ScheduleEvent::Cores { machine, cores }, actions);
        }
        if pressed {
            self.schedule(ScheduleEvent::Pressure { machine, pressure: offer.pressure }, actions);
        }
        self.set_doors(actions);
        self.seats.get_mut(machine).ranks = None;
        self.send_ranks(actions);
    }

    /// Sends each worker the ranks of its builds, if they changed.
    pub(crate) fn send_ranks(&mut self, actions: &mut Vec<Action>) {
        for machine in self.seats.in_session() {
            let builds = self.ranked(machine);
            let seat = self.seats.get_mut(machine);
            let Some(offer) = seat.offer else { continue };
            if seat.ranks.as_ref() != Some(&builds) {
                seat.ranks = Some(builds.clone());
                self.say(machine, |session| ToWorker::Ranks { session, offer, builds }, actions);
            }
        }
    }

    /// Loses earlier builds that their worker no longer has.
    fn lose_forgotten_builds(&mut self, machine: MachineId, actions: &mut Vec<Action>) {
        let worker = self.seats.get(machine).worker.clone();
        let lost = self.leases.iter().filter(|(_, lease)| lease.machine.is_none() && lease.worker == worker);
        let mut lost: Vec<Number> = lost.map(|(build, _)| *build).collect();
        lost.sort_unstable();
        for build in lost {
            self.lose(build, actions);
        }
    }

    /// Compares the builds that a worker has with those that it should have, and repeats lost messages.
    fn reconcile(
        &mut self,
        machine: MachineId,
        build: Number,
        held: &HashMap<Attempt, BuildPhase>,
        actions: &mut Vec<Action>,
    ) {
        let takes_more = self.is_open(machine);
        let now_seconds = self.now_seconds;
        let Some(lease) = self.leases.get_mut(&build) else { return };
        let attempt = lease.attempt;
        let Some(phase) = held.get(&attempt) else {
            let is_given_back = lease.is_revoked || !takes_more && !lease.is_started;
            if lease.is_cancelled || lease.is_confirmed && !is_given_back {
                // It dropped a cancelled build, or lost one that it had.
                self.lose(build, actions);
            } else if is_given_back {
                self.give_back(build, actions);
            } else if now_seconds - lease.granted_seconds >= REGRANT_SECONDS {
                lease.granted_seconds = now_seconds;
                self.push_grant(build, actions);
            }
            return;
        };
        lease.is_confirmed = true;
        lease.is_started = *phase != BuildPhase::Waiting;
        lease.ends_seconds = now_seconds + LEASE_SECONDS;
        // A build that has started is not revoked.
        lease.is_revoked = *phase == BuildPhase::Waiting && (lease.is_revoked || !takes_more);
        if lease.is_cancelled && *phase != BuildPhase::Ended {
            self.say(machine, |session| ToWorker::Cancel { session, attempt }, actions);
        } else if lease.is_revoked {
            self.say(machine, |session| ToWorker::Revoke { session, attempt }, actions);
        }
    }

    /// The builds of a machine, the highest rank first.
    fn ranked(&self, machine: MachineId) -> Vec<Ranked> {
        let of = |package: PackageId| {
            let build = self.packages[package.index()].build?;
            let (memory_bytes, memory_per_core_bytes) = self.scheduler.memory_of(machine, package)?;
            let attempt = self.leases.get(&build)?.attempt;
            Some(Ranked { attempt, memory_bytes, memory_per_core_bytes })
        };
        self.scheduler.running(machine).filter_map(|(package, _)| of(package)).collect()
    }

    /// The build of an attempt, if it is on this machine. An earlier build is assigned to the machine of its worker
    /// here.
    fn own(&mut self, machine: MachineId, attempt: Attempt, actions: &mut Vec<Action>) -> Option<Number> {
        let build = *self.open.get(&attempt)?;
        let (worker, package) = {
            let lease = self.leases.get(&build)?;
            (lease.worker.clone(), lease.package)
        };
        // Its worker may have joined another pool, or with other roles.
        let is_foreign = self.leases.get(&build)?.machine.is_none()
            && worker == self.seats.get(machine).worker
            && !self.may_take(&self.standing(&worker), package);
        if is_foreign {
            self.lose(build, actions);
            return None;
        }
        let seat = self.seats.get_mut(machine);
        let lease = self.leases.get_mut(&build)?;
        if lease.machine.is_none() && lease.worker == seat.worker {
            lease.machine = Some(machine);
            lease.is_confirmed = true;
            seat.slots_free.remove(&lease.slot);
            let package = lease.package;
            self.schedule(ScheduleEvent::Running { package, machine }, actions);
        }
        let lease = self.leases.get_mut(&build)?;
        (lease.machine == Some(machine)).then(|| {
            lease.ends_seconds = self.now_seconds + LEASE_SECONDS;
            build
        })
    }

    /// Answers a message about a build that is not, or no longer, the worker's.
    pub(crate) fn say_ended(&self, machine: MachineId, attempt: Attempt, actions: &mut Vec<Action>) {
        if matches!(self.ended.get(&attempt), Some(Ending::Pending)) {
            return;
        }
        let message = |session| match self.ended.get(&attempt) {
            Some(Ending::Acknowledged(worker)) if *worker == self.seats.get(machine).worker => {
                ToWorker::Acknowledged { session, attempt }
            }
            _ => {
                let reason = "its lease is over, or was never this worker's".to_owned();
                ToWorker::Superseded { session, attempt, reason }
            }
        };
        self.say(machine, message, actions);
    }

    fn reports(&mut self, machine: MachineId, said: Reports, actions: &mut Vec<Action>) {
        let attempt = said.attempt;
        let Some(build) = self.own(machine, attempt, actions) else {
            return self.say_ended(machine, attempt, actions);
        };
        for (number, progress) in (said.first..).zip(said.reports) {
            let Some(lease) = self.leases.get_mut(&build) else { return };
            // The worker drops acknowledged reports, also those that an earlier coordinator acknowledged.
            if number < lease.reports {
                continue;
            }
            lease.reports = number + 1;
            if let Progress::StageEnded(stage) = &progress
                && let Some(at) = lease.recorded.iter().position(|recorded| is_same_stage(recorded, stage))
            {
                lease.recorded.remove(at);
                continue;
            }
            actions.push(Action::Notify(Notice::Progress { build, progress: progress.clone() }));
            self.progress(self.now_seconds, build, progress, actions);
        }
        let next = self.leases.get(&build).map_or(0, |lease| lease.reports);
        self.say(machine, |session| ToWorker::Received { session, attempt, next }, actions);
    }

    fn built(&mut self, machine: MachineId, attempt: Attempt, built: Built, actions: &mut Vec<Action>) {
        let Some(build) = self.own(machine, attempt, actions) else {
            return self.say_ended(machine, attempt, actions);
        };
        let Some(lease) = self.leases.get(&build) else { return };
        match lease.answer(built.is_repeated) {
            Some(answer) => {
                let (answer, is_repeated) = (Box::new(answer.clone()), built.is_repeated);
                let message = |session| ToWorker::Answer { session, attempt, is_repeated, answer };
                self.say(machine, message, actions);
            }
            None => self.ask(build, built, actions),
        }
    }

    /// Asks which outputs are kept, unless an answer is pending.
    fn ask(&mut self, build: Number, built: Built, actions: &mut Vec<Action>) {
        let Some(lease) = self.leases.get_mut(&build) else { return };
        if !std::mem::replace(&mut lease.is_asked[usize::from(built.is_repeated)], true) {
            // The number comes from the lease, not from the worker.
            let (package, attempt, built) = (lease.package, lease.attempt, Built { build, ..built });
            let version = self.packages[package.index()].version.clone();
            actions.push(Action::Ask { package, version, attempt, built });
        }
    }

    /// Passes on the answer to [`Action::Ask`].
    pub(crate) fn answered(
        &mut self,
        build: Number,
        is_repeated: bool,
        mut answer: Answer,
        deposit: Option<u64>,
        actions: &mut Vec<Action>,
    ) {
        let Some(lease) = self.leases.get(&build) else { return };
        let is_verified = matches!(self.packages[lease.package.index()].round, Some(Round::Verify { .. }));
        let tests = self.tests(&lease.worker, lease.package) && !is_verified;
        let Some(lease) = self.leases.get_mut(&build) else { return };
        if !tests
            && let Test::Run(order) = std::mem::replace(&mut answer.test, Test::Skip)
            && !is_verified
        {
            lease.test = Some(*order);
        }
        lease.answers[usize::from(is_repeated)] = Some(answer.clone());
        if let Some(deposit) = deposit {
            lease.deposit = Deposit::Pending(deposit);
        }
        let (attempt, machine) = (lease.attempt, lease.machine);
        let result = if is_repeated { None } else { lease.result.take() };
        if let Some(machine) = machine {
            match result {
                Some(result) => self.result(machine, attempt, *result, actions),
                None => {
                    let answer = Box::new(answer);
                    let message = |session| ToWorker::Answer { session, attempt, is_repeated, answer };
                    self.say(machine, message, actions);
                }
            }
        }
    }

    /// Hears the worker again, a few times: it stores its outputs again when it notices that another coordinator leads.
    pub(crate) fn unstored(
        &mut self,
        build: Number,
        is_repeated: bool,
        reason: String,
        actions: &mut Vec<Action>,
    ) {
        let Some(lease) = self.leases.get_mut(&build) else { return };
        lease.unstored += 1;
        if lease.unstored <= UNSTORED_MAX {
            lease.is_asked[usize::from(is_repeated)] = false;
            return;
        }
        self.answered(build, is_repeated, Answer::refuse(reason), None, actions);
    }

    fn result(
        &mut self,
        machine: MachineId,
        attempt: Attempt,
        result: BuildResult,
        actions: &mut Vec<Action>,
    ) {
        let Some(build) = self.own(machine, attempt, actions) else {
            return self.say_ended(machine, attempt, actions);
        };
        let Some(lease) = self.leases.get_mut(&build) else { return };
        let mut result = BuildResult { build, ..result };
        if let Ok(outputs) = &result.outcome
            && !lease.is_cancelled
        {
            match lease.answer(false) {
                Some(answer) if answer.refused.is_none() && answer.outputs == *outputs => {
                    match &lease.deposit {
                        Deposit::Done => {}
                        Deposit::Pending(_) => return self.await_deposit(build, result, actions),
                        Deposit::Lost(reason) => result.outcome = Err(not_stored(reason.clone())),
                    }
                }
                Some(answer) => {
                    let refused = answer.refused.clone();
                    let message =
                        refused.unwrap_or_else(|| "these are not the outputs that were admitted".to_owned());
                    result.outcome = Err(Failure {
                        stage: Stage::Collect,
                        kind: FailureKind::Outputs,
                        message,
                        line_number: None,
                        lines: Vec::new(),
                    });
                }
                // An earlier coordinator answered: ask again.
                None => {
                    let built = Built { build, outputs: outputs.clone(), is_repeated: false };
                    lease.result = Some(Box::new(result));
                    return self.ask(build, built, actions);
                }
            }
        }
        self.ended(self.now_seconds, result, actions);
        self.say_ended(machine, attempt, actions);
    }
}

impl LeaseState {
    fn answer(&self, is_repeated: bool) -> Option<&Answer> {
        self.answers[usize::from(is_repeated)].as_ref()
    }
}

/// Whether a reported stage is a recorded one, apart from the fields that the coordinator set.
fn is_same_stage(recorded: &StageResult, said: &StageResult) -> bool {
    let said = StageResult {
        parallel_seconds: recorded.parallel_seconds,
        started_seconds: recorded.started_seconds,
        ..said.clone()
    };
    *recorded == said
}
