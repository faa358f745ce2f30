//! The work that is left, for those who decide how many machines there should be.

use super::Scheduler;
use crate::machine::MachineId;
use kilnyard_model::graph::PackageId;

/// The number of cores with which a build's average is computed: beyond it, few builds use more.
const CORES: u32 = 16;

/// The work that is left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backlog {
    /// The packages that are ready and not started, those of the longest path first.
    pub ready: Vec<Needs>,
    /// The running builds, and their machines.
    pub running: Vec<(MachineId, Needs)>,
    /// The expected work of all packages that have not ended, in core-seconds.
    pub core_seconds: f64,
}

/// What a build needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The package.
    pub package: PackageId,
    /// The cores that it uses on the average if it can have all that it wants.
    pub cores: u32,
    /// The memory that it needs with one core, in bytes.
    pub memory_bytes: u64,
}

impl Scheduler {
    /// The work that is left, with at most this many ready packages.
    pub fn backlog(&self, ready_max: usize) -> Backlog {
        let ready = self.queue.iter().take(ready_max).map(|package| self.needs(package)).collect();
        let machines = (0..).map(MachineId).zip(&self.running);
        let running = machines.flat_map(|(machine, builds)| {
            builds.iter().map(move |build| (machine, self.needs(build.package)))
        });
        let left = self.running.iter().flatten();
        let left = left.map(|build| build.serial_left_seconds + build.parallel_left_seconds).sum::<f64>();
        Backlog { ready, running: running.collect(), core_seconds: self.unstarted_seconds + left }
    }

    fn needs(&self, package: PackageId) -> Needs {
        let work = &self.works[package.index()];
        let average = work.core_seconds() / work.seconds_at(CORES, 1.0);
        let cores = if average.is_finite() { average.round().max(1.0) as u32 } else { 1 };
        Needs { package, cores: work.cores_of(cores), memory_bytes: work.memory_bytes }
    }
}
