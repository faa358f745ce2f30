//! What a farm has and one machine has not: messages and transfers that take time, machines that come and go.

use super::Built;
use crate::event::Event;
use crate::machine::{Machine, MachineId};
use crate::transfer::{Needed, Transfers};
use kilnyard_model::graph::PackageId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What builds need on their machines, and how it gets there. A machine keeps what reaches it.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// What each package needs.
    pub needs: Vec<Vec<Needed>>,
    /// How fast inputs reach each machine, in bytes a second. Several builds of one machine do not share this rate.
    pub bytes_per_second: f64,
    /// The artifacts that machines have at the beginning.
    pub warm: Vec<(MachineId, Vec<u32>)>,
    /// Whether the policy knows what packages need and machines have.
    pub are_known: bool,
}

impl Inputs {
    /// What machines have after a run that began with this.
    pub fn after(&self, builds: &[Built]) -> Vec<(MachineId, Vec<u32>)> {
        let mut all: BTreeMap<MachineId, BTreeSet<u32>> = BTreeMap::new();
        for (machine, artifacts) in &self.warm {
            all.entry(*machine).or_default().extend(artifacts);
        }
        for built in builds {
            let needs = self.needs.get(built.package.index()).into_iter().flatten();
            all.entry(built.machine).or_default().extend(needs.map(|needed| needed.artifact));
        }
        all.into_iter().map(|(machine, artifacts)| (machine, artifacts.into_iter().collect())).collect()
    }

    /// What each machine has and lacks.
    pub(super) fn transfers(&self, machines: &[Machine]) -> Transfers {
        let mut transfers = Transfers::default();
        for (index, needs) in self.needs.iter().enumerate() {
            transfers.set_needs(PackageId(index as u32), needs.clone());
        }
        for index in 0..machines.len() as u32 {
            transfers.set_rate(MachineId(index), Some(self.bytes_per_second));
        }
        for (machine, artifacts) in &self.warm {
            transfers.add(*machine, artifacts);
        }
        transfers
    }

    /// What the policy is informed of, if it is.
    pub(super) fn events(&self, machines: &[Machine]) -> Vec<Event> {
        if !self.are_known {
            return Vec::new();
        }
        let machines = (0..machines.len() as u32).map(MachineId);
        let bytes_per_second = self.bytes_per_second;
        let rates = machines.map(|machine| Event::Rate { machine, bytes_per_second });
        let needs = self.needs.iter().enumerate();
        let needs = needs
            .map(|(index, inputs)| Event::Needs { package: PackageId(index as u32), inputs: inputs.clone() });
        let warm = self.warm.iter();
        let warm =
            warm.map(|(machine, artifacts)| Event::Has { machine: *machine, artifacts: artifacts.clone() });
        rates.chain(needs).chain(warm).collect()
    }
}

/// What a farm has and one machine has not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The time of a message, in seconds: from a decision to the start, and from the end to the next decision.
    pub delay_seconds: f64,
    /// The time in which the inputs of a build reach its machine, in seconds. The build has a slot meanwhile, and no core
    /// works for it.
    pub transfer_seconds: f64,
    /// What builds need on their machines. By default, everything is on each.
    pub inputs: Option<Inputs>,
    /// Machines that join after a time, in seconds.
    pub joins: Vec<(MachineId, f64)>,
    /// Machines that are not there at the beginning, and join when a [`Farm`](super::Farm) decides so.
    pub absent: Vec<MachineId>,
    /// Machines that are lost after a time, in seconds. What they build is built again elsewhere.
    pub losses: Vec<(MachineId, f64)>,
    /// Kept work of packages, each on one machine, where their builds take [`Work::share_with_kept`](crate::Work::share_with_kept) of their work.
    pub kept: HashMap<PackageId, MachineId>,
    /// The traps a second of packages whose builds stall their machines, which the policy does not know.
    pub traps: HashMap<PackageId, f64>,
    /// Whether the policy is not informed of kept work.
    pub is_kept_secret: bool,
}
