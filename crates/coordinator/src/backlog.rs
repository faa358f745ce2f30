//! Reports the work that is left in a run.

use crate::Coordinator;
use crate::pools::Round;
use kilnyard_model::backlog::{Backlog, Pending};
use kilnyard_model::role::Role;
use kilnyard_schedule::Needs;

impl Coordinator {
    /// The work that is left, with at most this many ready packages. This many cores of the own machine take part in it.
    pub fn backlog(&self, ready_max: usize, own_cores: u32) -> Backlog {
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
            own_cores,
        }
    }

    fn pending(&self, needs: Needs) -> Pending {
        let Needs { package, cores, memory_bytes } = needs;
        let (role, needs_trust) = match &self.packages[package.index()].round {
            None => (self.role_of(package), self.is_needed(package)),
            Some(Round::Test(_)) => (Role::Test, self.is_needed(package)),
            // What it makes is compared, and not used.
            Some(Round::Verify { .. }) => (Role::Build, false),
        };
        let package = self.graph.name(package).to_owned();
        Pending { package, cores, memory_bytes, role, needs_trust }
    }
}
