//! Which workers get builds: those that the user drained do not, and those that fail what others build do not any more.
//!
//! A build that failed because of its machine is repeated at once. If its worker took it again, a machine that fails
//! everything quickly would fail the whole run. It therefore takes no builds for a pause after such a failure, and after
//! [`FAULTS_MAX`] packages that it failed and another worker built, or as many failures of its machine in a row, it is
//! quarantined. The worker on the coordinator's own machine never is: without it, runs on one machine would stop.
//!
//! A worker that fails [`BLAMES_MAX`] packages in a row for reasons that seem to be theirs may be the reason itself. From
//! then on, what it fails is tried once more, by another worker; if that builds it, the first one is quarantined. All packages
//! that a quarantined worker alone failed are tried again.

use crate::{Action, Coordinator};
use kilnyard_model::graph::PackageId;
use kilnyard_model::reason::{Reason, RetryPlan};
use kilnyard_model::result::{Failure, FailureKind, PackageState};
use kilnyard_schedule::{Event as ScheduleEvent, MachineId};
use kilnyard_store::{EventKind, WorkerChange};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// See the module documentation.
pub const FAULTS_MAX: usize = 3;
/// A worker that failed this many packages in a row is doubted.
pub const BLAMES_MAX: usize = 3;
/// The pause after a failure of the machine, in seconds.
pub const REST_SECONDS: f64 = 30.0;

/// The longest message of a failure that is kept, in characters: a worker writes it.
const MESSAGE_CHARACTERS_MAX: usize = 200;

/// The failures of all workers in this run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// The workers that take no builds, as the caller last said.
    held: BTreeSet<String>,
    /// The workers that this coordinator quarantined, until the caller has named them and then no longer does.
    quarantined: BTreeSet<String>,
    workers: BTreeMap<String, WorkerHealth>,
    /// The packages that were tried once more because their worker is doubted.
    doubted: BTreeSet<PackageId>,
    /// The workers on which a package failed, with the failure.
    failed_on: HashMap<PackageId, BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default)]
struct WorkerHealth {
    /// Failures of its machine since its last success.
    in_a_row: usize,
    /// Failures that packages seem to be to blame for, since its last success, or the last one that others confirmed.
    blames: usize,
    /// The packages that it failed and others built.
    faults: BTreeSet<PackageId>,
    /// When it takes builds again.
    rests_until_seconds: Option<f64>,
}

impl Health {
    /// Whether the failures of a worker, and the user, let it have builds.
    fn admits(&self, worker: &str) -> bool {
        let rests = self.workers.get(worker).is_some_and(|health| health.rests_until_seconds.is_some());
        !self.held.contains(worker) && !self.quarantined.contains(worker) && !rests
    }
}

impl Coordinator {
    /// Replaces the workers that take no builds. Their running builds continue.
    pub(crate) fn hold(&mut self, held: BTreeSet<String>, actions: &mut Vec<Action>) {
        let freed: Vec<String> = self.health.held.difference(&held).cloned().collect();
        // The user has resumed them.
        for worker in freed {
            self.health.workers.remove(&worker);
            self.health.quarantined.remove(&worker);
        }
        self.health.held = held;
        self.set_doors(actions);
    }

    /// Ends the pauses that are over.
    pub(crate) fn wake(&mut self, actions: &mut Vec<Action>) {
        let now_seconds = self.now_seconds;
        let mut is_changed = false;
        for health in self.health.workers.values_mut() {
            is_changed |= health.rests_until_seconds.take_if(|until| *until <= now_seconds).is_some();
        }
        if is_changed {
            self.set_doors(actions);
        }
    }

    /// Whether a worker may get builds.
    pub(crate) fn admits(&self, worker: &str) -> bool {
        self.health.admits(worker) && !self.standing(worker).is_held
    }

    /// Whether a machine takes builds: its worker says so, and so does everything above.
    pub(crate) fn is_open(&self, machine: MachineId) -> bool {
        let seat = self.seats.get(machine);
        // Its first offer says which builds it has.
        seat.takes_more && seat.offer.is_some() && self.admits(&seat.worker)
    }

    /// Opens and closes machines for the scheduler.
    pub(crate) fn set_doors(&mut self, actions: &mut Vec<Action>) {
        for machine in self.seats.in_session() {
            let is_open = self.is_open(machine);
            if std::mem::replace(&mut self.seats.get_mut(machine).is_open, is_open) != is_open {
                let event = match is_open {
                    true => ScheduleEvent::Opened(machine),
                    false => ScheduleEvent::Closed(machine),
                };
                self.schedule(event, actions);
            }
        }
    }

