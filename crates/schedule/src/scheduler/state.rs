//! How packages move from one standing to the next, and what is learnt from results.

use super::{Running, Scheduler, Standing};
use crate::work::{Basis, median};
use kilnyard_model::graph::PackageId;

/// From so many results on priors are corrected, and again whenever there are twice as many: the first ones say
/// little, and a correction costs a walk over the whole graph.
const SURPRISES_MIN: usize = 8;

impl Scheduler {
    /// A waiting package becomes ready if nothing keeps it.
    pub(super) fn look_at(&mut self, package: PackageId) {
        let state = &mut self.packages[package.index()];
        if state.standing == Standing::Waiting && state.waits == 0 && !state.is_held {
            state.standing = Standing::Ready;
            self.queue.push(package);
        }
    }

    /// A package will not be built, nor will what waits for it.
    pub(super) fn fail(&mut self, package: PackageId) {
        self.packages[package.index()].standing = Standing::Failed;
        let mut gone = vec![package];
        for descendant in self.graph.descendants(package) {
            if self.packages[descendant.index()].standing == Standing::Waiting {
                self.packages[descendant.index()].standing = Standing::Blocked;
                gone.push(descendant);
            }
        }
        self.set_times(&gone);
    }

    /// A failed package is tried again, and what it blocked waits for it, unless something else blocks it too.
    pub(super) fn retry(&mut self, package: PackageId) {
        if self.packages[package.index()].standing != Standing::Failed {
            return;
        }
        self.packages[package.index()].standing = Standing::Waiting;
        let descendants = self.graph.descendants(package);
        let mut back = vec![package];
        for index in 0..self.ranks.order().len() {
            let other = self.ranks.order()[index];
            let is_blocked = self.packages[other.index()].standing == Standing::Blocked;
            if is_blocked && descendants.contains(&other) {
                let is_free = self.graph.dependencies(other).iter().all(|dependency| {
                    let standing = self.packages[dependency.index()].standing;
                    !matches!(standing, Standing::Failed | Standing::Blocked)
                });
                if is_free {
                    self.packages[other.index()].standing = Standing::Waiting;
                    back.push(other);
                }
            }
        }
        self.set_times(&back);
        self.look_at(package);
    }

    /// Corrects priors by what packages with a prior took: the median of the ratios, so that a few odd ones
    /// move nothing.
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

    pub(super) fn running_mut(&mut self, package: PackageId) -> Option<&mut Running> {
        let Standing::Running(machine) = self.packages[package.index()].standing else { return None };
        self.running[machine.index()].iter_mut().find(|running| running.package == package)
    }
}
