//! Expected cost of builds: from the last builds of a package, from imported times, or from a prior.

use crate::error::Result;
use crate::yard::{Yard, store_error};
use kilnyard_model::order::MachineTerms;
use kilnyard_schedule::work::{StageTime, memory_after_exhaustion_bytes};
use kilnyard_schedule::{Basis, Machine, Measured, Step, Work, estimate};
use kilnyard_store::{BuildRow, Measurement, Store};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory assumed for a package without measurements. Large builds need more, but seldom several at once.
const MEMORY_PRIOR_BYTES: u64 = 1 << 30;
/// Bytes that a build writes for each byte of its packed sources. Unpacked sources are about 5 times as large;
/// with objects, programs and packages it is about 15 times.
const DISK_PRIOR_OF_SOURCE: u64 = 15;

/// Measured and imported times of a yard's packages, from its store.
pub struct Estimates {
    measured: HashMap<String, Vec<Measured>>,
    /// The traps a second of the packages that have any.
    traps: Arc<HashMap<String, f64>>,
    /// Wall and CPU seconds of builds imported from other builders.
    imported: HashMap<String, (f64, f64)>,
    machine: Machine,
    /// Whether work folders may be in memory.
    works_in_memory: bool,
    /// Whether everything that a build writes stays in memory.
    is_in_memory: bool,
}

impl Estimates {
    /// Reads the measurements from the store, for builds of this yard on this machine.
    pub fn of(yard: &Yard, store: &dyn Store, machine: Machine) -> Result<Estimates> {
        let measured = store.measured().map_err(store_error)?;
        let last = measured.iter().filter_map(|(package, builds)| Some((package.clone(), builds.last()?)));
        let traps = last.map(|(package, last)| (package, last.traps_per_second));
        let traps = traps.filter(|(_, traps)| *traps > 0.0).collect::<HashMap<_, _>>().into();
        let measured = measured
            .into_iter()
            .map(|(package, builds)| (package, builds.iter().map(measured_of).collect()))
            .collect();
        let imported = store.durations().map_err(store_error)?;
        let imported = imported.into_iter().map(|(package, wall, cpu)| (package, (wall, cpu))).collect();
        let (works_in_memory, is_in_memory) =
            (yard.config.build.work_in_memory, yard.config.roots.is_in_memory());
        Ok(Estimates { measured, traps, imported, machine, works_in_memory, is_in_memory })
    }

    /// Estimates the next build of a package. `prior_seconds` and the size of its packed sources count if nothing was
    /// recorded.
    pub fn work(&self, package: &str, source_bytes: u64, prior_seconds: f64) -> Work {
        let prior = || Work::serial(prior_seconds, Basis::Prior);
        let measured = self.measured.get(package).map_or(&[][..], Vec::as_slice);
        let mut work = self.known(package).unwrap_or_else(prior);
        if self.is_in_memory {
            work.files_bytes += std::mem::take(&mut work.disk_bytes);
        } else if !self.works_in_memory {
            work.disk_bytes += std::mem::take(&mut work.files_bytes);
        }
        if work.memory_bytes == 0 {
            work.memory_bytes = MEMORY_PRIOR_BYTES;
        }
        if work.disk_bytes == 0 && work.files_bytes == 0 {
            let bytes = source_bytes.saturating_mul(DISK_PRIOR_OF_SOURCE);
            *(if self.is_in_memory { &mut work.files_bytes } else { &mut work.disk_bytes }) = bytes;
        }
        work.memory_bytes = work.memory_bytes.max(memory_after_exhaustion_bytes(measured));
        // A build that needs more than the machine has gets all of it, and runs alone.
        work.memory_bytes = work.memory_bytes.min(self.machine.memory_bytes.unwrap_or(u64::MAX));
        // No build takes zero time, and the scheduler needs a positive one.
        if work.core_seconds() <= 0.0 {
            work.steps = vec![Step::Serial(SECONDS_MIN)];
        }
        work
    }

    /// A build in a virtual machine, if it has one: the guest's kernel fills all of its memory with what it has read.
    pub fn work_in(&self, machine: Option<MachineTerms>, work: Work) -> Work {
        let machine_bytes = machine.map_or(0, |terms| terms.memory_bytes.saturating_add(EMULATOR_BYTES));
        let memory_bytes = work.memory_bytes.max(machine_bytes);
        Work { memory_bytes: memory_bytes.min(self.machine.memory_bytes.unwrap_or(u64::MAX)), ..work }
    }

    /// How many traps a second the last build of a package had that stalled other cores.
    pub fn traps_per_second(&self, package: &str) -> f64 {
        self.traps.get(package).copied().unwrap_or(0.0)
    }

    /// The same of all packages that have any.
    pub fn traps(&self) -> Arc<HashMap<String, f64>> {
        self.traps.clone()
    }

    /// The estimate from builds of the package, here or imported. Absent if there are none.
    pub fn known(&self, package: &str) -> Option<Work> {
        let measured = self.measured.get(package).map_or(&[][..], Vec::as_slice);
        estimate(measured).or_else(|| self.imported_work(package))
    }

    fn imported_work(&self, package: &str) -> Option<Work> {
        let (wall_seconds, cpu_seconds) = *self.imported.get(package)?;
        let stage = StageTime { wall_seconds, cpu_seconds, parallel_seconds: None };
        estimate(&[Measured { jobs: self.machine.cores, stages: vec![stage], ..Measured::default() }])
    }
}

/// What the emulator and the servers of a virtual machine need beyond the machine's memory.
const EMULATOR_BYTES: u64 = 128 << 20;
/// The shortest estimate of a build.
const SECONDS_MIN: f64 = 0.1;

/// What a finished build took, whatever its outcome.
pub fn taken(build: &BuildRow, cores: u32) -> Work {
    let measured = measured_of(&Measurement::of(&build.stages, cores, false));
    estimate(&[measured]).unwrap_or_default()
}

fn measured_of(build: &Measurement) -> Measured {
    let stages = build.stages.iter().map(|stage| StageTime {
        wall_seconds: stage.wall_seconds,
        cpu_seconds: stage.cpu_seconds,
        parallel_seconds: stage.parallel_seconds,
    });
    Measured {
        // A build may use all cores of its machine.
        jobs: build.cores,
        stages: stages.collect(),
        memory_peak_bytes: build.memory_peak_bytes,
        files_bytes: build.work_bytes,
        disk_bytes: build.disk_bytes,
        is_out_of_memory: build.is_out_of_memory,
        has_kept: build.has_kept,
    }
}
