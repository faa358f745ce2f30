//! The work that is left in a run, for those who decide how many workers there should be.

use crate::Coordinator;
use crate::pools::Round;
use kilnyard_model::role::Role;
use kilnyard_schedule::Needs;

/// The work that is left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Packages that could start if a worker for them had a free core, those of the longest path first.
    pub ready: Vec<Pending>,
    /// The builds that are in progress, with the names of their workers.
    pub running: Vec<(String, Pending)>,
    /// The expected work of all packages that have not ended, in core-seconds.
    pub core_seconds: f64,
    /// The longest path through them, in seconds.
    pub path_seconds: f64,
}

/// What a package needs of its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The package.
    pub package: String,
    /// The cores that it uses on the average if it can have all that it wants.
    pub cores: u32,
    /// The memory that it needs with one core, in bytes.
    pub memory_bytes: u64,
    /// The role of its worker.
    pub role: Role,
    /// Whether only a trusted pool may have it.
    pub needs_trust: bool,
}

impl Coordinator {
    /// The work that is left, with at most this many ready packages.
    pub fn backlog(&self, ready_max: usize) -> Backlog {
        let backlog = self.scheduler.backlog(ready_max);
        let running = backlog.running.into_iter().map(|(machine, needs)| {
            let worker = self.seats.get(machine).worker.clone();
            (worker, self.pending(needs))
        });
        Backlog {
            running: running.collect(),
            ready: backlog.ready.into_iter().map(|needs| self.pending(needs)).collect(),
            core_seconds: backlog.core_seconds,
            path_seconds: self.remaining_path_seconds(),
        }
    }

    fn pending(&self, needs: Needs) -> Pending {
        let Needs { package, cores, memory_bytes } = needs;
        let (role, needs_trust) = match &self.packages[package.index()].round {
            None => (Role::Build, self.is_needed(package)),
            Some(Round::Test(_)) => (Role::Test, self.is_needed(package)),
            // What it makes is compared, and not used.
            Some(Round::Verify { .. }) => (Role::Build, false),
        };
        let package = self.graph.name(package).to_owned();
        Pending { package, cores, memory_bytes, role, needs_trust }
    }
}
