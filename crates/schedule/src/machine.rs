//! What builds run on.

/// A machine of a run, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub u32);

impl MachineId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
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
    /// A machine of so many cores of speed 1, without a bound of memory or disk.
    pub fn of_cores(cores: u32) -> Machine {
        Machine { cores, speed: 1.0, memory_bytes: None, disk_bytes: None }
    }
}
