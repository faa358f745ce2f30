//! Which machines have kept work of a package: folders that an earlier build left there, with which the next one takes
//! less time.
//!
//! Known downside: kept work may turn out not to fit when the build begins. Then it takes as long as without.

use crate::machine::{Door, MachineId};
use kilnyard_model::graph::PackageId;
use std::collections::HashMap;

/// The share of the work that is expected to be left with kept work, before any such build was recorded.
pub(crate) const SHARE: f64 = 0.5;

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    machines: HashMap<PackageId, Vec<MachineId>>,
}

impl Kept {
    /// Replaces the machines that have kept work of a package.
    pub fn set(&mut self, package: PackageId, machines: Vec<MachineId>) {
        if machines.is_empty() {
            self.machines.remove(&package);
        } else {
            self.machines.insert(package, machines);
        }
    }

    /// Whether a machine has kept work of a package.
    pub fn is_on(&self, machine: MachineId, package: PackageId) -> bool {
        self.of(package).contains(&machine)
    }

    /// Whether any present machine has kept work of a package.
    pub fn is_present(&self, package: PackageId, doors: &[Door]) -> bool {
        let is_there =
            |machine: &MachineId| doors.get(machine.index()).is_some_and(|door| *door != Door::Gone);
        self.of(package).iter().any(is_there)
    }

    fn of(&self, package: PackageId) -> &[MachineId] {
        // Most runs have none.
        if self.machines.is_empty() { &[] } else { self.machines.get(&package).map_or(&[], Vec::as_slice) }
    }
}
