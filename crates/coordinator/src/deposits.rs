//! Results that wait until their outputs are stored where the machines of a farm share them: what is recorded is there,
//! whichever machine is lost.
//!
//! The worker is free meanwhile, and keeps the result until it is acknowledged. While the store cannot be written, further
//! packages are built, up to a bound; those that need the outputs wait.

use crate::{Action, Coordinator, Ending, LeaseState};
use kilnyard_model::order::Stage;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_protocol::BuildResult;
use kilnyard_schedule::Event as ScheduleEvent;
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
    /// On their way.
    Pending,
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
        outcome: Result<(), NotStored>,
        actions: &mut Vec<Action>,
    ) {
        if let Some(lease) = self.deposits.remove(build) {
            // It ends now.
            self.leases.insert(build, lease);
        }
        if outcome == Err(NotStored::Stopped) {
            self.cancel(build, actions);
        }
        let Some(lease) = self.leases.get_mut(&build) else { return };
        lease.deposit = match outcome {
            Err(NotStored::Lost(reason)) => Deposit::Lost(reason),
            Ok(()) | Err(NotStored::Stopped) => Deposit::Done,
        };
        // One that has not arrived finds the deposit as it is now.
        let Some(mut result) = lease.result.take() else { return };
        let (machine, attempt) = (lease.machine, lease.attempt);
        if let Deposit::Lost(reason) = &lease.deposit {
            result.outcome = Err(not_stored(reason.clone()));
        }
        self.ended(self.now_seconds, *result, actions);
        if let Some(machine) = machine {
            self.say_ended(machine, attempt, actions);
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
