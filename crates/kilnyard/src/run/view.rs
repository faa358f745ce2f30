//! What people and programs see of a run: three views of the same events.

mod events;
mod live;
mod plain;

pub use events::Events;
pub use live::Live;
pub use live::echo::restore as restore_echo;
pub use plain::Plain;

use kilnyard_model::order::Stage;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, PackageState};
use kilnyard_store::{Event, Number, Request, RunState};
use std::time::Instant;

/// How [`Seen::Reloading`] is said.
const RELOADING: &str =
    "the store did not take a decision; builds are being cancelled, and the run resumes from what it holds";

/// A build that is going on.
#[derive(Clone, Debug)]
pub struct BuildSeen {
    /// Its number.
    pub build: Number,
    /// The package.
    pub package: String,
    /// The version of the outputs.
    pub version: String,
    /// The slot.
    pub slot: u32,
    /// The stage, once there is one.
    pub stage: Option<Stage>,
    /// When it began.
    pub started: Instant,
    /// When the stage began.
    pub stage_started: Instant,
    /// How many cores it has.
    pub cores: u32,
    /// What its processes hold.
    pub memory_bytes: u64,
    /// How long it was expected to take.
    pub estimate_seconds: f64,
}

/// The run as it stands.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its number.
    pub run: Number,
    /// Whether it goes on after an interruption.
    pub is_resumed: bool,
    /// When this process took it up.
    pub started: Instant,
    /// Cores of the machine.
    pub cores: u32,
    /// Builds at once.
    pub slots: u32,
    /// How long it was expected to take.
    pub expected_seconds: f64,
    /// How many packages are in each state.
    pub counts: Vec<(PackageState, u64)>,
    /// What is being built.
    pub builds: Vec<BuildSeen>,
    /// The longest remaining path.
    pub remaining_path_seconds: f64,
    /// What came from mirrors.
    pub bytes_fetched: u64,
}

impl Snapshot {
    /// How many packages are in a state.
    pub fn count(&self, state: PackageState) -> u64 {
        self.counts.iter().find(|(other, _)| *other == state).map_or(0, |(_, count)| *count)
    }

    /// How many packages are decided, and how many there are.
    pub fn done(&self) -> (u64, u64) {
        let total = |is: fn(&PackageState) -> bool| {
            self.counts.iter().filter(|(state, _)| is(state)).map(|(_, count)| count).sum()
        };
        (total(|state| state.is_final()), total(|_| true))
    }
}

/// What became of a build.
#[derive(Clone, Copy, Debug)]
pub struct BuildEnd<'a> {
    /// Why it failed; absent if it did not.
    pub failure: Option<&'a Failure>,
    /// Whether a second build gave the same bytes; absent where there was none.
    pub is_reproducible: Option<bool>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Seen<'a> {
    /// The run began.
    Began,
    /// An event of the store. What it means for a package or a build follows as one of the next two.
    Decided(&'a Event),
    /// A package has another state.
    State {
        /// The package.
        package: &'a str,
        /// Where.
        state: PackageState,
        /// Why.
        reason: &'a Reason,
    },
    /// A stage began.
    StageBegan(&'a BuildSeen, Stage),
    /// A build ended.
    BuildEnded(&'a BuildSeen, BuildEnd<'a>),
    /// Somebody asked for something.
    Asked(&'a Request),
    /// It could not be granted.
    Refused {
        /// What was asked.
        request: &'a Request,
        /// Why not.
        reason: &'a str,
    },
    /// The disk is full, and room is waited for.
    DiskFull,
    /// A decision could not be written to the store: the state is read from it again, and builds begin anew.
    Reloading,
    /// A signal came; builds are being cancelled.
    Stopping,
    /// The run is over.
    Ended(RunState),
}

/// Shows a run. Calls come from one thread.
pub trait View {
    /// Something happened.
    fn see(&mut self, seen: &Seen, snapshot: &Snapshot);
    /// Time went by.
    fn tick(&mut self, snapshot: &Snapshot);
    /// Whether whoever looks on has seen enough, and the run is to be ended as by a signal.
    fn wants_end(&self) -> bool {
        false
    }
}
