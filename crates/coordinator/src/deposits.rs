//! Results that wait until their outputs are stored where the machines of a farm share them: what is recorded is there,
//! whichever machine is lost.
//!
//! The worker is free meanwhile, and keeps the result until it is acknowledged. While the store cannot be written, further
//! packages are built, up to a bound; those that need the outputs wait.

use crate::{Action, Coordinator, Ending, LeaseState};
use kilnyard_model::order::Stage;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, FailureKind, PackageState};
use kilnyard_protocol::BuildResult;
use kilnyard_schedule::{Event as ScheduleEvent, Outcome};
use kilnyard_store::Number;
use std::collections::HashMap;

/// The most results that wait. The builds of further ones keep their cores.
const WAITING_MAX: usize = 1000;
/// The most bytes of their outputs, which take space on the coordinator's machine and on workers.
const WAITING_BYTES_MAX: u64 = 32 << 30;

/// Why outputs are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// They are not here any more, or differ: the build fails, for this reason.
    Lost(String),
    /// The run ends before.
    Stopped,
}

/// Where the outputs of a build are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deposit {
    /// Where they have to be.
    Done,
    /// On their way, by this number.
    Pending(u64),
    /// See [`NotStored::Lost`].
    Lost(String),
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deposits {
    /// With their results.
    leases: HashMap<Number, LeaseState>,
    /// The sizes of their outputs.
    bytes: u64,
}

impl Deposits {
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub fn get_mut(&mut self, build: Number) -> Option<&mut LeaseState> {
        self.leases.get_mut(&build)
    }

    fn has_room(&self) -> bool {
        self.leases.len() < WAITING_MAX && self.bytes < WAITING_BYTES_MAX
    }

    fn insert(&mut self, build: Number, lease: LeaseState) {
        self.bytes += bytes_of(&lease);
        self.leases.insert(build, lease);
    }

    pub fn remove(&mut self, build: Number) -> Option<LeaseState> {
        let lease = self.leases.remove(&build)?;
        self.bytes -= bytes_of(&lease);
        Some(lease)
    }
}

/// The sizes of the outputs of a lease's result, as the worker says: a bound that it cannot use to the harm of others.
fn bytes_of(lease: &LeaseState) -> u64 {
    let outputs = lease.result.as_ref().and_then(|result| result.outcome.as_ref().ok());
    let sizes = outputs.into_iter().flatten().map(|output| output.size_bytes);
    sizes.fold(0, u64::saturating_add).min(WAITING_BYTES_MAX)
}

impl Coordinator {
    /// Keeps an accepted result until its outputs are stored, and frees its machine if there is room.
    pub(crate) fn await_deposit(&mut self, build: Number, result: BuildResult, actions: &mut Vec<Action>) {
        let Some(lease) = self.leases.get_mut(&build) else { return };
        lease.result = Some(Box::new(result));
        if !self.deposits.has_room() {
            return;
        }
        let Some(lease) = self.close(build, Ending::Pending) else { return };
        let (package, core_seconds) = (lease.package, lease.core_seconds);
        self.deposits.insert(build, lease);
        self.schedule(ScheduleEvent::Freed { package, core_seconds }, actions);
    }

    /// Records a result whose outputs are stored, or never will be.
    pub(crate) fn deposited(
        &mut self,
        build: Number,
        deposit: u64,
        outcome: Result<(), NotStored>,
        actions: &mut Vec<Action>,
    ) {
        let is_it = |lease: &LeaseState| lease.deposit == Deposit::Pending(deposit);
        match (self.leases.get_mut(&build), outcome) {
            // Its result has not arrived, or there was no room.
            (Some(lease), outcome) if is_it(lease) => {
                lease.deposit = match outcome {
                    Err(NotStored::Lost(reason)) => Deposit::Lost(reason),
                    Ok(()) | Err(NotStored::Stopped) => Deposit::Done,
                };
                let Some(result) = lease.result.take() else { return };
                self.conclude(build, *result, actions);
            }
            (None, outcome) if self.deposits.get_mut(build).is_some_and(|lease| is_it(lease)) => {
                if outcome == Err(NotStored::Stopped) {
                    return self.leave_open(build, actions);
                }
                let Some(mut lease) = self.deposits.remove(build) else { return };
                let Some(result) = lease.result.take() else { return };
                if let Err(NotStored::Lost(reason)) = outcome {
                    lease.deposit = Deposit::Lost(reason);
                }
                // It ends now.
                self.leases.insert(build, lease);
                self.conclude(build, *result, actions);
            }
            _ => {}
        }
    }

    /// Records a result that has waited.
    fn conclude(&mut self, build: Number, mut result: BuildResult, actions: &mut Vec<Action>) {
        let Some(lease) = self.leases.get(&build) else { return };
        let (machine, attempt) = (lease.machine, lease.attempt);
        if let Deposit::Lost(reason) = &lease.deposit {
            result.outcome = Err(not_stored(reason.clone()));
        }
        self.ended(self.now_seconds, result, actions);
        if let Some(machine) = machine {
            self.say_ended(machine, attempt, actions);
        }
    }

    /// Leaves a build open in the store: the run ends before its outputs are stored, and the worker keeps the result, which the
    /// next run takes over.
    fn leave_open(&mut self, build: Number, actions: &mut Vec<Action>) {
        let Some(lease) = self.deposits.remove(build) else { return };
        let id = lease.package;
        if self.packages[id.index()].state == PackageState::Building {
            self.packages[id.index()].build = None;
            self.move_to(id, PackageState::Waiting, Reason::BuildCancelled, None, actions);
        }
        self.schedule(ScheduleEvent::Ended { package: id, outcome: Outcome::Lost }, actions);
    }

    /// Loses the results of workers that may not build their packages any more.
    pub(crate) fn lose_unwelcome_deposits(&mut self, actions: &mut Vec<Action>) {
        let is_unwelcome = |lease: &LeaseState| {
            let standing = self.standing(&lease.worker);
            standing.pool.is_empty() || !self.may_take(&standing, lease.package)
        };
        let all = self.deposits.leases.iter();
        let mut lost: Vec<Number> =
            all.filter(|(_, lease)| is_unwelcome(lease)).map(|(build, _)| *build).collect();
        lost.sort_unstable();
        for build in lost {
            if let Some(lease) = self.deposits.remove(build) {
                self.leases.insert(build, lease);
                self.lose(build, actions);
            }
        }
    }
}

/// The failure of a build whose outputs were lost before they were stored.
pub(crate) fn not_stored(reason: String) -> Failure {
    Failure {
        stage: Stage::Collect,
        kind: FailureKind::Outputs,
        message: reason,
        line_number: None,
        lines: Vec::new(),
    }
}
