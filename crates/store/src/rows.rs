//! The rows and records of a store.

use crate::{Note, Number};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_model::keep::KeptWork;
use kilnyard_model::order::{Key, Output, Stage};
use kilnyard_model::provenance::Signed;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, PackageState, StageResult};
use serde::{Deserialize, Serialize};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// It is running, or was killed: a run that is running holds the yard's lock.
    Running,
    /// Every package was handled.
    Finished,
    /// It was stopped on request before every package was handled.
    Interrupted,
}

impl RunState {
    /// The name of the state, as in databases and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Finished => "finished",
            RunState::Interrupted => "interrupted",
        }
    }

    /// The state with this name; absent if there is none.
    pub fn parse(name: &str) -> Option<RunState> {
        [RunState::Running, RunState::Finished, RunState::Interrupted]
            .into_iter()
            .find(|s| s.as_str() == name)
    }
}

/// A run of the yard.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// 0 before the store assigns a number.
    pub number: Number,
    /// Start time, in seconds since 1970.
    pub started_seconds: f64,
    /// End time, in seconds since 1970; absent while it runs.
    pub ended_seconds: Option<f64>,
    /// The last recorded state.
    pub state: RunState,
    /// A hash of everything that the plan was made from.
    pub plan_digest: String,
    /// Number of cores of the machine.
    pub cores: u32,
    /// Maximum number of concurrent builds.
    pub slots: u32,
    /// Estimated duration when it was planned.
    pub expected_seconds: f64,
    /// Estimated minimum duration of any schedule.
    pub bound_seconds: f64,
    /// Forced packages; absent for a run that builds whatever is not up to date.
    pub forced: Option<ForcedRun>,
    /// The commits that its sources were from, as far as they were from git.
    pub commits: Vec<RunCommit>,
}

/// The commit that sources of a run were from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommit {
    /// The tree's folder, or the address of the repository as the configuration has it, without a password.
    pub source: String,
    /// The id of the commit.
    pub commit: String,
    /// When it was committed, in seconds since 1970; absent in rows of earlier versions, and if git cannot say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date_seconds: Option<i64>,
}

/// The packages that a command forces, recorded so that an interrupted run can be resumed with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForcedRun {
    /// Names of the packages; empty for all.
    pub packages: Vec<String>,
    /// Whether each package is built twice and the outputs are compared.
    pub checks_reproducible: bool,
}

/// The outcome of a package's last build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastBuild {
    /// A name of the set, or of an earlier one.
    pub package: String,
    /// Unique in the store, across all runs.
    pub number: Number,
    /// The run that started the build.
    pub run: Number,
    /// As in [`BuildRow`].
    pub outcome: BuildOutcome,
}

/// A package of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PackageRow {
    /// Unique in the run.
    pub name: String,
    /// The version of its recipe. Its outputs may have a version with a revision.
    pub version: String,
    /// Its progress in the run.
    pub state: PackageState,
    /// Why the package is in this state: why it is built, what it waits for, or why it was left out.
    pub reason: Reason,
    /// The package that is to blame, if it is another one.
    pub blamed: Option<String>,
    /// The build time that the schedule assumes, in seconds.
    pub estimate_seconds: f64,
    /// The length of the longest remaining path that starts here, in seconds; it includes the package.
    pub rank_seconds: f64,
}

