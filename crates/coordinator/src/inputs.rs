//! What packages need, and how fast machines get it: for the scheduler, which counts that time, and thereby prefers
//! machines that have it already.
//!
//! The rate of a machine is measured by the time from a lease to the first stage of its build. That includes the time until
//! a core is free, so that a rate may be too low, and never too high.

use crate::seats::SPEEDS;
use crate::{Action, Coordinator};
use kilnyard_model::graph::PackageId;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_protocol::Hello;
use kilnyard_schedule::{Event as ScheduleEvent, MachineId, Needed};
use kilnyard_store::Number;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The rate of a machine before it is measured, in bytes a second: three quarters of a gigabit Ethernet.
const RATE: f64 = 90e6;
/// A transfer of fewer bytes says nothing about the rate: 8 MiB.
const MEASURED_BYTES_MIN: u64 = 8 << 20;
/// The weight of a new measurement.
const WEIGHT: f64 = 0.5;

/// What runs have measured of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The speed of its cores, relative to the cores that estimates are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// How fast inputs reach it, in bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// The numbers of artifacts, by hash.
    numbers: HashMap<String, u32>,
    /// What machines have from earlier runs, by hash.
    warm: BTreeMap<MachineId, HashSet<String>>,
    /// The measured rates of workers.
    rates: BTreeMap<String, f64>,
    /// The speeds that earlier runs measured.
    speeds: BTreeMap<String, f64>,
}

impl Inputs {
    /// The number of an artifact, and whether it is a new one.
    fn number(&mut self, sha256: &str) -> (u32, bool) {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(sha256.to_owned()).or_insert(next);
        (number, number == next)
    }
}

impl Coordinator {
    /// Begins with what earlier runs measured of workers, by name.
    pub fn with_measured(mut self, measured: &BTreeMap<String, Measured>) -> Coordinator {
        let valid = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0);
        for (worker, measured) in measured {
            if let Some(rate) = valid(measured.bytes_per_second) {
                self.inputs.rates.insert(worker.clone(), rate);
            }
            if let Some(speed) = valid(measured.speed) {
                self.inputs.speeds.insert(worker.clone(), speed.clamp(*SPEEDS.start(), *SPEEDS.end()));
            }
        }
        self
    }

    /// What this run has measured of workers on other machines, and earlier ones.
    pub fn measured(&self) -> BTreeMap<String, Measured> {
        let mut all: BTreeMap<String, Measured> = BTreeMap::new();
        for (worker, rate) in &self.inputs.rates {
            all.entry(worker.clone()).or_default().bytes_per_second = Some(*rate);
        }
        for (worker, speed) in &self.inputs.speeds {
            all.entry(worker.clone()).or_default().speed = Some(*speed);
        }
        for machine in self.seats.in_session() {
            let worker = &self.seats.get(machine).worker;
            if let Some(speed) = self.scheduler.measured_speed(machine).filter(|_| !self.is_own(worker)) {
                all.entry(worker.clone()).or_default().speed = Some(speed);
            }
        }
        all
    }

    /// The speed of a worker that joins, as earlier runs measured it.
    pub(crate) fn speed_of(&self, worker: &str, declared: f64) -> f64 {
        self.inputs.speeds.get(worker).copied().unwrap_or(declared)
    }

    /// Says what a prepared package needs, if any machine may lack it.
    pub(crate) fn say_needs(&mut self, id: PackageId, actions: &mut Vec<Action>) {
        let has_others = self.seats.in_session().into_iter().any(|machine| !self.is_own_machine(machine));
        let Some(to_build) = self.packages[id.index()].to_build.clone().filter(|_| has_others) else {
            return;
        };
        let root = &to_build.order.root;
        let layers = root.layers.iter().map(|layer| (layer.sha256.as_str(), layer.size_bytes));
        let inputs = root.inputs.iter().map(|input| (input.sha256.as_str(), input.size_bytes));
        let mut needed = Vec::new();
        for (sha256, bytes) in layers.chain(inputs) {
            let (artifact, is_new) = self.inputs.number(sha256);
            if is_new {
                self.say_who_has(sha256, artifact, actions);
            }
            needed.push(Needed { artifact, bytes });
        }
        self.schedule(ScheduleEvent::Needs { package: id, inputs: needed }, actions);
    }

    /// Says how fast a machine gets inputs. The coordinator's own has them.
    pub(crate) fn say_rate(&mut self, machine: MachineId, actions: &mut Vec<Action>) {
        if !self.is_own_machine(machine) {
            let worker = &self.seats.get(machine).worker;
            let bytes_per_second = self.inputs.rates.get(worker).copied().unwrap_or(RATE);
            self.schedule(ScheduleEvent::Rate { machine, bytes_per_second }, actions);
        }
    }

    /// Says what a machine has from earlier runs, as its worker says. A lie makes its own builds wait.
    pub(crate) fn say_warm(&mut self, machine: MachineId, warm: &[String], actions: &mut Vec<Action>) {
        if self.is_own_machine(machine) {
            return;
        }
        let valid = warm.iter().take(Hello::WARM_MAX).filter(|sha256| Sha256Hex::parse(sha256).is_ok());
        let warm: HashSet<String> = valid.cloned().collect();
        // What no package needs gets no number.
        let artifacts: Vec<u32> =
            warm.iter().filter_map(|sha256| self.inputs.numbers.get(sha256).copied()).collect();
        self.inputs.warm.insert(machine, warm);
        if !artifacts.is_empty() {
            self.schedule(ScheduleEvent::Has { machine, artifacts }, actions);
        }
    }

    /// Says which machines have had an artifact since before it was needed.
    fn say_who_has(&mut self, sha256: &str, artifact: u32, actions: &mut Vec<Action>) {
        let warm = self.inputs.warm.iter().filter(|(_, warm)| warm.contains(sha256));
        let machines: Vec<MachineId> = warm.map(|(machine, _)| *machine).collect();
        for machine in machines {
            self.schedule(ScheduleEvent::Has { machine, artifacts: vec![artifact] }, actions);
        }
    }

    /// Measures the rate of the machine on which a build begins its first stage.
    pub(crate) fn measure_rate(&mut self, build: Number, actions: &mut Vec<Action>) {
        let now_seconds = self.now_seconds;
        let Some(lease) = self.leases.get_mut(&build) else { return };
        let (package, seconds) = (lease.package, now_seconds - lease.granted_seconds);
        let is_first = !std::mem::replace(&mut lease.has_begun, true);
        let Some(machine) = lease.machine.filter(|_| is_first) else { return };
        let bytes = self.scheduler.missing_bytes_of(machine, package);
        if bytes < MEASURED_BYTES_MIN || seconds <= 0.0 {
            return;
        }
        let worker = self.seats.get(machine).worker.clone();
        let rate = self.inputs.rates.entry(worker).or_insert(RATE);
        *rate += WEIGHT * (bytes as f64 / seconds - *rate);
        self.say_rate(machine, actions);
    }

    fn is_own_machine(&self, machine: MachineId) -> bool {
        self.is_own(&self.seats.get(machine).worker)
    }
}
