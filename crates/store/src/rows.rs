//! What the store holds.

use crate::Number;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_model::order::{Key, Output, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, PackageState, StageResult};
use serde::{Deserialize, Serialize};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// It is running, or was killed: the holder of the yard's lock knows which.
    Running,
    /// Everything was done.
    Finished,
    /// It was ended on request before everything was done.
    Interrupted,
}

impl RunState {
    /// The state's name.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Finished => "finished",
            RunState::Interrupted => "interrupted",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<RunState> {
        [RunState::Running, RunState::Finished, RunState::Interrupted]
            .into_iter()
            .find(|s| s.as_str() == name)
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// Its number; 0 before it has one.
    pub number: Number,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// When it ended.
    pub ended_seconds: Option<f64>,
    /// Its state.
    pub state: RunState,
    /// A hash of what it was planned from.
    pub plan_digest: String,
    /// Cores of the machine.
    pub cores: u32,
    /// Builds at once.
    pub slots: u32,
    /// How long it was expected to take, and what no schedule could beat.
    pub expected_seconds: f64,
    /// See `expected_seconds`.
    pub bound_seconds: f64,
    /// What the command of the run forced; none for a run of what is not up to date.
    pub forced: Option<ForcedRun>,
}

/// What a command forced, so that an interrupted run can be resumed as it was meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForcedRun {
    /// The packages; empty for all.
    pub packages: Vec<String>,
    /// Whether each package is built twice, to compare.
    pub checks_reproducible: bool,
}

/// The end of a package's last build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastBuild {
    /// The package.
    pub package: String,
    /// The build.
    pub number: Number,
    /// Its run.
    pub run: Number,
    /// As in [`BuildRow`].
    pub outcome: BuildOutcome,
}

/// A package of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PackageRow {
    /// Its name.
    pub name: String,
    /// The version of its recipe.
    pub version: String,
    /// Where it stands.
    pub state: PackageState,
    /// Why it stands there: why it is built, what it waits for, why it was left out.
    pub reason: Reason,
    /// Who is to blame, where another package is.
    pub blamed: Option<String>,
    /// The estimate that the schedule uses.
    pub estimate_seconds: f64,
    /// The longest remaining path.
    pub rank_seconds: f64,
}

/// One attempt at one package.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildRow {
    /// Its number.
    pub number: Number,
    /// Its random id; absent in rows of before there were any.
    pub attempt: Option<Attempt>,
    /// Its run.
    pub run: Number,
    /// The package.
    pub package: String,
    /// The version of the outputs.
    pub version: String,
    /// The name of the worker that performs it; absent in rows of before workers had names.
    pub worker: Option<String>,
    /// Cores of that worker's machine: what the build took is estimated from by them, whatever other machines the run has.
    pub cores: u32,
    /// The kernel and CPU of that machine; absent in rows from before they were recorded.
    pub host: Option<Host>,
    /// The slot it ran in.
    pub slot: u32,
    /// The key's digest.
    pub key: String,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// When it ended; absent while it runs, and forever if it was lost.
    pub ended_seconds: Option<f64>,
    /// How it ended, or that it has not.
    pub outcome: BuildOutcome,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Whether a second build gave the same bytes.
    pub is_reproducible: Option<bool>,
    /// Its stages so far.
    pub stages: Vec<StageResult>,
}

impl BuildRow {
    /// How it ended, for a build that is its package's last one.
    pub fn as_last(&self) -> LastBuild {
        let (package, outcome) = (self.package.clone(), self.outcome.clone());
        LastBuild { package, number: self.number, run: self.run, outcome }
    }
}

/// What a package's last good build left.
#[derive(Clone, Debug, PartialEq)]
pub struct Current {
    /// The package.
    pub package: String,
    /// The build that made the outputs.
    pub build: Number,
    /// The version of the recipe.
    pub recipe_version: String,
    /// How often outputs of this recipe version were kept, this one counted.
    pub revision: u32,
    /// The key for which the outputs are known to be right.
    pub key: Key,
    /// The outputs.
    pub outputs: Vec<Output>,
}

/// An output that is there, with who made it.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputRow {
    /// The package that made it.
    pub package: String,
    /// The output.
    pub output: Output,
}

/// A request to a run from another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// Try a failed package again.
    Retry,
    /// Leave a package out.
    Skip,
    /// Build a package, and what it needs, before all others.
    Bump,
}

impl RequestKind {
    /// The kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestKind::Retry => "retry",
            RequestKind::Skip => "skip",
            RequestKind::Bump => "bump",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<RequestKind> {
        [RequestKind::Retry, RequestKind::Skip, RequestKind::Bump].into_iter().find(|k| k.as_str() == name)
    }
}

/// See [`RequestKind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub kind: RequestKind,
    /// Of which package.
    pub package: String,
}

/// A plan: what a run would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// A hash of what it was made from.
    pub digest: String,
    /// When it was made, in seconds since 1970.
    pub made_seconds: f64,
    /// How long it would take, and what no schedule could beat.
    pub expected_seconds: f64,
    /// See `expected_seconds`.
    pub bound_seconds: f64,
    /// Cycles that were cut, a line each.
    pub cuts: Vec<String>,
    /// What else a person should know of the set, such as names that two sources claim; a line each.
    pub remarks: Vec<String>,
    /// The packages of the longest path.
    pub path: Vec<String>,
    /// The packages, ordered by name.
    pub packages: Vec<PlanRow>,
}

/// A package of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRow {
    /// What a run would start from.
    pub package: PackageRow,
    /// Packages of the set that it waits for.
    pub dependencies: Vec<String>,
}