/// One attempt to build a package.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildRow {
    /// Unique in the store, across all runs.
    pub number: Number,
    /// Random id; absent in rows written before ids existed.
    pub attempt: Option<Attempt>,
    /// The run that started it. A resumed run keeps its number.
    pub run: Number,
    /// Unique in its run, though a run may build it several times.
    pub package: String,
    /// The version that its outputs got or would have got.
    pub version: String,
    /// The name of its worker; absent in rows written before workers had names.
    pub worker: Option<String>,
    /// Number of cores of that worker's machine. Estimates from this build use it, whatever other machines the run has.
    pub cores: u32,
    /// The kernel and CPU of that machine; absent in rows written before they were recorded.
    pub host: Option<Host>,
    /// The worker's slot.
    pub slot: u32,
    /// Digest of the build's key.
    pub key: String,
    /// Start time, in seconds since 1970.
    pub started_seconds: f64,
    /// End time, in seconds since 1970; absent while it runs, and forever if it was lost.
    pub ended_seconds: Option<f64>,
    /// [`BuildOutcome::Building`] until it ends.
    pub outcome: BuildOutcome,
    /// The cause of the failure; absent if it did not fail.
    pub failure: Option<Failure>,
    /// Whether a second build gave the same bytes; absent if there was none.
    pub is_reproducible: Option<bool>,
    /// The stages that have ended.
    pub stages: Vec<StageResult>,
}

impl BuildRow {
    /// This build, as the last one of its package.
    pub fn as_last(&self) -> LastBuild {
        let (package, outcome) = (self.package.clone(), self.outcome.clone());
        LastBuild { package, number: self.number, run: self.run, outcome }
    }

    /// The kept work that it began with. A build that was repeated without it has none.
    pub fn kept(&self) -> Option<KeptWork> {
        let built = self.stages.iter().rev().find(|stage| stage.stage == Stage::Build);
        built.and_then(|stage| stage.measures.kept)
    }
}

/// The outputs of a package's last successful build.
#[derive(Clone, Debug, PartialEq)]
pub struct Current {
    /// A name of the set, or of an earlier one: outputs are kept when a package leaves the set.
    pub package: String,
    /// The build that made the outputs.
    pub build: Number,
    /// The recipe's own version, without a revision.
    pub recipe_version: String,
    /// How often outputs of this recipe version were stored, including this time.
    pub revision: u32,
    /// The latest key for which the outputs are valid.
    pub key: Key,
    /// May be empty.
    pub outputs: Vec<Output>,
}

/// A current output with its package.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputRow {
    /// The package that made it, whose name may differ from the output's.
    pub package: String,
    /// The file and its description.
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
    /// Build a package and its dependencies before all others.
    Bump,
}

impl RequestKind {
    /// The name of the kind, as in databases and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestKind::Retry => "retry",
            RequestKind::Skip => "skip",
            RequestKind::Bump => "bump",
        }
    }

    /// The kind with this name; absent if there is none.
    pub fn parse(name: &str) -> Option<RequestKind> {
        [RequestKind::Retry, RequestKind::Skip, RequestKind::Bump].into_iter().find(|k| k.as_str() == name)
    }
}

/// A request to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requested action.
    pub kind: RequestKind,
    /// The name of the package that it applies to.
    pub package: String,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// A hash of everything that the plan was made from.
    pub digest: String,
    /// Time of planning, in seconds since 1970.
    pub made_seconds: f64,
    /// Estimated duration of the run.
    pub expected_seconds: f64,
    /// Estimated minimum duration of any schedule.
    pub bound_seconds: f64,
    /// Cycles that were cut, one line each.
    pub cuts: Vec<String>,
    /// Other remarks on the set, such as names that two sources claim; one line each.
    pub remarks: Vec<String>,
    /// Names of the packages on the longest path.
    pub path: Vec<String>,
    /// Ordered by name.
    pub packages: Vec<PlanRow>,
}

/// A package of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRow {
    /// The row at the start of the run.
    pub package: PackageRow,
    /// Names of the packages of the set that it waits for.
    pub dependencies: Vec<String>,
}

/// A package of a plan, borrowed while [`Store::each_planned`](crate::Store::each_planned) reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanRowSeen<'a> {
    /// Unique in the plan.
    pub name: &'a str,
    /// The version of its recipe, without a revision.
    pub version: &'a str,
    /// The state at the start of the run.
    pub state: PackageState,
    /// Why the package is in this state.
    pub reason: &'a Reason,
    /// The build time that the schedule assumes.
    pub estimate_seconds: f64,
    /// The length of the longest remaining path that starts here.
    pub rank_seconds: f64,
    /// Names of the packages of the set that it waits for, separated by spaces.
    pub dependencies: &'a str,
}

