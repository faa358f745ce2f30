//! The inputs and outputs of the scheduler.

use crate::machine::{Classes, Machine, MachineId};
use crate::transfer::Needed;
use crate::work::Work;
use kilnyard_model::graph::PackageId;
use serde::{Deserialize, Serialize};

/// An input of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The run begins.
    Begin,
    /// The number of cores that a build can use has changed: one in a serial stage, many in a parallel one.
    Wants {
        /// The package.
        package: PackageId,
        /// The number of cores, at least 1.
        cores: u32,
    },
    /// A build has finished, and needs no core any more, but its outputs are not available before [`Event::Ended`].
    Freed {
        /// The package, which is being built.
        package: PackageId,
        /// The work it took, in core-seconds.
        core_seconds: f64,
    },
    /// A build ended.
    Ended {
        /// The package.
        package: PackageId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A package must not start yet: it is being prepared, or the user holds it back.
    Hold(PackageId),
    /// A held package will be released soon: until [`EXPECTED_SECONDS_MAX`] later, no package that comes after it
    /// starts.
    Expected(PackageId),
    /// A held package may start from now on.
    Release(PackageId),
    /// A package need not be built, because its outputs exist already.
    Available(PackageId),
    /// A package will not be built, and neither will the packages that wait for it.
    Unavailable(PackageId),
    /// A package and all its dependencies come before all others.
    Bump(PackageId),
    /// A failed package should be tried again.
    Retry(PackageId),
    /// From now on, a package starts on machines of these classes only.
    Confine {
        /// The package.
        package: PackageId,
        /// [`Classes::ALL`] ends the confinement.
        to: Classes,
    },
    /// The estimate of a package has changed.
    Estimated {
        /// A package of the graph.
        package: PackageId,
        /// The new estimate.
        work: Work,
    },
    /// The inputs of a package, for machines that do not have all.
    Needs {
        /// A package that is not built yet.
        package: PackageId,
        /// Replaces what it needed before.
        inputs: Vec<Needed>,
    },
    /// Inputs that a machine has.
    Has {
        /// A machine with a [`Event::Rate`].
        machine: MachineId,
        /// The numbers of artifacts.
        artifacts: Vec<u32>,
    },
    /// A machine fetches the inputs of a package, which it may get next.
    Announced {
        /// A ready package.
        package: PackageId,
        /// A machine that takes part.
        machine: MachineId,
    },
    /// How fast a machine receives inputs. Without this event, it has all that it needs.
    Rate {
        /// A machine that takes part.
        machine: MachineId,
        /// In bytes a second; above 0.
        bytes_per_second: f64,
    },
    /// The machines that have kept work of a package, whether they are present or not.
    Kept {
        /// A package that has not started.
        package: PackageId,
        /// Replaces those that had it before.
        machines: Vec<MachineId>,
    },
    /// A machine joins: either a new one, with the next number, or one that has returned.
    Joined {
        /// The next number, or that of a machine that has left.
        machine: MachineId,
        /// Cores, speed and memory, which may differ from those it had before.
        about: Machine,
        /// Whether it takes builds from now on; otherwise it is closed.
        is_open: bool,
    },
    /// A machine takes no further builds, but keeps those it has.
    Closed(MachineId),
    /// A closed machine takes builds again.
    Opened(MachineId),
    /// The cores of a machine that builds may use have changed: other runs use the rest. Builds that run keep one each.
    Cores {
        /// A machine that takes part.
        machine: MachineId,
        /// At least 1.
        cores: u32,
    },
    /// A machine leaves. Its builds have ended before.
    Left(MachineId),
    /// A package is already being built, started by an earlier scheduler. Its files are in memory if they fit.
    Running {
        /// The package.
        package: PackageId,
        /// A machine that takes part.
        machine: MachineId,
    },
    /// The memory pressure of a machine has changed.
    Pressure {
        /// A machine that takes part.
        machine: MachineId,
        /// Stays in effect until the next event of this kind.
        pressure: Pressure,
    },
    /// Nothing further may start.
    Stop,
    /// Time has passed.
    Tick,
}

/// How long a free core waits for a coming package that precedes all ready ones. Preparing a package that is already
/// on this machine takes a moment; downloads are not waited for.
pub const EXPECTED_SECONDS_MAX: f64 = 3.0;

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Its outputs are available.
    Built {
        /// The work it took, in core-seconds.
        core_seconds: f64,
    },
    /// It failed, so the packages that wait for it will not be built.
    Failed,
    /// It ran out of memory. It is tried once more, alone on a machine.
    OutOfMemory,
    /// It ended without a verdict on the package: it was cancelled, or its worker was lost. Unless it is held, the
    /// package is ready again.
    Lost,
}

/// Whether processes of a machine stall for lack of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// Hardly at all.
    #[default]
    Low,
    /// They stall: nothing further starts on the machine unless it is idle.
    High,
}

/// Where the work folder of a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// In memory, which is faster and counts as memory.
    Memory,
    /// On disk, because it would not fit into the machine's memory.
    Disk,
}

/// A decision of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Start a build.
    Start {
        /// A ready package.
        package: PackageId,
        /// A machine that takes builds and has a free slot.
        machine: MachineId,
        /// The number of cores at the start, at least 1.
        cores: u32,
        /// Where its work folder is.
        files: Files,
    },
    /// Change the cores of a build. Among the actions for one event, reductions come first.
    Cores {
        /// A running package.
        package: PackageId,
        /// The number of cores, at least 1.
        cores: u32,
    },
}

/// Decides what to build next: the scheduler, or another policy for comparison.
pub trait Policy {
    /// Handles an event and appends the resulting actions. The time never goes back.
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>);
}
