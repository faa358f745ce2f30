//! What builds run on.

/// One core more for this many cores, and at least one: on two cores, two small serial builds left 11 % of the time unused, and
/// three of them 2 %.
const CORES_PER_FURTHER: u32 = 8;

/// A machine of a run, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub u32);

impl MachineId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Whether a machine takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// It takes builds.
    Open,
    /// It takes no more of them.
    Closed,
    /// It is not there.
    Gone,
}

/// What one machine has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Its cores; at least 1.
    pub cores: u32,
    /// How fast a core is beside the one that estimates were taken on, which has 1.
    pub speed: f64,
    /// Memory that builds may have; not bounded where it is not known.
    pub memory_bytes: Option<u64>,
    /// Room on its disk that builds may have; not bounded where it is not known.
    pub disk_bytes: Option<u64>,
}

impl Machine {
    /// A machine with this many cores of speed 1, without a bound of memory or disk.
    pub fn of_cores(cores: u32) -> Machine {
        Machine { cores, speed: 1.0, memory_bytes: None, disk_bytes: None }
    }

    /// The machine as its scheduler has to see it so that real builds keep its cores busy, although they wait for disks,
    /// for memory and for processes to start: with some cores that it does not have. Who gets those comes last in rank, and
    /// runs when an earlier one waits.
    pub fn oversubscribed(self) -> Machine {
        Machine { cores: self.cores + (self.cores / CORES_PER_FURTHER).max(1), ..self }
    }
}
