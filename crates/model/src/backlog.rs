//! The work that is left in a run, for those who decide how many workers there should be.

use crate::role::Role;
use serde::{Deserialize, Serialize};

/// The work that is left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Packages that could start if a worker for them had a free core, those of the longest path first.
    pub ready: Vec<Pending>,
    /// The builds that are in progress, with the names of their workers.
    pub running: Vec<(String, Pending)>,
    /// The expected work of all packages that have not ended, in core-seconds.
    pub core_seconds: f64,
    /// The longest path through them, in seconds.
    pub path_seconds: f64,
    /// The cores of the yard's own machine that take part.
    pub own_cores: u32,
}

impl Backlog {
    /// What is left of a run that starts nothing further: its builds in progress.
    pub fn of_running(self) -> Backlog {
        Backlog { running: self.running, own_cores: self.own_cores, ..Backlog::default() }
    }

    /// The work of two runs, whose workers are the same.
    pub fn and(mut self, other: Backlog) -> Backlog {
        self.ready.extend(other.ready);
        self.running.extend(other.running);
        self.core_seconds += other.core_seconds;
        self.path_seconds = self.path_seconds.max(other.path_seconds);
        self.own_cores += other.own_cores;
        self
    }
}

/// What a package needs of its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
