//! Packages, their builds, and why they are in their state.

use crate::compare::Change;
use kilnyard_model::host::Host;
use kilnyard_model::keep::KeptWork;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, StageResult};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A package of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PackageOfRun {
    /// Its name.
    pub package: String,
    /// The version of its recipe.
    pub version: String,
    /// Its state: `waiting`, `ready`, `building`, `built`, `unchanged`, `up-to-date`, `failed`, `blocked`, `skipped` or
    /// `left-out`.
    pub state: String,
    /// Why it is in this state, in words.
    pub reason: String,
    /// The same as data.
    #[schema(value_type = Object)]
    pub why: Reason,
    /// The package to blame, if it is another one.
    pub blamed: Option<String>,
    /// Its estimated duration.
    pub estimate_seconds: f64,
    /// The longest estimated path from its start to the end of the run.
    pub rank_seconds: f64,
    /// Its last build in the run; absent if there was none.
    pub build: Option<BuildBrief>,
}

/// A build in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildBrief {
    /// Its number.
    pub build: u64,
    /// How it ended: `building`, `built`, `unchanged`, `failed` or `lost`.
    pub outcome: String,
    /// The worker that performed it.
    pub worker: Option<String>,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// How long it took; absent while it runs.
    pub wall_seconds: Option<f64>,
    /// CPU time of its stages.
    pub cpu_seconds: f64,
    /// The largest sampled memory usage.
    pub memory_peak_bytes: u64,
}

/// A build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Build {
    /// Its number, unique in the yard.
    pub build: u64,
    /// Its run.
    pub run: u64,
    /// Its package.
    pub package: String,
    /// The version that its outputs got or would have got.
    pub version: String,
    /// The worker that performed it.
    pub worker: Option<String>,
    /// The cores of the worker's machine.
    pub cores: u32,
    /// The kernel and CPU of that machine.
    #[schema(value_type = Option<Object>)]
    pub host: Option<Host>,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// When it ended; absent while it runs.
    pub ended_seconds: Option<f64>,
    /// How it ended: `building`, `built`, `unchanged`, `failed` or `lost`.
    pub outcome: String,
    /// The cause of its failure; absent if it did not fail.
    #[schema(value_type = Option<Object>)]
    pub failure: Option<Failure>,
    /// Whether a second build gave the same bytes; absent if there was none.
    pub reproducible: Option<bool>,
    /// The stages that have ended, with their times and resource usage.
    #[schema(value_type = Vec<Object>)]
    pub stages: Vec<StageResult>,
}

impl Build {
    /// CPU time of all stages.
    pub fn cpu_seconds(&self) -> f64 {
        self.stages.iter().map(|stage| stage.cpu_seconds).sum()
    }

    /// The largest sampled memory usage.
    pub fn memory_peak_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0)
    }
}

/// A build that stalled the cores of its machine: the kernel emulated instructions, or repeated accesses to memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stalls {
    /// Its number.
    pub build: u64,
    /// How often, in the stage with the most.
    pub traps_per_second: f64,
}

impl Stalls {
    /// What follows for the package, in a clause.
    pub fn words(&self) -> String {
        format!(
            "kept to one core, in a virtual machine where there is one: build {} had {:.0} traps of the kernel a second, which stall \
             all cores of a machine",
            self.build, self.traps_per_second
        )
    }
}

/// Why a package is in its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Its name.
    pub package: String,
    /// The version of its recipe.
    pub version: String,
    /// Where its recipe comes from, if that is known.
    pub source: Option<String>,
    /// The commits that concern it, between its last build and the one before.
    pub changes: Vec<Change>,
    /// Its state.
    pub state: String,
    /// Why it is in this state, in words.
    pub reason: String,
    /// The same as data.
    #[schema(value_type = Object)]
    pub why: Reason,
    /// The package to blame, if it is another one.
    pub blamed: Option<String>,
    /// The packages from it to the one to blame.
    pub chain: Vec<Blame>,
    /// The packages of the set that it needs; absent if it is not planned.
    pub dependencies: Option<Vec<String>>,
    /// A note of the yard's owner.
    pub note: Option<String>,
    /// `failure` if the owner expects its build to fail.
    pub expected: Option<String>,
    /// Why the owner expects that.
    pub because: Option<String>,
    /// Whether its build has network access.
    pub network: bool,
    /// The priority that the owner gave it.
    pub priority: i32,
    /// Why it is kept to one core, in a virtual machine where there is one: its last build outside of one stalled all cores that it
    /// ran on.
    pub stalls: Option<Stalls>,
    /// Its last build.
    pub build: Option<Attempted>,
    /// The builds of the run of its last build, the oldest first.
    pub attempts: Vec<Attempted>,
}

/// A package on the way to the one to blame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Blame {
    /// Its name.
    pub package: String,
    /// Its state.
    pub state: String,
    /// Why it is in this state, in words.
    pub reason: String,
    /// The same as data.
    #[schema(value_type = Object)]
    pub why: Reason,
}

/// A build that explains the state of its package.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempted {
    /// Its number.
    pub build: u64,
    /// Its run.
    pub run: u64,
    /// How it ended.
    pub outcome: String,
    /// The cause of its failure.
    #[schema(value_type = Option<Object>)]
    pub failure: Option<Failure>,
    /// The kept work that it began with.
    #[schema(value_type = Option<Object>)]
    pub kept: Option<KeptWork>,
}

/// What else is known of a package: its history, and its place in the set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PackageHistory {
    /// Its name.
    pub package: String,
    /// The packages of the set that it needs.
    pub dependencies: Vec<String>,
    /// The packages that need it.
    pub dependents: Vec<String>,
    /// The packages that it blocks in the last run.
    pub blocks: Vec<String>,
    /// Its current outputs.
    pub outputs: Vec<Output>,
    /// The last run in which it had outputs at the end.
    pub last_green_run: Option<u64>,
    /// Its builds, the latest first.
    pub builds: Vec<Build>,
}

/// A file of the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    /// The package that made it, whose name may differ from the output's.
    pub package: String,
    /// The name of the binary package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture.
    pub architecture: String,
    /// The name of its file.
    pub file: String,
    /// The file's size.
    pub size_bytes: u64,
    /// The file's SHA-256.
    pub sha256: String,
}

/// A package or a failure that a search has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Found {
    /// The package.
    pub package: String,
    /// Its state in the last run.
    pub state: String,
    /// The words that match: of its reason, or the line of its log; absent if its name matches.
    pub line: Option<String>,
}