    /// Notes that a worker failed a package, before the package is scheduled again.
    pub(crate) fn note_failure(
        &mut self,
        worker: &str,
        package: PackageId,
        failure: &Failure,
        actions: &mut Vec<Action>,
    ) {
        // These say something about the package, or about the network.
        let kinds = [FailureKind::Memory, FailureKind::Disk, FailureKind::Network];
        // The coordinator's own machine counts only against what others say.
        let is_own = self.is_own(worker);
        let is_known = self.health.failed_on.contains_key(&package);
        if kinds.contains(&failure.kind) || is_own && !is_known {
            return;
        }
        let message: String = failure.message.chars().take(MESSAGE_CHARACTERS_MAX).collect();
        let message = format!("{}: {message}", self.graph.name(package));
        let failed_on = self.health.failed_on.entry(package).or_default();
        failed_on.insert(worker.to_owned(), message.clone());
        if failed_on.len() > 1 {
            // They were right.
            for worker in failed_on.keys() {
                self.health.workers.entry(worker.clone()).or_default().blames = 0;
            }
        } else if failure.kind != FailureKind::Machine {
            self.health.workers.entry(worker.to_owned()).or_default().blames += 1;
        }
        if failure.kind == FailureKind::Machine && !is_own {
            let health = self.health.workers.entry(worker.to_owned()).or_default();
            health.in_a_row += 1;
            health.rests_until_seconds = Some(self.now_seconds + REST_SECONDS);
            if health.in_a_row >= FAULTS_MAX {
                let count = health.in_a_row;
                let reason =
                    format!("{count} builds in a row failed because of its machine; the last: {message}");
                self.quarantine(worker, reason, actions);
            }
            self.set_doors(actions);
        }
    }

    /// Notes that a worker built a package, which other workers may have failed.
    pub(crate) fn note_success(&mut self, worker: &str, package: PackageId, actions: &mut Vec<Action>) {
        if let Some(health) = self.health.workers.get_mut(worker) {
            (health.in_a_row, health.blames) = (0, 0);
        }
        for (failed, message) in self.health.failed_on.remove(&package).unwrap_or_default() {
            if failed == worker || self.is_own(&failed) {
                continue;
            }
            let health = self.health.workers.entry(failed.clone()).or_default();
            health.faults.insert(package);
            let (faults, blames) = (health.faults.len(), health.blames);
            if faults >= FAULTS_MAX {
                let reason =
                    format!("it failed {faults} packages that other workers built; the last: {message}");
                self.quarantine(&failed, reason, actions);
            } else if blames >= BLAMES_MAX {
                let reason =
                    format!("it failed {blames} packages in a row, and {worker} built one: {message}");
                self.quarantine(&failed, reason, actions);
            }
        }
    }

    /// Whether the failure of a package may be its worker's, so that another should try it. The worker rests until then.
    pub(crate) fn doubts(&mut self, worker: &str, package: PackageId, actions: &mut Vec<Action>) -> bool {
        let is_first = self.health.failed_on.get(&package).is_some_and(|failed_on| failed_on.len() == 1);
        let blames = self.health.workers.get(worker).map_or(0, |health| health.blames);
        let has_other = self.has_other_taker(package, worker);
        if self.is_stopping || !is_first || blames < BLAMES_MAX || !has_other {
            return false;
        }
        if !self.health.doubted.insert(package) {
            return false;
        }
        let rests_until_seconds = Some(self.now_seconds + REST_SECONDS);
        self.health.workers.entry(worker.to_owned()).or_default().rests_until_seconds = rests_until_seconds;
        self.set_doors(actions);
        true
    }

    /// Tries again what workers that were just quarantined failed, and no other worker did.
    fn retry_failed_by(&mut self, worker: &str, actions: &mut Vec<Action>) {
        let failed = self.health.failed_on.iter().filter(|(package, failed_on)| {
            failed_on.len() == 1
                && failed_on.contains_key(worker)
                && self.state(**package) == PackageState::Failed
        });
        let mut failed: Vec<PackageId> = failed.map(|(package, _)| *package).collect();
        failed.sort_unstable();
        for package in failed {
            let (cause, how) = (FailureKind::Machine, RetryPlan::AtOnce);
            self.retry(package, Reason::Retry { cause, how, failed: None }, actions);
        }
    }

    /// Forgets the failures of a package that the user retries: its recipe may have been mended.
    pub(crate) fn forget_failures(&mut self, package: PackageId) {
        for worker in self.health.failed_on.remove(&package).unwrap_or_default().keys() {
            if let Some(health) = self.health.workers.get_mut(worker) {
                health.blames = health.blames.saturating_sub(1);
            }
        }
    }

    fn quarantine(&mut self, worker: &str, reason: String, actions: &mut Vec<Action>) {
        if self.health.quarantined.insert(worker.to_owned()) {
            let (name, why) = (worker.to_owned(), Some(reason.clone()));
            let change = WorkerChange::Quarantined;
            self.note(None, EventKind::Worker { name, change, why, author: None }, actions);
            actions.push(Action::Quarantine { worker: worker.to_owned(), reason });
            self.set_doors(actions);
            self.retry_failed_by(worker, actions);
        }
    }

    pub(crate) fn is_own(&self, worker: &str) -> bool {
        self.own_machine.worker.as_deref() == Some(worker)
    }
}
