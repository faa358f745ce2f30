//! Sending leases, and ending them without a result.

use crate::deposits::Deposit;
use crate::pools::{Round, ToTest};
use crate::{Action, Coordinator, Ending, Granted, LEASE_SECONDS, LeaseState};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::PackageId;
use kilnyard_model::reason::{Reason, RetryPlan};
use kilnyard_model::result::{BuildOutcome, FailureKind, PackageState};
use kilnyard_protocol::{Answer, ToWorker};
use kilnyard_schedule::{Event as ScheduleEvent, Files, MachineId, Outcome};
use kilnyard_store::{Number, Record};

impl Coordinator {
    /// Sends a lease to its machine.
    pub(crate) fn push_grant(&mut self, build: Number, actions: &mut Vec<Action>) {
        let Some(lease) = self.leases.get(&build) else { return };
        let Some(machine) = lease.machine else { return };
        let granted = self.granted(lease.package, machine, (build, lease.attempt), lease.slot, lease.files);
        actions.extend(granted.map(Action::Grant));
    }

    /// The contents of a lease; none if the machine has no session.
    pub(crate) fn granted(
        &self,
        id: PackageId,
        machine: MachineId,
        (build, attempt): (Number, Attempt),
        slot: u32,
        files: Files,
    ) -> Option<Granted> {
        let (channel, session) = self.seats.get(machine).way()?;
        Some(Granted {
            build,
            attempt,
            package: id,
            rank_seconds: self.scheduler.rank_seconds(id),
            machine,
            slot,
            files,
            channel,
            session,
            // A granted package was prepared.
            to_build: self.packages[id.index()].to_build.clone()?,
            keep: self.keep_order(id, &self.seats.get(machine).worker).map(Box::new),
            to_test: match &self.packages[id.index()].round {
                Some(Round::Test(to_test)) => Some(to_test.clone()),
                _ => None,
            },
        })
    }

    /// Ends a lease: its slot is free, and messages about it change nothing.
    pub(crate) fn close(&mut self, build: Number, ending: Ending) -> Option<LeaseState> {
        let lease = self.leases.remove(&build)?;
        self.open.remove(&lease.attempt);
        self.ended.insert(lease.attempt, ending);
        if let Some(machine) = lease.machine {
            // A build that had ended before this coordinator started, but was not recorded, may share its slot with a later one.
            let has_slot = |other: &LeaseState| other.machine == Some(machine) && other.slot == lease.slot;
            if !self.leases.values().any(has_slot) {
                self.seats.get_mut(machine).slots_free.insert(lease.slot);
            }
        }
        Some(lease)
    }

    /// Ends a lease whose worker is silent or lost the build; the package is built again.
    pub(crate) fn lose(&mut self, build: Number, actions: &mut Vec<Action>) {
        let Some(lease) = self.close_without_result(build, actions) else { return };
        let id = lease.package;
        let mut outcome = Outcome::Lost;
        if lease.is_cancelled {
            self.drop_untested(id, actions);
        }
        if matches!(self.packages[id.index()].round, Some(Round::Verify { .. })) && !lease.is_cancelled {
            self.packages[id.index()].build = None;
            // It is not verified again.
            self.schedule(ScheduleEvent::Hold(id), actions);
            self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
            self.verified(id, None, actions);
            return self.schedule(ScheduleEvent::Available(id), actions);
        }
        if !lease.is_cancelled {
            self.packages[id.index()].build = None;
            if self.count_failure(id, FailureKind::Lost).is_none() {
                self.fail(id, Reason::WorkerLost, actions);
                outcome = Outcome::Failed;
            } else {
                let (cause, how) = (FailureKind::Lost, RetryPlan::AtOnce);
                self.ready_again(id, Reason::Retry { cause, how, failed: None }, actions);
            }
        } else if self.packages[id.index()].state == PackageState::Skipped {
            outcome = Outcome::Failed;
        }
        self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
    }

    /// Ends a lease that its worker gave back without starting it.
    pub(crate) fn give_back(&mut self, build: Number, actions: &mut Vec<Action>) {
        let Some(lease) = self.close_without_result(build, actions) else { return };
        let id = lease.package;
        self.packages[id.index()].build = None;
        self.ready_again(id, Reason::GivenBack, actions);
        self.schedule(ScheduleEvent::Ended { package: id, outcome: Outcome::Lost }, actions);
    }

    fn close_without_result(&mut self, build: Number, actions: &mut Vec<Action>) -> Option<LeaseState> {
        let lease = self.close(build, Ending::Superseded)?;
        // A lost test is repeated, and the build continues.
        if lease.row == build {
            actions.push(Action::Record(Record::BuildEnded {
                build,
                at_seconds: self.now_seconds,
                outcome: BuildOutcome::Lost,
                failure: None,
                is_reproducible: None,
            }));
        }
        actions.push(Action::Forget { worker: lease.worker.clone(), attempt: lease.attempt });
        if let Some(machine) = lease.machine {
            let (attempt, reason) = (lease.attempt, "its lease is over".to_owned());
            self.say(machine, |session| ToWorker::Superseded { session, attempt, reason }, actions);
        }
        Some(lease)
    }

    /// Makes a package ready again after its build ended without a result.
    pub(crate) fn ready_again(&mut self, id: PackageId, reason: Reason, actions: &mut Vec<Action>) {
        let reason = self.round_reason(id).unwrap_or(reason);
        if self.packages[id.index()].to_build.is_some() {
            self.move_to(id, PackageState::Ready, reason, None, actions);
        } else {
            // Its build began before this coordinator was started, and it was not prepared since.
            self.move_to(id, PackageState::Waiting, reason, None, actions);
            self.reconsider(id, actions);
        }
    }
}

impl LeaseState {
    /// Makes it the lease of a test of what another worker built.
    pub(crate) fn test_for(&mut self, to_test: &ToTest) {
        self.row = to_test.build;
        self.answers[0] = Some(Answer::keep(to_test.outputs.clone()));
    }

    pub(crate) fn new(
        package: PackageId,
        (row, attempt): (Number, Attempt),
        machine: Option<MachineId>,
        worker: String,
        slot: u32,
        files: Files,
        now_seconds: f64,
    ) -> LeaseState {
        LeaseState {
            package,
            row,
            attempt,
            machine,
            worker,
            slot,
            files,
            ends_seconds: now_seconds + LEASE_SECONDS,
            began_seconds: now_seconds,
            granted_seconds: now_seconds,
            is_confirmed: false,
            is_started: false,
            is_revoked: false,
            reports: 0,
            recorded: Vec::new(),
            test: None,
            test_stages: Vec::new(),
            is_asked: [false; 2],
            unstored: 0,
            answers: [None, None],
            result: None,
            deposit: Deposit::Done,
            has_begun: false,
            is_cancelled: false,
            core_seconds: 0.0,
            is_parallel_since: None,
            parallel_seconds: 0.0,
        }
    }
}
