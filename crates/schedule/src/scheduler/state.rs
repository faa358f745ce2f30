//! How packages change state, and how results correct the priors and the speeds of machines.

use super::{PackagePhase, Running, Scheduler};
use crate::machine::MachineId;
use crate::rank::Ranks;
use crate::work::{Basis, median};
use kilnyard_model::graph::PackageId;
use std::sync::Arc;

/// The number of results after which priors are corrected; further corrections come each time that number doubles.
/// The first results mean little, and a correction costs a walk over the whole graph.
const SURPRISES_MIN: usize = 8;

/// A machine's speed changes if its logarithm differs by this much.
const SPEED_CHANGE_MIN: f64 = 0.05;

impl Scheduler {
    /// Makes a waiting package ready, unless something still holds it.
    pub(super) fn make_ready(&mut self, package: PackageId) {
        let state = &self.packages[package.index()];
        if state.phase == PackagePhase::Waiting && state.waits == 0 && !state.is_held {
            self.set_phase(package, PackagePhase::Ready);
            self.queue.push(package);
        }
    }

    /// Records that the outputs of a package are available.
    pub(super) fn mark_built(&mut self, package: PackageId) {
        self.transfers.end(package);
        self.queue.remove(package);
        self.queue.stop_waiting_for(package);
        self.overtaken.remove(&package);
        let before = self.set_phase(package, PackagePhase::Built);
        if before != PackagePhase::Built {
            let graph = self.graph.clone();
            for dependent in graph.dependents(package) {
                self.packages[dependent.index()].waits -= 1;
                self.make_ready(*dependent);
            }
        }
    }

    /// Records that a package will not be built. If it is running, it keeps its core until it ends.
    pub(super) fn mark_gone(&mut self, package: PackageId) {
        self.queue.remove(package);
        self.queue.stop_waiting_for(package);
        self.overtaken.remove(&package);
        match self.packages[package.index()].phase {
            PackagePhase::Built | PackagePhase::Running(_) | PackagePhase::Freed => {}
            _ => self.fail(package),
        }
    }

    /// Adds edges to the graph: a package that is not running waits for further ones, which do not wait for it. The next event
    /// starts what may start now.
    pub fn depend(&mut self, package: PackageId, on: &[PackageId]) {
        let graph = Arc::make_mut(&mut self.graph);
        for dependency in on.iter().filter(|one| **one != package) {
            if graph.dependencies(package).binary_search(dependency).is_err() {
                graph.depend(package, *dependency);
                let is_built = self.packages[dependency.index()].phase == PackagePhase::Built;
                self.packages[package.index()].waits += u32::from(!is_built);
            }
        }
        if self.packages[package.index()].waits > 0 && self.queue.remove(package) {
            self.set_phase(package, PackagePhase::Waiting);
            self.overtaken.remove(&package);
        }
        if !self.is_free(package) {
            let mut blocked = self.graph.descendants(package);
            blocked.insert(package);
            for one in blocked {
                if self.packages[one.index()].phase == PackagePhase::Waiting {
                    self.set_phase(one, PackagePhase::Blocked);
                }
            }
        }
        // Its place in the order of the graph has changed.
        self.ranks = Ranks::new(&self.graph, vec![0.0; self.graph.len()]);
        self.renew_ranks();
    }

    /// Marks a package as failed, and blocks the packages that wait for it.
    pub(super) fn fail(&mut self, package: PackageId) {
        self.set_phase(package, PackagePhase::Failed);
        let mut gone = vec![package];
        for descendant in self.graph.descendants(package) {
            if self.packages[descendant.index()].phase == PackagePhase::Waiting {
                self.set_phase(descendant, PackagePhase::Blocked);
                gone.push(descendant);
            }
        }
        self.set_times(&gone);
    }

    /// Retries a failed package, and unblocks its dependents that nothing else blocks.
    pub(super) fn retry(&mut self, package: PackageId) {
        // Applies even if its cancelled build has not ended yet.
        self.packages[package.index()].is_alone = false;
        if self.packages[package.index()].phase != PackagePhase::Failed {
            return;
        }
        if !self.is_free(package) {
            self.set_phase(package, PackagePhase::Blocked);
            return;
        }
        self.set_phase(package, PackagePhase::Waiting);
        let descendants = self.graph.descendants(package);
        let mut back = vec![package];
        for index in 0..self.ranks.order().len() {
            let other = self.ranks.order()[index];
            let is_blocked = self.packages[other.index()].phase == PackagePhase::Blocked;
            if is_blocked && descendants.contains(&other) && self.is_free(other) {
                self.set_phase(other, PackagePhase::Waiting);
                back.push(other);
            }
        }
        self.set_times(&back);
        self.make_ready(package);
    }

    /// Whether no dependency of a package has failed.
    fn is_free(&self, package: PackageId) -> bool {
        self.graph.dependencies(package).iter().all(|dependency| {
            let phase = self.packages[dependency.index()].phase;
            !matches!(phase, PackagePhase::Failed | PackagePhase::Blocked)
        })
    }

    /// Corrects the priors by the actual times of packages with a prior. Uses the median of the ratios, so that a few
    /// outliers have no effect.
    pub(super) fn learn(&mut self, package: PackageId, core_seconds: f64) {
        let work = &self.works[package.index()];
        let expected_seconds = work.core_seconds();
        if work.basis == Basis::Recorded || !(core_seconds > 0.0 && expected_seconds > 0.0) {
            return;
        }
        self.surprises.push((core_seconds / expected_seconds).ln());
        if self.surprises.len() >= SURPRISES_MIN && self.surprises.len().is_power_of_two() {
            self.prior_factor = median(self.surprises.clone()).exp();
            self.renew_ranks();
        }
    }

    /// Measures the speed of a machine by a package that was built before.
    pub(super) fn measure(&mut self, machine: MachineId, package: PackageId, core_seconds: f64) {
        let work = &self.works[package.index()];
        if work.basis != Basis::Recorded {
            return;
        }
        let (speed, about) = (&mut self.speeds[machine.index()], &mut self.machines[machine.index()]);
        let measured = speed.add(about.speed, work.core_seconds(), core_seconds);
        // New ranks cost a walk over the whole graph.
        if let Some(measured) = measured.filter(|speed| (speed / about.speed).ln().abs() > SPEED_CHANGE_MIN) {
            about.speed = measured;
            self.renew_ranks();
        }
    }

    pub(super) fn running_mut(&mut self, package: PackageId) -> Option<&mut Running> {
        let PackagePhase::Running(machine) = self.packages[package.index()].phase else { return None };
        self.running[machine.index()].iter_mut().find(|running| running.package == package)
    }
}
