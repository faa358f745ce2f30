//! Views of a run, for people and programs: three forms of the same events.

mod events;
mod live;
mod plain;

pub use events::Events;
pub use live::Live;
pub use live::drawn::Drawn;
pub use live::echo::restore as restore_echo;
pub use plain::Plain;

use kilnyard_model::order::Stage;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, PackageState};
use kilnyard_store::{Event, Number, Request, RequestKind, RunState};
use std::time::Instant;

/// The message for [`Seen::Reloading`].
const RELOADING: &str =
    "writing to the store failed; builds are being cancelled, and the run resumes from its last state";

/// The line for [`Seen::Asked`].
fn request_line(request: &Request) -> String {
    let package = &request.package;
    match request.kind {
        RequestKind::Retry => format!("{package}: retry requested"),
        RequestKind::Skip => format!("{package}: skip requested"),
        RequestKind::Bump => format!("{package} moved to the front"),
    }
}

/// A running build.
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
    /// Its number of cores.
    pub cores: u32,
    /// The memory of its processes.
    pub memory_bytes: u64,
    /// Its estimated duration.
    pub estimate_seconds: f64,
}

/// The state of a run.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its number.
    pub run: Number,
    /// Whether it was resumed.
    pub is_resumed: bool,
    /// When this process started or resumed it.
    pub started: Instant,
    /// Cores of the machine.
    pub cores: u32,
    /// The most builds in parallel.
    pub slots: u32,
    /// Its estimated duration.
    pub expected_seconds: f64,
    /// The number of packages in each state.
    pub counts: Vec<(PackageState, u64)>,
    /// The running builds.
    pub builds: Vec<BuildSeen>,
    /// The longest path through undecided packages, in seconds.
    pub remaining_path_seconds: f64,
    /// The bytes that were received from mirrors.
    pub bytes_fetched: u64,
}

impl Snapshot {
    /// The number of packages in a state.
    pub fn count(&self, state: PackageState) -> u64 {
        self.counts.iter().find(|(other, _)| *other == state).map_or(0, |(_, count)| *count)
    }

    /// The number of decided packages, and of all packages.
    pub fn done(&self) -> (u64, u64) {
        let total = |is: fn(&PackageState) -> bool| {
            self.counts.iter().filter(|(state, _)| is(state)).map(|(_, count)| count).sum()
        };
        (total(|state| state.is_final()), total(|_| true))
    }
}

/// The end of a build.
#[derive(Clone, Copy, Debug)]
pub struct BuildEnd<'a> {
    /// The failure, if it failed.
    pub failure: Option<&'a Failure>,
    /// Whether a second build gave the same bytes; absent if there was none.
    pub is_reproducible: Option<bool>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Seen<'a> {
    /// The run began.
    Began,
    /// An event of the store. [`Seen::State`] or [`Seen::BuildEnded`] follows if it concerns a package or a build.
    Decided(&'a Event),
    /// A package has another state.
    State {
        /// The package.
        package: &'a str,
        /// The state.
        state: PackageState,
        /// Why.
        reason: &'a Reason,
    },
    /// A stage began.
    StageBegan(&'a BuildSeen, Stage),
    /// A build ended.
    BuildEnded(&'a BuildSeen, BuildEnd<'a>),
    /// A request arrived.
    Asked(&'a Request),
    /// A request was refused.
    Refused {
        /// The request.
        request: &'a Request,
        /// Why not.
        reason: &'a str,
    },
    /// The disk is full, and the run waits for room.
    DiskFull,
    /// A commit failed: the state is read from the store again, and builds start over.
    Reloading,
    /// The run was interrupted; builds are being cancelled.
    Stopping,
    /// The run is over.
    Ended(RunState),
}

/// Shows a run. Calls come from one thread.
pub trait View {
    /// Something happened.
    fn see(&mut self, seen: &Seen, snapshot: &Snapshot);
    /// A clock tick.
    fn tick(&mut self, snapshot: &Snapshot);
    /// Whether the person at the view wants to end the run, as by a signal.
    fn wants_end(&self) -> bool {
        false
    }
}