/// A package of a plan, as it passes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanRowSeen<'a> {
    /// Its name.
    pub name: &'a str,
    /// The version of its recipe.
    pub version: &'a str,
    /// Where a run would start from.
    pub state: PackageState,
    /// Why it stands there.
    pub reason: &'a Reason,
    /// The estimate that the schedule uses.
    pub estimate_seconds: f64,
    /// The longest remaining path.
    pub rank_seconds: f64,
    /// Packages of the set that it waits for, with a blank between two.
    pub dependencies: &'a str,
}

/// Part of a decision. All its times are of one clock, the coordinator's: workers send durations.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A package stands elsewhere now.
    Package {
        /// The run.
        run: Number,
        /// The package.
        name: String,
        /// Where it stands.
        state: PackageState,
        /// Why.
        reason: Reason,
        /// Who is to blame.
        blamed: Option<String>,
        /// When.
        at_seconds: f64,
    },
    /// A build begins.
    BuildBegan(Box<BuildRow>),
    /// A stage of a build ended.
    StageEnded {
        /// The build.
        build: Number,
        /// When.
        at_seconds: f64,
        /// What it did.
        stage: Box<StageResult>,
    },
    /// A build ended.
    BuildEnded {
        /// The build.
        build: Number,
        /// When.
        at_seconds: f64,
        /// How.
        outcome: BuildOutcome,
        /// Why it failed.
        failure: Option<Failure>,
        /// Whether a second build gave the same bytes.
        is_reproducible: Option<bool>,
    },
    /// These outputs are there from now on.
    Outputs(Current),
    /// The outputs that are there are right for this key as well.
    KeyConfirmed {
        /// The package.
        package: String,
        /// The key.
        key: Key,
    },
    /// The run's state changes.
    Run {
        /// The run.
        run: Number,
        /// Its state. A run that is resumed is running again, and has no end.
        state: RunState,
        /// When.
        at_seconds: f64,
    },
}

/// The number of builds of a package that estimates use.
pub const MEASURED_MAX: usize = 5;

/// What a build took that says something of the next one: a good one, or one that ended for want of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Cores of the machine.
    pub cores: u32,
    /// The stages that a slot performed, in their order.
    pub stages: Vec<MeasuredStage>,
    /// The largest memory that was sampled.
    pub memory_peak_bytes: u64,
    /// What its work folder held, where that is apart.
    pub work_bytes: u64,
    /// What else it wrote to the disk.
    pub disk_bytes: u64,
    /// Whether it ended for want of memory: its times say nothing then.
    pub is_out_of_memory: bool,
}

/// What a stage took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredStage {
    /// How long it took.
    pub wall_seconds: f64,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// For how long it could have used more than one core, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_seconds: Option<f64>,
}

impl Measurement {
    /// What these stages of a build on a machine of this many cores took. Fetching happens before a build and is no
    /// part of it.
    pub fn of(stages: &[StageResult], cores: u32, is_out_of_memory: bool) -> Measurement {
        let largest =
            |value: fn(&StageResult) -> Option<u64>| stages.iter().filter_map(value).max().unwrap_or(0);
        // A build that is made again, on the disk or to compare, has its stages twice: the last time counts.
        let own: Vec<&StageResult> = stages.iter().filter(|stage| stage.stage != Stage::Fetch).collect();
        let first = own.first().map(|stage| stage.stage);
        let begun = own.iter().rposition(|stage| Some(stage.stage) == first).unwrap_or(0);
        // So does the last of several in a row: what comes before it is not there where layers were.
        let last =
            own[begun..].chunk_by(|one, next| one.stage == next.stage).filter_map(|alike| alike.last());
        let times = last.map(|stage| MeasuredStage {
            wall_seconds: stage.wall_seconds,
            cpu_seconds: stage.cpu_seconds,
            parallel_seconds: stage.parallel_seconds,
        });
        Measurement {
            cores,
            stages: times.collect(),
            memory_peak_bytes: largest(|stage| Some(stage.memory_peak_bytes)),
            work_bytes: largest(|stage| stage.work_bytes),
            disk_bytes: largest(|stage| stage.disk_bytes),
            is_out_of_memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::result::Measures;

    fn stage(stage: Stage, cpu_seconds: f64) -> StageResult {
        StageResult {
            stage,
            started_seconds: 101.0,
            wall_seconds: 2.0,
            cpu_seconds,
            memory_peak_bytes: 7,
            work_bytes: None,
            disk_bytes: None,
            parallel_seconds: None,
            is_ok: true,
            log: None,
            left_behind: Vec::new(),
            measures: Measures::default(),
        }
    }

    #[test]
    fn the_last_of_several_times_of_a_stage_counts() {
        let times = |stages: &[(Stage, f64)]| -> Vec<f64> {
            let stages: Vec<StageResult> = stages.iter().map(|(name, cpu)| stage(*name, *cpu)).collect();
            Measurement::of(&stages, 2, false).stages.iter().map(|stage| stage.cpu_seconds).collect()
        };
        let (depends, build, test) = (Stage::Depends, Stage::Build, Stage::Test);
        // Layers that were made for it are no part of what the next build takes.
        let cold =
            [(Stage::Fetch, 9.0), (depends, 8.0), (depends, 1.0), (build, 5.0), (test, 6.0), (test, 2.0)];
        assert_eq!(times(&cold), [1.0, 5.0, 2.0]);
        assert_eq!(times(&[(depends, 1.0), (build, 5.0), (test, 2.0)]), [1.0, 5.0, 2.0]);
        // It was built twice.
        assert_eq!(times(&[(depends, 1.0), (build, 5.0), (depends, 1.5), (build, 6.0)]), [1.5, 6.0]);
        assert!(times(&[]).is_empty());
    }
}
