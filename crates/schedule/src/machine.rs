//! The machines that builds run on.

/// One extra core for this many cores, but at least one: on two cores, two small serial builds left 11 % of the time
/// unused, and three left 2 %.
const CORES_PER_FURTHER: u32 = 8;

/// The number of a machine of a run, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub u32);

impl MachineId {
    /// The number, as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The class of a machine, from 0 to 63. Packages may be confined to machines of some classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(pub u8);

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(u64);

impl Classes {
    /// All classes, also those of machines that join later.
    pub const ALL: Classes = Classes(u64::MAX);
    /// No class.
    pub const NONE: Classes = Classes(0);

    /// The set with a further class.
    pub fn with(self, class: Class) -> Classes {
        Classes(self.0 | 1 << (class.0 & 63))
    }

    /// The set without a class.
    pub fn without(self, class: Class) -> Classes {
        Classes(self.0 & !(1 << (class.0 & 63)))
    }

    /// Whether a class is in the set.
    pub fn contains(self, class: Class) -> bool {
        self.0 >> (class.0 & 63) & 1 == 1
    }
}

/// Whether a machine takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// It takes builds.
    Open,
    /// It takes no further builds.
    Closed,
    /// It has left, and may join again.
    Gone,
}

/// The capacity of one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Its cores; at least 1.
    pub cores: u32,
    /// How many of these do not exist; see [`Machine::oversubscribed`].
    pub further: u32,
    /// Its class.
    pub class: Class,
    /// The speed of a core, relative to the machine that the estimates come from, which has speed 1.
    pub speed: f64,
    /// Memory available to builds; unlimited when absent.
    pub memory_bytes: Option<u64>,
    /// Disk space available to builds; unlimited when absent.
    pub disk_bytes: Option<u64>,
}

impl Machine {
    /// A machine with this many cores of speed 1, and unlimited memory and disk.
    pub fn of_cores(cores: u32) -> Machine {
        Machine { cores, further: 0, class: Class(0), speed: 1.0, memory_bytes: None, disk_bytes: None }
    }

    /// The machine as the scheduler should see it, with a few more cores than it has: real builds wait for disks, for
    /// memory and for processes to start, and these extra cores keep the machine busy. The builds that get them are
    /// last in rank, and run when an earlier one waits. No single build gets more cores than exist.
    pub fn oversubscribed(self) -> Machine {
        let further = (self.cores / CORES_PER_FURTHER).max(1);
        Machine { cores: self.cores + further, further, ..self }
    }

    /// The most cores that one build can have.
    pub fn build_cores_max(&self) -> u32 {
        self.cores.saturating_sub(self.further).max(1)
    }
}
