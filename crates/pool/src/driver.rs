//! The interface to a manager of machines.

use crate::{Launch, PilotName, PoolError};
use std::collections::BTreeMap;

/// The most pilots in one listing.
pub const LISTED_MAX: usize = 10_000;

/// A manager of machines, which starts pilots: workers that were started for a pool.
///
/// Every call returns within a time limit, and may be made from any thread that has no async runtime. What a driver answers
/// is not believed: a manager can forget what it acknowledged, and do what it reported as failed. Only [`list`](Driver::list)
/// counts, and it goes by names.
///
/// A driver reads and stops only pilots whose names begin with the prefix of its pool.
pub trait Driver: Send + Sync {
    /// Starts a pilot with a name that was never used before. An error does not mean that it was not started.
    fn start(&self, name: &PilotName, launch: &Launch) -> Result<(), PoolError>;

    /// The pilots that exist. Fails if the list is not complete, except for [`Listing::away`].
    fn list(&self) -> Result<Listing, PoolError>;

    /// Ends a pilot: its processes get SIGTERM, and SIGKILL some time later. Succeeds if there is no pilot with this name.
    fn stop(&self, name: &PilotName) -> Result<(), PoolError>;

    /// What the manager is and what it can give, for `doctor`.
    fn describe(&self) -> Result<Description, PoolError>;
}

/// The pilots of a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The pilots, each name once.
    pub pilots: Vec<Listed>,
    /// Parts of the manager that do not answer, with the reason: hosts. The pilots that the driver knows to be there are in
    /// `pilots`, as [`PilotState::Unknown`]; there may be others.
    pub away: Vec<String>,
}

/// A pilot as its manager sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: PilotName,
    /// What the manager says.
    pub state: PilotState,
    /// Why, in the manager's words: why it is queued, how it ended.
    pub reason: Option<String>,
    /// How often the manager has it: more than one is a fault, such as a request that a client repeated.
    pub copies: u32,
}

/// The state of a pilot in its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PilotState {
    /// Waits for a machine.
    Queued,
    /// Its processes run, or are being started.
    Running,
    /// It is being ended.
    Ending,
    /// It has ended. A manager need not list these.
    Ended,
    /// The part of the manager that has it does not answer.
    Unknown,
}

impl Listing {
    /// A listing of these pilots. A name that occurs more than once becomes one entry with more copies, in the state of the copy
    /// that lives most. Ended copies do not count.
    pub fn of(all: impl IntoIterator<Item = Listed>) -> Listing {
        let mut pilots: BTreeMap<PilotName, Listed> = BTreeMap::new();
        for listed in all {
            let Some(same) = pilots.get_mut(&listed.name) else {
                pilots.insert(listed.name.clone(), listed);
                continue;
            };
            match (same.state, listed.state) {
                (_, PilotState::Ended) => {}
                (PilotState::Ended, _) => *same = listed,
                (ours, theirs) => {
                    same.copies += listed.copies;
                    if liveliness(theirs) > liveliness(ours) {
                        (same.state, same.reason) = (listed.state, listed.reason);
                    }
                }
            }
        }
        Listing { pilots: pilots.into_values().collect(), away: Vec::new() }
    }
}

fn liveliness(state: PilotState) -> u32 {
    match state {
        PilotState::Ended => 0,
        PilotState::Ending => 1,
        PilotState::Queued => 2,
        PilotState::Unknown => 3,
        PilotState::Running => 4,
    }
}

/// What a manager is and can give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The manager: `Slurm`.
    pub manager: String,
    /// Its version, as it says it.
    pub version: String,
    /// Its machines, or groups of machines.
    pub places: Vec<Place>,
    /// Remarks for the user, such as what limits are not enforced.
    pub notes: Vec<String>,
}

/// A machine or a group of equal machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name in the manager.
    pub name: String,
    /// How many pilots or machines it has room for, if the manager says.
    pub count: Option<u32>,
    /// The cores of one machine, if the manager says.
    pub cores: Option<u32>,
    /// The memory of one machine in bytes, if the manager says.
    pub memory_bytes: Option<u64>,
    /// Why it cannot be used at present.
    pub trouble: Option<String>,
}
