//! Runs: their state, what is being built, what waits, and for what.

use kilnyard_model::reason::Reason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its number in the yard.
    pub run: u64,
    /// `running`, `finished`, `interrupted` or `killed`.
    pub state: String,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// When it ended; absent while it runs.
    pub ended_seconds: Option<f64>,
    /// Its duration as planned.
    #[serde(default)]
    pub expected_seconds: f64,
    /// The estimated minimum duration of any schedule.
    #[serde(default)]
    pub bound_seconds: f64,
    /// The number of packages in each state.
    pub counts: BTreeMap<String, u64>,
    /// Whether it finished, and every package of it has outputs or failed as expected.
    #[serde(default)]
    pub is_all_green: bool,
    /// The commits that its sources were from.
    #[serde(default)]
    pub commits: Vec<Commit>,
}

/// The commit that sources were from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Commit {
    /// The tree, or the repository.
    pub source: String,
    /// Its id.
    pub commit: String,
}

/// A run now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The target that the yard builds for, if it has several.
    pub target: Option<String>,
    /// The number of the run; absent before the first.
    pub run: Option<u64>,
    /// `running`, `finished`, `interrupted`, `killed`, or `preparing` before the first run.
    pub state: String,
    /// What a process does in the yard outside of runs, as a clause.
    pub preparing: Option<String>,
    /// When the run began, in seconds since 1970.
    pub started_seconds: Option<f64>,
    /// When it ended; absent while it runs.
    pub ended_seconds: Option<f64>,
    /// Its duration as planned.
    pub expected_seconds: f64,
    /// The estimated minimum duration of any schedule.
    pub bound_seconds: f64,
    /// The minimum duration by its measured builds; absent while it runs.
    pub measured_bound_seconds: Option<f64>,
    /// How far it is; absent if it has ended.
    pub progress: Option<Progress>,
    /// The packages on its longest path; empty unless it runs.
    pub path: Vec<String>,
    /// Why workers may be missing, one sentence each.
    pub obstacles: Vec<String>,
    /// The most builds at once.
    pub slots: u32,
    /// The number of packages in each state.
    pub counts: BTreeMap<String, u64>,
    /// The builds in progress, by slot.
    pub building: Vec<Building>,
    /// The packages that failed.
    pub failed: Vec<FailedPackage>,
}

/// How far a run is, by work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// The estimated build time of all packages that the run builds, in seconds of builds.
    pub work_seconds: f64,
    /// The part of it that is done, with the builds in progress as far as they are.
    pub done_seconds: f64,
    /// When the run ends, in seconds since 1970: the expected time, and the earliest and latest that its estimates allow.
    /// Absent if nothing can be expected.
    pub ends: Option<Ends>,
}

impl Progress {
    /// The part that is done, from 0 to 1.
    pub fn part(&self) -> f64 {
        match self.work_seconds > 0.0 {
            true => (self.done_seconds / self.work_seconds).clamp(0.0, 1.0),
            false => 1.0,
        }
    }
}

/// When a run ends, as a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Ends {
    /// If builds are as much faster than estimated as the fastest quarter of the builds until now.
    pub earliest_seconds: f64,
    /// By the estimates.
    pub expected_seconds: f64,
    /// If builds are as much slower than estimated as the slowest quarter of the builds until now.
    pub latest_seconds: f64,
}

/// A build in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Building {
    /// The package.
    pub package: String,
    /// The version that its outputs will get.
    pub version: String,
    /// The build's number.
    pub build: u64,
    /// The worker that performs it; absent for this machine's own in rows of earlier versions.
    pub worker: Option<String>,
    /// The slot of the worker, from 0.
    pub slot: u32,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// How long ago that was.
    pub since_seconds: f64,
    /// The stage that is running, or `between stages`.
    pub stage: String,
    /// Its estimated duration; 0 if there is none.
    pub estimate_seconds: f64,
    /// The latest sample of its processes; absent on other machines than that of the run, and before the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

impl Building {
    /// Whether it takes longer than was estimated.
    pub fn is_late(&self) -> bool {
        self.estimate_seconds > 0.0 && self.since_seconds > self.estimate_seconds
    }
}

/// A sample of the processes of a build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// The cores that it may use.
    pub cores: u32,
    /// The memory of its processes.
    pub memory_bytes: u64,
    /// The number of its processes.
    #[serde(default)]
    pub processes: u32,
    /// The number of those that run or could.
    #[serde(default)]
    pub runnable: u32,
}

/// What only the process of a run knows, which it writes down once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Live {
    /// The run.
    pub run: u64,
    /// When this was written, in seconds since 1970.
    pub at_seconds: f64,
    /// The stage and the sample of each build.
    pub builds: Vec<LiveBuild>,
}

/// What only the process of a run knows of a build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveBuild {
    /// The build's number.
    pub build: u64,
    /// Its package.
    pub package: String,
    /// The stage that is running.
    pub stage: Option<String>,
    /// When the stage began, in seconds since 1970.
    pub stage_started_seconds: f64,
    /// The latest sample.
    pub sample: Sample,
}

/// A package that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FailedPackage {
    /// Its name.
    pub package: String,
    /// The stage that failed, and why.
    pub reason: String,
    /// Whether the owner of the yard expects its build to fail.
    pub expected: bool,
}

/// Packages that failed for one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// What their reasons have in common.
    pub title: String,
    /// Their names.
    pub packages: Vec<String>,
    /// How many packages they block.
    pub blocks: u64,
    /// What to do next; absent if only the packages themselves can be mended.
    pub next_step: Option<String>,
}

/// The failures of a run, compared with the one before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Failures {
    /// The run.
    pub run: u64,
    /// The run before it; absent for the first.
    pub earlier: Option<u64>,
    /// The causes, the one with the most packages first.
    pub causes: Vec<Cause>,
    /// Names of the packages that failed now, and did not before.
    pub newly_failing: Vec<String>,
    /// Names of the packages that failed in both.
    pub still_failing: Vec<String>,
    /// Names of the packages that failed before, and have outputs now.
    pub fixed: Vec<String>,
    /// Names of the packages that failed as expected.
    pub as_expected: Vec<String>,
    /// The packages that others block.
    pub blocked: Vec<Blocked>,
}

/// Packages that wait for one that cannot be built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Blocked {
    /// The package to blame; absent if that was not recorded.
    pub culprit: Option<String>,
    /// Those that wait for it.
    pub packages: Vec<String>,
}

/// A package that has not been started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queued {
    /// Its name.
    pub package: String,
    /// `ready` or `waiting`.
    pub state: String,
    /// Why it is to be built, in words.
    pub reason: String,
    /// The same as data.
    #[schema(value_type = Object)]
    pub why: Reason,
    /// The packages of the run that it waits for: at most ten, those that end last first. Empty if it waits for a free
    /// core.
    pub waits_for: Vec<String>,
    /// How many it waits for.
    pub waits_for_count: u64,
    /// Its estimated duration.
    pub estimate_seconds: f64,
    /// The longest estimated path from its start to the end of the run, by which packages are ordered.
    pub rank_seconds: f64,
    /// When it is expected to start, in seconds since 1970; absent if nothing can be expected.
    pub expected_start_seconds: Option<f64>,
}
