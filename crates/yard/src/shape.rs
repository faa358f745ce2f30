//! The resources that this machine has for builds, and the configured limits.

use crate::config::Jobserver;
use crate::yard::Yard;
use kilnyard_process::pressure;
use kilnyard_schedule::{Limits, Machine, Sharing};
use kilnyard_worker::JobserverStyle;

/// Share of the free disk space that builds leave for logs, packages and the store, as a divisor.
const DISK_KEPT: u64 = 10;

/// A machine and its configured limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// This machine, with the memory and disk space that builds can have now.
    pub machine: Machine,
    /// The limits from the configuration.
    pub limits: Limits,
    /// The job count for build systems that need a fixed one.
    pub jobs: u32,
}

impl Shape {
    /// The shape of this machine for this yard, as it is now.
    pub fn of(yard: &Yard) -> Shape {
        let build = &yard.config.build;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let memory_bytes = [build.memory.map(|size| size.0), pressure::available_bytes()];
        let room = rustix::fs::statvfs(&yard.folder).ok().map(|facts| facts.f_bavail * facts.f_frsize);
        let machine = Machine {
            memory_bytes: memory_bytes.into_iter().flatten().min(),
            disk_bytes: room.map(|bytes| bytes - bytes / DISK_KEPT),
            ..Machine::of_cores(cores)
        };
        let limits = Limits { slots_max: build.slots, jobs_max: build.jobs, sharing: Sharing::ByRank };
        Shape { machine, limits, jobs: build.jobs.unwrap_or(cores).max(1) }
    }
}

impl Shape {
    /// Maximum number of parallel builds.
    pub fn slots(&self) -> u32 {
        self.machine.oversubscribed().cores.min(self.limits.slots_max.unwrap_or(u32::MAX))
    }
}

/// How builds of this yard find their jobserver.
pub fn jobserver_style(yard: &Yard) -> JobserverStyle {
    match yard.config.build.jobserver {
        Jobserver::Pipe => JobserverStyle::Pipe,
        Jobserver::Fifo => JobserverStyle::Fifo,
        Jobserver::Off => JobserverStyle::Off,
    }
}
