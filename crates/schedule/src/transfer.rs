//! How long a package waits for its inputs on a machine that does not have them.
//!
//! Inputs are artifacts: base roots and packages of dependencies. A machine that has built something with an artifact has
//! it, and its transfer costs nothing there again. A machine with the warm set is preferred by that, as far as it is where
//! the package ends first.
//!
//! Known downside: transfers of several builds at once share a connection, and are estimated as if they did not.

use crate::machine::MachineId;
use kilnyard_model::graph::PackageId;
use std::collections::HashMap;

/// An artifact, numbered by the caller from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Its number.
    pub artifact: u32,
    /// Its size.
    pub bytes: u64,
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers {
    needs: HashMap<PackageId, Vec<Needed>>,
    machines: Vec<Holdings>,
}

/// What a machine has.
#[derive(Clone, Debug, Default)]
struct Holdings {
    /// The speed at which it receives inputs, in bytes a second. None if they are on it already.
    rate: Option<f64>,
    /// A bit for each artifact.
    has: Vec<u64>,
}

impl Holdings {
    fn has(&self, artifact: u32) -> bool {
        self.has.get(artifact as usize / 64).is_some_and(|word| word >> (artifact % 64) & 1 == 1)
    }

    fn add(&mut self, artifact: u32) {
        let at = artifact as usize / 64;
        if self.has.len() <= at {
            self.has.resize(at + 1, 0);
        }
        self.has[at] |= 1 << (artifact % 64);
    }
}

impl Transfers {
    /// Sets what a package needs.
    pub fn set_needs(&mut self, package: PackageId, needs: Vec<Needed>) {
        self.needs.insert(package, needs);
    }

    /// Sets the rate of a machine. What it has stays.
    pub fn set_rate(&mut self, machine: MachineId, rate: Option<f64>) {
        if self.machines.len() <= machine.index() {
            self.machines.resize_with(machine.index() + 1, Holdings::default);
        }
        self.machines[machine.index()].rate = rate;
    }

    /// The bytes that a machine lacks for a package.
    pub fn missing_bytes(&self, package: PackageId, machine: MachineId) -> u64 {
        let Some(holdings) = self.machines.get(machine.index()).filter(|holdings| holdings.rate.is_some())
        else {
            return 0;
        };
        let needs = self.needs.get(&package).into_iter().flatten();
        needs.filter(|needed| !holdings.has(needed.artifact)).map(|needed| needed.bytes).sum()
    }

    /// How long the inputs of a package take to a machine, in seconds.
    pub fn seconds(&self, package: PackageId, machine: MachineId) -> f64 {
        let rate = self.machines.get(machine.index()).and_then(|holdings| holdings.rate);
        rate.map_or(0.0, |rate| self.missing_bytes(package, machine) as f64 / rate)
    }

    /// A machine has these artifacts already.
    pub fn add(&mut self, machine: MachineId, artifacts: &[u32]) {
        if let Some(holdings) = self.machines.get_mut(machine.index()) {
            artifacts.iter().for_each(|artifact| holdings.add(*artifact));
        }
    }

    /// A package starts on a machine or is announced to it, which has its inputs from now on.
    pub fn begin(&mut self, package: PackageId, machine: MachineId) {
        let Some(holdings) =
            self.machines.get_mut(machine.index()).filter(|holdings| holdings.rate.is_some())
        else {
            return;
        };
        self.needs.get(&package).into_iter().flatten().for_each(|needed| holdings.add(needed.artifact));
    }

    /// A package is built or given up.
    pub fn end(&mut self, package: PackageId) {
        self.needs.remove(&package);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_transferred_once_to_each_machine() {
        let (package, other) = (PackageId(0), PackageId(1));
        let (near, far) = (MachineId(0), MachineId(1));
        let needed = |artifact| Needed { artifact, bytes: 500 };
        let mut transfers = Transfers::default();
        transfers.set_rate(far, Some(100.0));
        transfers.set_needs(package, vec![needed(0), needed(200)]);
        transfers.set_needs(other, vec![needed(200), needed(3)]);
        assert_eq!((transfers.seconds(package, near), transfers.seconds(package, far)), (0.0, 10.0));
        transfers.begin(package, far);
        assert_eq!((transfers.seconds(package, far), transfers.seconds(other, far)), (0.0, 5.0));
        // It stays warm when it joins again.
        transfers.set_rate(far, Some(50.0));
        assert_eq!((transfers.seconds(other, far), transfers.missing_bytes(other, far)), (10.0, 500));
        transfers.add(far, &[3]);
        assert_eq!(transfers.seconds(other, far), 0.0);
        transfers.end(package);
        assert_eq!(transfers.missing_bytes(package, far), 0);
    }
}
