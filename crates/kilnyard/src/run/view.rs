//! Views of a run, for people and programs: three presentations of the same events.

mod events;
mod live;
mod plain;

pub use events::Events;
pub use live::Live;
pub use live::drawn::Drawn;
pub use live::echo::restore as restore_echo;
pub use plain::Plain;

use crate::words::{self, now_seconds};
use kilnyard_model::order::Stage;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, PackageState};
use kilnyard_store::{BuildRow, Event, Number, Request, RequestKind, RunState};
use std::time::{Duration, Instant};

/// The message for [`ViewEvent::Reloading`].
const RELOADING: &str =
    "writing to the store failed; builds are being cancelled, and the run resumes from its last state";

/// The line for [`ViewEvent::Quarantined`].
fn quarantine_line(worker: &str, reason: &str) -> String {
    format!(
        "worker {worker} is quarantined: {reason} ({})",
        words::command(&format!("workers resume {worker}"))
    )
}

/// The line for [`ViewEvent::Differs`].
fn difference_line(package: &str, message: &str) -> String {
    format!("warning: {message} ({})", words::command(&format!("history {package}")))
}

/// The line for [`ViewEvent::Asked`].
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
    pub build: Number,
    pub package: String,
    /// The version of the outputs.
    pub version: String,
    pub slot: u32,
    /// Absent before the first stage.
    pub stage: Option<Stage>,
    pub started: Instant,
    pub stage_started: Instant,
    /// The cores that the build has now.
    pub cores: u32,
    /// Memory of all its processes.
    pub memory_bytes: u64,
    /// The number of all its processes, and of those that run or could.
    pub processes: (u32, u32),
    /// Estimated duration of the build.
    pub estimate_seconds: f64,
}

impl BuildSeen {
    /// A build that began in another process.
    pub fn of(build: &BuildRow, estimate_seconds: f64) -> BuildSeen {
        let started = since(build.started_seconds);
        BuildSeen {
            build: build.number,
            package: build.package.clone(),
            version: build.version.clone(),
            slot: build.slot,
            stage: None,
            started,
            stage_started: started,
            cores: 1,
            memory_bytes: 0,
            processes: (0, 0),
            estimate_seconds,
        }
    }
}

/// The instant of a time in seconds since 1970.
pub fn since(seconds: f64) -> Instant {
    let now = Instant::now();
    let ago = Duration::try_from_secs_f64(now_seconds() - seconds).unwrap_or_default();
    now.checked_sub(ago).unwrap_or(now)
}

/// The state of a run.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub run: Number,
    pub is_resumed: bool,
    /// When this process started or resumed it.
    pub started: Instant,
    /// Cores of the machine.
    pub cores: u32,
    /// The maximum number of parallel builds.
    pub slots: u32,
    /// Estimated duration of the run.
    pub expected_seconds: f64,
    /// The number of packages in each state.
    pub counts: Vec<(PackageState, u64)>,
    /// Running builds.
    pub builds: Vec<BuildSeen>,
    /// The longest path through undecided packages, in seconds.
    pub remaining_path_seconds: f64,
    /// Bytes received from mirrors.
    pub bytes_fetched: u64,
    /// The estimated build time of the packages that the run has handled, and of all that it builds, in seconds.
    pub work_seconds: (f64, f64),
    /// The first packages that could start, in the order in which that became so.
    pub ready: Vec<String>,
    /// The last packages that failed, the latest last.
    pub failed: Vec<String>,
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
    /// Absent if the build succeeded.
    pub failure: Option<&'a Failure>,
    /// Whether a second build had the same bytes; absent if there was no second build.
    pub is_reproducible: Option<bool>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum ViewEvent<'a> {
    /// The run began.
    Began,
    /// An event of the store. [`ViewEvent::State`] or [`ViewEvent::BuildEnded`] follows if it concerns a package or a
    /// build.
    Decided(&'a Event),
    /// A package changed its state.
    State { package: &'a str, state: PackageState, reason: &'a Reason },
    /// A build ended.
    BuildEnded(&'a BuildSeen, BuildEnd<'a>),
    /// A request arrived.
    Asked(&'a Request),
    /// A request was refused.
    Refused { request: &'a Request, reason: &'a str },
    /// A worker on another machine gets no more builds.
    Quarantined { worker: &'a str, reason: &'a str },
    /// Another pool built a package with other contents.
    Differs { package: &'a str, message: &'a str },
    /// The disk is full, and the run waits for space.
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
    fn see(&mut self, seen: &ViewEvent, snapshot: &Snapshot);
    /// A clock tick.
    fn tick(&mut self, snapshot: &Snapshot);
    /// What the user asked the view for, since the last call.
    fn requests(&mut self) -> Vec<(RequestKind, String)> {
        Vec::new()
    }
    /// The answer to a request: what was asked, or why not.
    fn answered(&mut self, _answer: &str) {}
    /// Whether the user asked the view to end the run, as a signal does.
    fn wants_end(&self) -> bool {
        false
    }
}