/// Who built the current outputs of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// A package with current outputs.
    pub package: String,
    /// The build that made them.
    pub build: Number,
    /// Its worker.
    pub worker: String,
    /// The pool of that worker at the time.
    pub pool: String,
    /// The statement, signed by the worker.
    pub signed: Signed,
}

/// Part of a decision. All times are by one clock, the coordinator's: workers send durations.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// The state of a package changes.
    Package {
        /// A run that has begun.
        run: Number,
        /// A package of that run.
        name: String,
        /// Replaces the recorded state.
        state: PackageState,
        /// Why the package is in this state.
        reason: Reason,
        /// The package that is to blame, if it is another one.
        blamed: Option<String>,
        /// Time of the change, in seconds since 1970.
        at_seconds: f64,
    },
    /// A run takes in a further package. If it has one of this name, nothing changes.
    PackageAdded {
        /// A run that has begun.
        run: Number,
        /// The package.
        row: Box<PackageRow>,
    },
    /// A build starts.
    BuildBegan(Box<BuildRow>),
    /// A stage of a build ended.
    StageEnded {
        /// A build that has begun and not ended.
        build: Number,
        /// End of the stage, in seconds since 1970.
        at_seconds: f64,
        /// Times and resource usage of the stage.
        stage: Box<StageResult>,
    },
    /// A build ended.
    BuildEnded {
        /// A build that has begun.
        build: Number,
        /// End of the build, in seconds since 1970.
        at_seconds: f64,
        /// Whether the build succeeded, or how it ended otherwise.
        outcome: BuildOutcome,
        /// The cause of the failure; absent if the build did not fail.
        failure: Option<Failure>,
        /// Whether a second build gave the same bytes; absent if there was none.
        is_reproducible: Option<bool>,
    },
    /// Replaces the current outputs of a package.
    Outputs(Current),
    /// Who built the current outputs of a package, until others replace them.
    Provenance(Box<Provenance>),
    /// The current outputs of a package are valid for this key, too.
    KeyConfirmed {
        /// A package with current outputs.
        package: String,
        /// Replaces the recorded key.
        key: Key,
    },
    /// Something that changes no other row.
    Note(Box<Note>),
    /// The state of a run changes.
    Run {
        /// A run that has begun.
        run: Number,
        /// The new state. A resumed run is running again, and its end time is removed.
        state: RunState,
        /// Time of the change, in seconds since 1970.
        at_seconds: f64,
    },
}

/// The number of builds of a package that estimates use, of those with kept work and of the others.
pub const MEASURED_MAX: usize = 5;

/// The resource usage of a build that is useful to estimate the next one: it succeeded, or ran out of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Number of cores of the machine.
    pub cores: u32,
    /// The stages that ran in a slot, in order.
    pub stages: Vec<MeasuredStage>,
    /// The largest sampled memory usage.
    pub memory_peak_bytes: u64,
    /// Size of the work folder, if it is separate.
    pub work_bytes: u64,
    /// Size of the other files written to the disk.
    pub disk_bytes: u64,
    /// Whether the build ran out of memory; its times are useless then.
    pub is_out_of_memory: bool,
    /// Whether it began with kept work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_kept: bool,
    /// Traps a second that stalled other cores, of the stage with the most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub traps_per_second: f64,
    /// Whether its commands ran in a virtual machine, which may execute what other machines emulate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in_machine: bool,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// The times of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredStage {
    /// Elapsed time.
    pub wall_seconds: f64,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// How long it could have used more than one core; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_seconds: Option<f64>,
}

