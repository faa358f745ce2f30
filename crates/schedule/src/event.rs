//! What the scheduler is told, and what it says.

use crate::machine::{Machine, MachineId};
use crate::work::Work;
use kilnyard_model::graph::PackageId;
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The run begins.
    Begin,
    /// A build can use this many cores from now on: one in a serial stage, many in a parallel one.
    Wants {
        /// The package.
        package: PackageId,
        /// The cores, at least 1.
        cores: u32,
    },
    /// A build ended.
    Ended {
        /// The package.
        package: PackageId,
        /// How.
        outcome: Outcome,
    },
    /// A package is not to be started yet: it is being prepared, or a person holds it back.
    Hold(PackageId),
    /// A held package may be started in a moment: until [`COMING_SECONDS_MAX`] later nothing that comes after it is
    /// started.
    Coming(PackageId),
    /// It may be started from now on.
    Release(PackageId),
    /// A package is not to be built, since its outputs are there.
    There(PackageId),
    /// A package is not to be built, and so nothing that waits for it is.
    Gone(PackageId),
    /// A package, and all that it waits for, comes before all others.
    Bump(PackageId),
    /// A failed package is to be tried again.
    Retry(PackageId),
    /// Another estimate of a package.
    Estimated {
        /// The package.
        package: PackageId,
        /// What it takes.
        work: Work,
    },
    /// A machine takes part from now on: a new one, numbered after all that there were, or one that is back.
    Joined {
        /// Its number.
        machine: MachineId,
        /// What it has.
        about: Machine,
    },
    /// A machine takes nothing more, and keeps what is being built there.
    Closed(MachineId),
    /// A machine that was closed takes builds again.
    Opened(MachineId),
    /// A machine takes part no more. What was being built there has ended before.
    Left(MachineId),
    /// A package is being built there already: the scheduler of before started it. With its files in memory, where they
    /// fit.
    Running {
        /// The package.
        package: PackageId,
        /// Where.
        machine: MachineId,
    },
    /// How a machine is off for memory.
    Pressure {
        /// The machine.
        machine: MachineId,
        /// How it is off.
        pressure: Pressure,
    },
    /// Nothing more is to be started.
    Stop,
    /// Time went by.
    Tick,
}

/// A free core waits for a package that comes before all ready ones and is coming, but no longer than so: what is on
/// this machine already takes a moment, and a download is not waited for.
pub const COMING_SECONDS_MAX: f64 = 3.0;

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Its outputs are there.
    Built {
        /// What it took in core-seconds.
        core_seconds: f64,
    },
    /// It failed, and so nothing that waits for it will be built.
    Failed,
    /// It was ended for want of memory. It is tried once more, alone on a machine.
    OutOfMemory,
    /// It says nothing of the package: it was cancelled, or its worker was lost. The package is ready again, if
    /// it is not held back.
    Lost,
}

/// Whether processes of a machine stall for want of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// Hardly.
    #[default]
    Low,
    /// They do: nothing more is started there unless it is idle.
    High,
}

/// Where the work folder of a build lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// In memory, which is faster and counts as memory.
    Memory,
    /// On disk, since it would not fit into the memory of the machine.
    Disk,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Start a build.
    Start {
        /// The package.
        package: PackageId,
        /// Where.
        machine: MachineId,
        /// With how many cores.
        cores: u32,
        /// Where its work folder lies.
        files: Files,
    },
    /// From now on a build has this many cores. Of one event, those who lose cores come first.
    Cores {
        /// The package.
        package: PackageId,
        /// The cores, at least 1.
        cores: u32,
    },
}

/// Decides what is built next: the scheduler, or one that it is compared with.
pub trait Policy {
    /// Takes one event at this time, which never goes back, and appends what is to be done.
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>);
}
