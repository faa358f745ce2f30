//! Kept work: which builds use and leave it, and which machines have some, for the scheduler.
//!
//! Kept work belongs to one machine and pool. A build that is compared with another one neither uses nor leaves any, and
//! neither does a test. A build that a command forced starts from scratch, and leaves its work.

use crate::{Action, Coordinator};
use kilnyard_model::graph::PackageId;
use kilnyard_model::keep::KeepOrder;
use kilnyard_model::reason::Reason;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_protocol::Hello;
use kilnyard_schedule::{Event as ScheduleEvent, MachineId};
use std::collections::{BTreeMap, HashSet};

/// The keys of kept work on each machine, as its worker said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    keys: BTreeMap<MachineId, HashSet<String>>,
}

impl Coordinator {
    /// The use of kept work by a build of this package on a worker; absent if it neither uses nor leaves any.
    pub(crate) fn keep_order(&self, id: PackageId, worker: &str) -> Option<KeepOrder> {
        let package = &self.packages[id.index()];
        let to_build = package.to_build.as_ref().filter(|_| package.round.is_none())?;
        let keep = to_build.order.keep.as_ref()?;
        Some(keep.in_pool(&self.standing(worker).pool, to_build.reason == Reason::Forced))
    }

    /// Notes the kept work of a machine that joins. A lie makes its own builds take longer than expected.
    pub(crate) fn note_kept(&mut self, machine: MachineId, keys: &[String], actions: &mut Vec<Action>) {
        let valid = keys.iter().take(Hello::KEPT_MAX).filter(|key| Sha256Hex::parse(key).is_ok());
        let valid: HashSet<String> = valid.cloned().collect();
        if valid.is_empty() && self.kept.keys.remove(&machine).is_none() {
            return;
        }
        // Even if they are the same as before: the worker may have joined another pool.
        if !valid.is_empty() {
            self.kept.keys.insert(machine, valid);
        }
        for id in self.graph.clone().packages() {
            self.say_kept(id, actions);
        }
    }

    /// Says where kept work is that the next build of a prepared package can begin with.
    pub(crate) fn say_kept(&mut self, id: PackageId, actions: &mut Vec<Action>) {
        let package = &self.packages[id.index()];
        let keeps = package.to_build.as_ref().is_some_and(|to_build| to_build.order.keep.is_some());
        if !keeps || package.state.is_final() {
            return;
        }
        let has_kept = |(machine, keys): &(&MachineId, &HashSet<String>)| {
            let keep = self.keep_order(id, &self.seats.get(**machine).worker);
            keep.is_some_and(|keep| !keep.starts_afresh && keys.contains(&keep.key))
        };
        let machines = self.kept.keys.iter().filter(has_kept).map(|(machine, _)| *machine).collect();
        self.schedule(ScheduleEvent::Kept { package: id, machines }, actions);
    }
}