impl Measurement {
    /// Summarizes the stages of a build on a machine with this many cores. Fetching is left out, since it happens
    /// before the build.
    pub fn of(stages: &[StageResult], cores: u32, is_out_of_memory: bool) -> Measurement {
        let largest =
            |value: fn(&StageResult) -> Option<u64>| stages.iter().filter_map(value).max().unwrap_or(0);
        // A build that ran again, on the disk or for comparison, has its stages twice: the last run counts.
        let own: Vec<&StageResult> = stages.iter().filter(|stage| stage.stage != Stage::Fetch).collect();
        let first = own.first().map(|stage| stage.stage);
        let begun = own.iter().rposition(|stage| Some(stage.stage) == first).unwrap_or(0);
        // Of equal stages in a row the last counts, too: the earlier ones do not run again if their layers exist.
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
            has_kept: own[begun..].iter().any(|stage| stage.measures.kept.is_some()),
            traps_per_second: own[begun..].iter().map(|stage| stage.traps_per_second()).fold(0.0, f64::max),
            is_in_machine: own[begun..].iter().any(|stage| stage.measures.is_in_machine),
        }
    }

    /// Adds the latest build of a package to earlier ones. Of those with and without kept work, [`MEASURED_MAX`] stay.
    pub fn add_to(self, earlier: &mut Vec<Measurement>) {
        let has_kept = self.has_kept;
        // What it would do outside is known from earlier builds alone.
        let before = earlier.last().map_or(0.0, |last| last.traps_per_second);
        let least = if self.is_in_machine { before } else { 0.0 };
        earlier.push(Measurement { traps_per_second: self.traps_per_second.max(least), ..self });
        let excess =
            earlier.iter().filter(|one| one.has_kept == has_kept).count().saturating_sub(MEASURED_MAX);
        let mut alike = 0;
        earlier.retain(|one| {
            alike += usize::from(one.has_kept == has_kept);
            one.has_kept != has_kept || alike > excess
        });
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
            log_sha256: None,
            left_behind: Vec::new(),
            measures: Measures::default(),
        }
    }

    #[test]
    fn traps_are_known_from_builds_outside_of_virtual_machines() {
        let built = |traps: u64, is_in_machine: bool| {
            let measures = Measures { traps, is_in_machine, ..Measures::default() };
            let stages = [stage(Stage::Unpack, 1.0), StageResult { measures, ..stage(Stage::Build, 1.0) }];
            Measurement::of(&stages, 4, false)
        };
        let mut all = Vec::new();
        built(8000, false).add_to(&mut all);
        assert_eq!(all.last().unwrap().traps_per_second, 4000.0);
        // As often as builds are kept, and once more.
        for _ in 0..=MEASURED_MAX {
            built(0, true).add_to(&mut all);
        }
        assert_eq!(all.last().unwrap().traps_per_second, 4000.0);
        built(0, false).add_to(&mut all);
        assert_eq!(all.last().unwrap().traps_per_second, 0.0);
        let text = serde_json::to_string(&all.last().unwrap()).unwrap();
        assert!(!text.contains("traps"), "{text}");
    }

    #[test]
    fn the_last_run_of_a_stage_counts() {
        let times = |stages: &[(Stage, f64)]| -> Vec<f64> {
            let stages: Vec<StageResult> = stages.iter().map(|(name, cpu)| stage(*name, *cpu)).collect();
            Measurement::of(&stages, 2, false).stages.iter().map(|stage| stage.cpu_seconds).collect()
        };
        let (depends, build, test) = (Stage::Depends, Stage::Build, Stage::Test);
        // The next build does not make the layers again.
        let cold =
            [(Stage::Fetch, 9.0), (depends, 8.0), (depends, 1.0), (build, 5.0), (test, 6.0), (test, 2.0)];
        assert_eq!(times(&cold), [1.0, 5.0, 2.0]);
        assert_eq!(times(&[(depends, 1.0), (build, 5.0), (test, 2.0)]), [1.0, 5.0, 2.0]);
        // Built twice.
        assert_eq!(times(&[(depends, 1.0), (build, 5.0), (depends, 1.5), (build, 6.0)]), [1.5, 6.0]);
        assert!(times(&[]).is_empty());
    }
}
