//! Events, and the decisions that follow from them.

use crate::pools::Round;
use crate::retry::Failures;
use crate::{
    AWAY_SECONDS, Action, Coordinator, Event, LEASE_SECONDS, LeaseState, Notice, PAUSE_SECONDS, Performer,
    Prepared, Reading, RetryMode, RetryPolicy, ToBuild,
};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::PackageId;
use kilnyard_model::reason::{Reason, RetryPlan, StageFailed};
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, PackageState, StageResult};
use kilnyard_protocol::{Progress, ToWorker};
use kilnyard_schedule::{Event as ScheduleEvent, Files, MachineId, Policy};
use kilnyard_store::{
    BuildRow, EventKind, Note, Number, Record, Request, RequestKind, RunState, WorkerChange,
};
use std::sync::Arc;

/// The CPU time of a build is at most this many times that of its worker's cores: one that was given few of its machine's cores
/// cannot always keep builds to them.
const CLAIMED_MAX: f64 = 4.0;

impl Coordinator {
    /// Applies an event at this time (seconds since 1970) and appends the actions that follow.
    pub fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.now_seconds = now_seconds;
        match event {
            Event::Begin => self.begin(actions),
            Event::Prepared { package, prepared } => self.prepared(package, prepared, actions),
            Event::Fetched { package, stage, outcome } => {
                self.fetched(now_seconds, package, stage, outcome, actions);
            }
            Event::Received { from, message } => self.receive(from, *message, actions),
            Event::Answered { build, is_repeated, answer, deposit } => {
                self.answered(build, is_repeated, *answer, deposit, actions);
            }
            Event::Deposited { build, deposit, outcome } => self.deposited(build, deposit, outcome, actions),
            Event::Unstored { build, is_repeated, reason } => {
                self.unstored(build, is_repeated, reason, actions);
            }
            Event::Unsendable { build, explanation } => self.unsendable(build, explanation, actions),
            Event::Requested(request) => self.requested(request, actions),
            Event::Workers(standings) => self.rank_workers(standings, actions),
            Event::Stop => self.stop(actions),
            Event::Tick => {
                self.forgive(now_seconds);
                self.expire(now_seconds, actions);
                self.wake(actions);
                self.retry_due_packages(now_seconds, actions);
                self.settle_verifications(actions);
                self.schedule(ScheduleEvent::Tick, actions);
                self.announce(actions);
            }
        }
        self.follow_testers(actions);
        self.allot(actions);
        self.send_ranks(actions);
        self.finish(now_seconds, actions);
    }

    /// Extends leases by the time during which no message could be handled.
    fn forgive(&mut self, now_seconds: f64) {
        let away_seconds = now_seconds - self.ticked_seconds.replace(now_seconds).unwrap_or(now_seconds);
        if away_seconds > AWAY_SECONDS {
            for lease in self.leases.values_mut() {
                lease.ends_seconds += away_seconds;
            }
            self.seats.forgive(away_seconds);
        }
    }

    /// Passes an event to the scheduler, and grants the builds that it starts.
    pub(crate) fn schedule(&mut self, event: ScheduleEvent, actions: &mut Vec<Action>) {
        let mut decided = Vec::new();
        self.scheduler.apply(self.now_seconds, event, &mut decided);
        for decision in decided {
            // `allot` reports the cores of all builds, once.
            if let kilnyard_schedule::Action::Start { package, machine, files, .. } = decision {
                self.grant(package, machine, files, actions);
            }
        }
    }

    /// Reports the cores of all builds if they changed.
    fn allot(&mut self, actions: &mut Vec<Action>) {
        let builds: std::collections::HashMap<PackageId, Number> =
            self.leases.iter().map(|(build, lease)| (lease.package, *build)).collect();
        let build_of = |(package, cores): (PackageId, u32)| Some((*builds.get(&package)?, cores));
        let running = self.scheduler.machines().flat_map(|machine| self.scheduler.running(machine));
        let allotted: Vec<(Number, u32)> = running.filter_map(build_of).collect();
        if allotted != self.allotted {
            self.allotted.clone_from(&allotted);
            actions.push(Action::Allot(allotted));
        }
    }

    pub(crate) fn move_to(
        &mut self,
        id: PackageId,
        state: PackageState,
        reason: Reason,
        blamed: Option<PackageId>,
        actions: &mut Vec<Action>,
    ) {
        self.set_state(id, state);
        let package = &mut self.packages[id.index()];
        package.reason = reason.clone();
        package.blamed = blamed;
        if state.is_final() {
            package.to_build = None;
            package.round = None;
        }
        if !package.is_in_run {
            return;
        }
        actions.push(Action::Record(Record::Package {
            run: self.run,
            name: self.graph.name(id).to_owned(),
            state,
            reason,
            blamed: blamed.map(|id| self.graph.name(id).to_owned()),
            at_seconds: self.now_seconds,
        }));
    }

    fn begin(&mut self, actions: &mut Vec<Action>) {
        let graph = self.graph.clone();
        for id in graph.packages() {
            self.schedule(ScheduleEvent::Hold(id), actions);
        }
        for id in graph.packages() {
            match self.packages[id.index()].state {
                state if state.has_outputs() => self.schedule(ScheduleEvent::Available(id), actions),
                PackageState::Failed | PackageState::Skipped | PackageState::LeftOut => {
                    self.schedule(ScheduleEvent::Unavailable(id), actions);
                }
                _ => {}
            }
        }
        self.schedule(ScheduleEvent::Begin, actions);
        for id in self.graph.order() {
            if self.packages[id.index()].state == PackageState::Blocked {
                self.set_state(id, PackageState::Waiting);
            }
            self.reconsider(id, actions);
        }
    }

    /// Makes a waiting package ready or blocked, by the states of its dependencies.
    pub(crate) fn reconsider(&mut self, id: PackageId, actions: &mut Vec<Action>) {
        if self.packages[id.index()].state != PackageState::Waiting || !self.packages[id.index()].is_in_run {
            return;
        }
        let states = || self.graph.dependencies(id).iter().map(|d| (*d, &self.packages[d.index()]));
        let gone = |state| {
            matches!(
                state,
                PackageState::Failed | PackageState::Blocked | PackageState::Skipped | PackageState::LeftOut
            )
        };
        let culprit = states().find(|(_, package)| gone(package.state));
        if let Some((dependency, package)) = culprit {
            let root = package.blamed.unwrap_or(dependency);
            let reason = Reason::Blocked {
                dependency: self.graph.name(dependency).to_owned(),
                culprit: self.graph.name(root).to_owned(),
                state: self.packages[root.index()].state,
            };
            self.move_to(id, PackageState::Blocked, reason, Some(root), actions);
            for dependent in self.graph.dependents(id).to_vec() {
                self.reconsider(dependent, actions);
            }
        } else if states().all(|(_, package)| package.state.has_outputs()) && !self.is_stopping {
            self.move_to(id, PackageState::Ready, Reason::Prepares, None, actions);
            self.withdraw(id, actions);
            let package = &mut self.packages[id.index()];
            package.to_build = None;
            package.is_fetched = false;
            let reading = std::mem::replace(&mut package.reading, Reading::Cached);
            self.confine(id, actions);
            self.schedule(ScheduleEvent::Hold(id), actions);
            self.schedule(ScheduleEvent::Expected(id), actions);
            actions.push(Action::Prepare { package: id, reading });
        }
    }

    fn is_expected(&self, id: PackageId) -> bool {
        self.packages[id.index()].state == PackageState::Ready
    }

    fn prepared(&mut self, id: PackageId, prepared: Prepared, actions: &mut Vec<Action>) {
        if !self.is_expected(id) || self.packages[id.index()].to_build.is_some() {
            return;
        }
        match prepared {
            Prepared::UpToDate => {
                self.drop_untested(id, actions);
                let is_rebuilt = |d: &PackageId| {
                    matches!(self.packages[d.index()].state, PackageState::Built | PackageState::Unchanged)
                };
                let reason = if self.graph.dependencies(id).iter().any(is_rebuilt) {
                    Reason::SameDependencies
                } else {
                    Reason::NothingChanged
                };
                self.arrive(id, PackageState::UpToDate, reason, actions);
                self.schedule(ScheduleEvent::Available(id), actions);
            }
            Prepared::Build(to_build) => {
                let to_build: Arc<ToBuild> = to_build.into();
                let package = &mut self.packages[id.index()];
                package.recipe_version.clone_from(&to_build.recipe_version);
                package.published_revision = to_build.published_revision;
                package.version.clone_from(&to_build.order.version);
                package.key = Some(to_build.order.key.clone());
                package.to_build = Some(to_build.clone());
                // Preparing may have taken long; the scheduler's patience is for the fetch.
                self.schedule(ScheduleEvent::Expected(id), actions);
                self.move_to(id, PackageState::Ready, to_build.reason.clone(), None, actions);
                actions.push(Action::Fetch { package: id, to_build });
            }
            Prepared::Waits(packages) => self.wait_for(id, &packages, actions),
            Prepared::Impossible(explanation) => self.fail(id, Reason::Impossible { explanation }, actions),
        }
    }

    fn fetched(
        &mut self,
        now_seconds: f64,
        id: PackageId,
        stage: Option<Box<StageResult>>,
        outcome: Result<(), Failure>,
        actions: &mut Vec<Action>,
    ) {
        let package = &self.packages[id.index()];
        // A fetch that began before a retry is obsolete.
        if !self.is_expected(id) || package.to_build.is_none() || package.is_fetched {
            return;
        }
        match outcome {
            Ok(()) => {
                self.packages[id.index()].is_fetched = true;
                self.packages[id.index()].fetch = stage.map(|stage| stamped(stage, now_seconds));
                self.say_needs(id, actions);
                self.say_kept(id, actions);
                self.schedule(ScheduleEvent::Release(id), actions);
            }
            Err(failure) if failure.kind == FailureKind::Cancelled => {
                self.move_to(id, PackageState::Waiting, Reason::FetchCancelled, None, actions);
                self.reconsider(id, actions);
            }
            Err(failure) => {
                // It is recorded as a build that ended in its first stage.
                let failed = StageFailed::from(&failure);
                let kind = failure.kind;
                let build = self.next_build;
                self.next_build += 1;
                self.packages[id.index()].fetch = stage.map(|stage| stamped(stage, now_seconds));
                let (attempt, own) = (self.attempts.next(), self.own_machine.clone());
                self.begin_build(id, build, attempt, own, 0, actions);
                actions.push(Action::Record(Record::BuildEnded {
                    build,
                    at_seconds: now_seconds,
                    outcome: BuildOutcome::Failed,
                    failure: Some(failure),
                    is_reproducible: None,
                }));
                match self.count_failure(id, kind) {
                    Some((RetryMode::AtOnce, _)) => {
                        let failed = Some(failed);
                        let reason = Reason::Retry { cause: kind, how: RetryPlan::AtOnce, failed };
                        self.move_to(id, PackageState::Ready, reason, None, actions);
                        self.fetch(id, actions);
                    }
                    // Fetches are never alone.
                    Some((RetryMode::Later | RetryMode::Alone, pause_seconds)) => {
                        self.wait_to_try(id, kind, pause_seconds, failed, actions);
                    }
                    None => self.fail(id, Reason::Failed(failed), actions),
                }
            }
        }
    }

    /// Counts a failure. Returns how the package is tried again, and after how many seconds, if it is.
    pub(crate) fn count_failure(&mut self, id: PackageId, kind: FailureKind) -> Option<(RetryMode, f64)> {
        let policy = self.own_retries.get(&id).unwrap_or(&self.retries);
        let before = self.packages[id.index()].failures.count(kind, policy)?;
        let is_wanted = !self.is_stopping;
        is_wanted.then(|| (RetryPolicy::mode(kind), PAUSE_SECONDS * f64::from(before + 1)))
    }

    /// Schedules another try after a pause.
    pub(crate) fn wait_to_try(
        &mut self,
        id: PackageId,
        kind: FailureKind,
        pause_seconds: f64,
        failed: StageFailed,
        actions: &mut Vec<Action>,
    ) {
        let how = RetryPlan::After { pause_seconds };
        let reason = Reason::Retry { cause: kind, how, failed: Some(failed) };
        self.schedule(ScheduleEvent::Hold(id), actions);
        self.due_seconds.insert(id, self.now_seconds + pause_seconds);
        self.move_to(id, PackageState::Ready, reason, None, actions);
    }

    /// Resumes packages whose pause has ended.
    fn retry_due_packages(&mut self, now_seconds: f64, actions: &mut Vec<Action>) {
        let is_due = |(_, due): &(&PackageId, &f64)| **due <= now_seconds;
        let due: Vec<PackageId> = self.due_seconds.iter().filter(is_due).map(|(id, _)| *id).collect();
        for id in due {
            self.due_seconds.remove(&id);
            // It may have been skipped or retried during the pause.
            if !self.is_expected(id) || self.is_stopping {
                continue;
            }
            let package = &self.packages[id.index()];
            if package.to_build.is_none() {
                let reason = package.reason.clone();
                self.ready_again(id, reason, actions);
            } else if package.is_fetched {
                self.schedule(ScheduleEvent::Release(id), actions);
            } else {
                self.fetch(id, actions);
            }
        }
    }

    /// Starts the fetch of a prepared package.
    fn fetch(&self, id: PackageId, actions: &mut Vec<Action>) {
        if let Some(to_build) = &self.packages[id.index()].to_build {
            actions.push(Action::Fetch { package: id, to_build: to_build.clone() });
        }
    }

    /// Records the beginning of a build, and the fetch before it.
    fn begin_build(
        &mut self,
        id: PackageId,
        build: Number,
        attempt: Attempt,
        at: Performer,
        slot: u32,
        actions: &mut Vec<Action>,
    ) {
        let now_seconds = self.now_seconds;
        let package = &mut self.packages[id.index()];
        actions.push(Action::Record(Record::BuildBegan(Box::new(BuildRow {
            number: build,
            attempt: Some(attempt),
            run: self.run,
            package: self.graph.name(id).to_owned(),
            version: package.version.clone(),
            worker: at.worker,
            cores: at.cores,
            host: at.host,
            slot,
            key: package.key.as_ref().map_or(String::new(), |key| key.digest.clone()),
            started_seconds: now_seconds,
            ended_seconds: None,
            outcome: BuildOutcome::Building,
            failure: None,
            is_reproducible: None,
            stages: Vec::new(),
        }))));
        if let Some(stage) = package.fetch.take() {
            actions.push(Action::Record(Record::StageEnded { build, at_seconds: now_seconds, stage }));
        }
    }

    /// Marks a package as done: its outputs are available.
    pub(crate) fn arrive(
        &mut self,
        id: PackageId,
        state: PackageState,
        reason: Reason,
        actions: &mut Vec<Action>,
    ) {
        self.move_to(id, state, reason, None, actions);
        for dependent in self.graph.dependents(id).to_vec() {
            self.reconsider(dependent, actions);
        }
    }

    pub(crate) fn fail(&mut self, id: PackageId, reason: Reason, actions: &mut Vec<Action>) {
        self.drop_untested(id, actions);
        self.move_to(id, PackageState::Failed, reason, None, actions);
        self.schedule(ScheduleEvent::Unavailable(id), actions);
        for dependent in self.graph.dependents(id).to_vec() {
            self.reconsider(dependent, actions);
        }
    }

    /// Grants a build that the scheduler starts.
    fn grant(&mut self, id: PackageId, machine: MachineId, files: Files, actions: &mut Vec<Action>) {
        let seat = self.seats.get_mut(machine);
        // The scheduler starts no more builds than there are slots.
        let Some(slot) = seat.slots_free.pop_first() else { return };
        let worker = seat.worker.clone();
        let at = Performer { worker: Some(worker.clone()), cores: seat.cores, host: seat.host.clone() };
        let build = self.next_build;
        self.next_build += 1;
        let announced = self.take_announced(id, machine, actions);
        let attempt = announced.unwrap_or_else(|| self.attempts.next());
        let now_seconds = self.now_seconds;
        let mut lease =
            LeaseState::new(id, (build, attempt), Some(machine), worker, slot, files, now_seconds);
        match &self.packages[id.index()].round {
            Some(Round::Test(to_test)) => lease.test_for(to_test),
            _ => self.begin_build(id, build, attempt, at, slot, actions),
        }
        self.leases.insert(build, lease);
        self.open.insert(attempt, build);
        let reason = self.packages[id.index()].reason.clone();
        self.packages[id.index()].build = Some(build);
        self.move_to(id, PackageState::Building, reason, None, actions);
        self.push_grant(build, actions);
    }

    /// Handles a change in the number of cores that a build can use.
    fn wants(&mut self, now_seconds: f64, build: Number, cores: u32, actions: &mut Vec<Action>) {
        if let Some(lease) = self.leases.get_mut(&build) {
            lease.wants(now_seconds, cores);
            let package = lease.package;
            self.schedule(ScheduleEvent::Wants { package, cores }, actions);
        }
    }

    pub(crate) fn progress(
        &mut self,
        now_seconds: f64,
        build: Number,
        progress: Progress,
        actions: &mut Vec<Action>,
    ) {
        let Some(lease) = self.leases.get_mut(&build) else { return };
        lease.ends_seconds = now_seconds + LEASE_SECONDS;
        match progress {
            Progress::StageEnded(mut stage) => {
                let cores = lease.machine.map_or(1, |machine| self.seats.get(machine).cores);
                // Quotas count it: no worker may claim what its machine cannot have done since the build began.
                let elapsed_seconds = (now_seconds - lease.began_seconds).max(0.0);
                let cpu_seconds_max = elapsed_seconds * f64::from(cores.max(1)) * CLAIMED_MAX;
                // Not a number is nothing.
                stage.cpu_seconds = stage.cpu_seconds.max(0.0).min(cpu_seconds_max);
                stage.parallel_seconds =
                    Some(lease.take_parallel_seconds(now_seconds).min(stage.wall_seconds));
                // Time spent waiting counts as work, as in estimates.
                lease.core_seconds += stage.cpu_seconds.max(stage.wall_seconds);
                let stage = stamped(stage, now_seconds);
                match lease.row == build {
                    true => actions.push(Action::Record(Record::StageEnded {
                        build,
                        at_seconds: now_seconds,
                        stage,
                    })),
                    // A lost test is repeated, and its stages count once.
                    false => lease.test_stages.push(*stage),
                }
            }
            Progress::Wants(cores) => self.wants(now_seconds, build, cores, actions),
            Progress::StageBegan(stage) => {
                // A test of what another worker built has no row of its own.
                if self.leases.get(&build).is_some_and(|lease| lease.row == build) {
                    self.note(Some(build), EventKind::StageBegan { stage }, actions);
                }
                self.measure_rate(build, actions);
            }
            Progress::Sample { .. } => {}
        }
    }

    /// Reports something that changes no other row.
    pub(crate) fn note(&self, build: Option<Number>, kind: EventKind, actions: &mut Vec<Action>) {
        let note = Note { run: Some(self.run), build, at_seconds: self.now_seconds, kind };
        actions.push(Action::Record(Record::Note(Box::new(note))));
    }

    /// Ends the leases of silent workers. Their machines leave first, so that packages are not granted to them again.
    fn expire(&mut self, now_seconds: f64, actions: &mut Vec<Action>) {
        for machine in self.seats.silent_since(now_seconds - LEASE_SECONDS) {
            self.note_worker(machine, WorkerChange::Lost, actions);
            self.leave(machine, actions);
        }
        let over = self.leases.iter().filter(|(_, lease)| lease.ends_seconds < now_seconds);
        let mut over: Vec<Number> = over.map(|(build, _)| *build).collect();
        over.sort_unstable();
        for build in over {
            self.lose(build, actions);
        }
    }

    fn stop(&mut self, actions: &mut Vec<Action>) {
        self.is_stopping = true;
        self.schedule(ScheduleEvent::Stop, actions);
        let builds: Vec<Number> = self.leases.keys().copied().collect();
        for build in builds {
            self.cancel(build, actions);
        }
        self.drop_waiting_tests(actions);
    }

    pub(crate) fn cancel(&mut self, build: Number, actions: &mut Vec<Action>) {
        let lease = match self.leases.get_mut(&build) {
            None => self.deposits.get_mut(build),
            lease => lease,
        };
        if let Some(lease) = lease {
            lease.is_cancelled = true;
            let id = lease.package;
            self.packages[id.index()].build = None;
            let (machine, attempt) = (lease.machine, lease.attempt);
            // A worker that has not returned yet gets the message after its first offer.
            if let Some(machine) = machine {
                self.say(machine, |session| ToWorker::Cancel { session, attempt }, actions);
            }
            if self.packages[id.index()].state == PackageState::Building {
                self.move_to(id, PackageState::Waiting, Reason::BuildCancelled, None, actions);
            }
        }
    }

    fn requested(&mut self, request: Request, actions: &mut Vec<Action>) {
        let found = self.graph.find(&request.package).filter(|id| self.packages[id.index()].is_in_run);
        let Some(id) = found else {
            let reason = format!("{} is not in this run", request.package);
            return actions.push(Action::Notify(Notice::Refused { request, reason }));
        };
        let state = self.state(id);
        match request.kind {
            RequestKind::Retry => match state {
                PackageState::Failed | PackageState::Skipped => {
                    self.retry(id, Reason::RetryRequested, actions);
                }
                // It will be tried anyway.
                PackageState::Waiting | PackageState::Ready | PackageState::Building => {}
                _ => {
                    let mut reason = format!("it is {state}");
                    if let Some(blamed) = self.packages[id.index()].blamed {
                        reason = format!("it is {state}; retry {} instead", self.graph.name(blamed));
                    }
                    actions.push(Action::Notify(Notice::Refused { request, reason }));
                }
            },
            RequestKind::Skip => {
                if state.is_final() && state != PackageState::Blocked {
                    let reason = format!("it is {state} already");
                    return actions.push(Action::Notify(Notice::Refused { request, reason }));
                }
                match self.packages[id.index()].build {
                    Some(build) => self.cancel(build, actions),
                    None => self.drop_untested(id, actions),
                }
                self.move_to(id, PackageState::Skipped, Reason::SkipRequested, None, actions);
                self.schedule(ScheduleEvent::Unavailable(id), actions);
                for dependent in self.graph.dependents(id).to_vec() {
                    self.reconsider(dependent, actions);
                }
            }
            RequestKind::Bump => self.schedule(ScheduleEvent::Bump(id), actions),
        }
    }

    /// Tries a failed package again, for this reason.
    pub(crate) fn retry(&mut self, id: PackageId, reason: Reason, actions: &mut Vec<Action>) {
        self.forget_failures(id);
        self.packages[id.index()].failures = Failures::default();
        self.packages[id.index()].requirement_rounds = 0;
        self.packages[id.index()].is_alone = false;
        self.packages[id.index()].reading = Reading::Fresh;
        self.due_seconds.remove(&id);
        self.packages[id.index()].round = None;
        self.schedule(ScheduleEvent::Hold(id), actions);
        self.schedule(ScheduleEvent::Retry(id), actions);
        self.move_to(id, PackageState::Waiting, reason, None, actions);
        self.reconsider(id, actions);
        // What it blocked waits again, unless another package blocks it too.
        let descendants = self.graph.descendants(id);
        for other in self.graph.order() {
            if descendants.contains(&other) && self.state(other) == PackageState::Blocked {
                let reason = Reason::Waits { package: self.graph.name(id).to_owned() };
                self.move_to(other, PackageState::Waiting, reason, None, actions);
                self.reconsider(other, actions);
            }
        }
    }

    fn finish(&mut self, now_seconds: f64, actions: &mut Vec<Action>) {
        if self.is_finished || !self.leases.is_empty() || !self.deposits.is_empty() {
            return;
        }
        let is_done = self.packages.iter().all(|package| !package.is_in_run || package.state.is_final());
        let state = match (is_done, self.is_stopping) {
            (true, _) => RunState::Finished,
            (false, true) => RunState::Interrupted,
            (false, false) => return,
        };
        self.is_finished = true;
        actions.push(Action::Record(Record::Run { run: self.run, state, at_seconds: now_seconds }));
        actions.push(Action::Finish(state));
    }
}

impl LeaseState {
    /// Handles a change in the number of cores that the build can use.
    fn wants(&mut self, now_seconds: f64, cores: u32) {
        match self.is_parallel_since {
            None if cores > 1 => self.is_parallel_since = Some(now_seconds),
            Some(since) if cores <= 1 => {
                self.parallel_seconds += now_seconds - since;
                self.is_parallel_since = None;
            }
            _ => {}
        }
    }

    /// The seconds of the ending stage in which it could use more than one core.
    fn take_parallel_seconds(&mut self, now_seconds: f64) -> f64 {
        let until_now = self.is_parallel_since.map_or(0.0, |since| now_seconds - since);
        self.is_parallel_since = self.is_parallel_since.map(|_| now_seconds);
        std::mem::take(&mut self.parallel_seconds) + until_now
    }

    /// The package of the lease.
    #[cfg(test)]
    pub(crate) fn package(&self) -> PackageId {
        self.package
    }
}

/// Dates a stage that ends now by its duration, since workers' clocks are not trusted.
fn stamped(mut stage: Box<StageResult>, now_seconds: f64) -> Box<StageResult> {
    stage.started_seconds = now_seconds - stage.wall_seconds;
    stage
}
