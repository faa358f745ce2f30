//! The schema of `report.json`.
//!
//! Names end with their unit. Readers ignore unknown fields and treat missing lists as empty, so a report
//! written by a neighbouring version can still be shown. Times within a run are seconds since its start. A
//! number that JSON cannot represent (NaN, infinity) is written as zero, or as `null` if the field is optional.

use serde::{Deserialize, Serialize, Serializer};

/// The schema version that this crate writes. It increases when a field changes its meaning, not when one is
/// added.
pub const SCHEMA: u32 = 1;

/// All facts about one run: the content of `report.json`, shown by `index.html`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The schema version: see [`SCHEMA`].
    pub schema: u32,
    /// The version of Kilnyard that wrote the report.
    pub kilnyard: String,
    /// The path of the yard's folder.
    pub yard: String,
    /// The ecosystem: `debian`, `pkgsrc`, `rpm`.
    pub ecosystem: String,
    /// The release that was built, in the ecosystem's terms: `bookworm`, `2026Q3`.
    pub release: String,
    /// The target architecture, in the ecosystem's terms: `amd64`, `x86_64`.
    pub architecture: String,
    /// The number of the run in its yard.
    pub run: u64,
    /// Whether the run is still running.
    pub state: RunState,
    /// When the run started, in seconds since 1970-01-01 UTC.
    pub started_seconds: i64,
    /// How long the run took, or has taken so far, in seconds.
    #[serde(serialize_with = "number")]
    pub wall_seconds: f64,
    /// CPU time of all builds, including failed ones, in seconds.
    #[serde(serialize_with = "number")]
    pub cpu_seconds: f64,
    /// Number of cores that the run could use.
    pub cores: u32,
    /// Number of builds that could run in parallel.
    pub slots: u32,
    /// Number of packages by outcome.
    pub counts: Counts,
    /// Duration of the run according to the plan, in seconds; absent if there was no estimate.
    pub expected_wall_seconds: Option<f64>,
    /// Minimum duration: the larger of the longest path and all work divided by the cores.
    pub bound_seconds: Option<f64>,
    /// The longest path of builds that had to run one after another, in order.
    #[serde(default)]
    pub path: Vec<PathStep>,
    /// Every package of the run.
    #[serde(default)]
    pub packages: Vec<ReportPackage>,
    /// The causes of unexpected failures, the one with the most packages first.
    #[serde(default)]
    pub causes: Vec<ReportCause>,
    /// The dependencies that were cut because they formed a cycle.
    #[serde(default)]
    pub cycles_cut: Vec<CycleCut>,
    /// The packages of the tree that are not part of the run, and why.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// The commits that the sources were from, as far as they were from git.
    #[serde(default)]
    pub commits: Vec<ReportCommit>,
    /// The earlier run whose commits `changes` begin after.
    #[serde(default)]
    pub compared_run: Option<u64>,
    /// The commits since then, the newest first.
    #[serde(default)]
    pub changes: Vec<ReportChange>,
    /// The repository, if the run published it.
    pub repository: Option<RepositoryFacts>,
    /// Notes about the whole run, at least one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Default for Report {
    /// A run without packages that has just begun, in a yard without a name.
    fn default() -> Self {
        Report {
            schema: SCHEMA,
            kilnyard: String::new(),
            yard: String::new(),
            ecosystem: String::new(),
            release: String::new(),
            architecture: String::new(),
            run: 0,
            state: RunState::default(),
            started_seconds: 0,
            wall_seconds: 0.0,
            cpu_seconds: 0.0,
            cores: 0,
            slots: 0,
            counts: Counts::default(),
            expected_wall_seconds: None,
            bound_seconds: None,
            path: Vec::new(),
            packages: Vec::new(),
            causes: Vec::new(),
            cycles_cut: Vec::new(),
            left_out: Vec::new(),
            commits: Vec::new(),
            compared_run: None,
            changes: Vec::new(),
            repository: None,
            notes: Vec::new(),
        }
    }
}

/// Whether a run is in progress, has finished, or was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Builds are still running.
    #[default]
    Running,
    /// Everything that could be built was attempted.
    Finished,
    /// The run was stopped; the same command continues it.
    Interrupted,
}

/// The commit that sources of a run were from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportCommit {
    /// The tree, or the repository.
    pub source: String,
    /// The id of the commit.
    pub commit: String,
}

/// A commit between those of two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportChange {
    /// The tree, or the repository.
    pub source: String,
    /// The id of the commit.
    pub commit: String,
    /// Who wrote it.
    pub author: String,
    /// The day on which it was written, in UTC.
    pub date: String,
    /// The lines of its message that people wrote.
    pub lines: Vec<String>,
}

/// Number of packages by outcome. Each package counts once, so the others, except `failed_as_expected`, add up to
/// `total` plus `left_out`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// The packages of the run, without those left out.
    pub total: u64,
    /// Built, with new outputs.
    pub built: u64,
    /// Built, with the same content as before.
    pub unchanged: u64,
    /// Not built because none of the inputs changed.
    pub up_to_date: u64,
    /// The last build failed.
    pub failed: u64,
    /// Those of `failed` that were expected to fail.
    pub failed_as_expected: u64,
    /// Not built because a dependency failed.
    pub blocked: u64,
    /// Not built because the user did not ask for them.
    pub skipped: u64,
    /// In the tree, but not part of the run.
    pub left_out: u64,
    /// Not finished: waiting or building.
    pub waiting: u64,
}

impl Counts {
    /// The packages that failed unexpectedly.
    pub fn failed_unexpectedly(&self) -> u64 {
        self.failed.saturating_sub(self.failed_as_expected)
    }
}

/// One build on the longest path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathStep {
    /// The package's name.
    pub package: String,
    /// Measured or expected duration of the build.
    #[serde(serialize_with = "number")]
    pub seconds: f64,
}

/// The outcome of a package, or its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageState {
    /// Built, with new outputs.
    Built,
    /// Built, with the same content as before.
    Unchanged,
    /// Not built because none of the inputs changed.
    UpToDate,
    /// The last build failed.
    Failed,
    /// Not built because a dependency failed.
    Blocked,
    /// Not built because the user did not ask for it.
    Skipped,
    /// Not built yet.
    #[default]
    Waiting,
    /// The build is running.
    Building,
}

/// One package of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportPackage {
    /// Unique name within the run.
    pub name: String,
    /// Version of the recipe, or of the last build.
    pub version: String,
    /// Its outcome or current state.
    pub state: PackageState,
    /// Why it was built or not.
    #[serde(default)]
    pub reason: String,
    /// The slot that built it, counted from zero across all workers.
    pub slot: Option<u32>,
    /// Number of attempts.
    #[serde(default)]
    pub attempts: u32,
    /// Number of its last build. Absent if it was not built in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<u64>,
    /// Start of its last build.
    pub started_seconds: Option<f64>,
    /// Duration of its last build, so far if still running.
    #[serde(default, serialize_with = "number")]
    pub wall_seconds: f64,
    /// CPU time of its last build.
    #[serde(default, serialize_with = "number")]
    pub cpu_seconds: f64,
    /// Peak memory of its last build.
    #[serde(default)]
    pub memory_peak_bytes: u64,
    /// The stages of its last build, in order.
    #[serde(default)]
    pub stages: Vec<ReportStage>,
    /// The binary packages that the build produced.
    #[serde(default)]
    pub outputs: Vec<ReportOutput>,
    /// Direct dependencies within the run.
    #[serde(default)]
    pub depends: Vec<String>,
    /// The failed packages that block it: the culprits, not those in between.
    #[serde(default)]
    pub blocked_by: Vec<String>,
    /// The packages that its failure blocks, directly or indirectly.
    #[serde(default)]
    pub blocks: Vec<String>,
    /// The cause of the failure, if any.
    pub failure: Option<ReportFailure>,
    /// Whether a second build gave the same outputs. Absent if there was none.
    pub reproducible: Option<bool>,
    /// Whether the owner of the yard expects its build to fail.
    #[serde(default)]
    pub is_expected_to_fail: bool,
    /// Why, in the owner's words.
    #[serde(default)]
    pub because: Option<String>,
    /// A note of the owner.
    #[serde(default)]
    pub note: Option<String>,
    /// Whether its build had network access.
    #[serde(default)]
    pub has_network: bool,
}

/// One stage of a build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportStage {
    /// The stage: `fetch`, `configure`, `build`.
    pub name: String,
    /// Start of the stage.
    #[serde(serialize_with = "number")]
    pub started_seconds: f64,
    /// Duration of the stage, so far if still running.
    #[serde(serialize_with = "number")]
    pub wall_seconds: f64,
    /// CPU time of the stage.
    #[serde(default, serialize_with = "number")]
    pub cpu_seconds: f64,
    /// Peak memory of the stage.
    #[serde(default)]
    pub memory_peak_bytes: u64,
    /// User time in seconds; 0 if it was not measured separately.
    #[serde(default, serialize_with = "number")]
    pub user_seconds: f64,
    /// System time in seconds; 0 if it was not measured separately.
    #[serde(default, serialize_with = "number")]
    pub system_seconds: f64,
    /// Bytes read from disks. Absent if the kernel does not count them.
    #[serde(default)]
    pub read_bytes: Option<u64>,
    /// Bytes written to disks. Absent if the kernel does not count them.
    #[serde(default)]
    pub written_bytes: Option<u64>,
    /// Number of processes and threads started.
    #[serde(default)]
    pub processes: u64,
    /// How long at least one process waited for a core, memory or a disk. Absent if not counted.
    #[serde(default)]
    pub stalled: Option<ReportStalls>,
    /// Processes that it left running, which were killed, and objects that it left in shared memory.
    #[serde(default)]
    pub left_behind: Vec<String>,
    /// The outcome: `ok`, `skipped`, `cancelled` or `running`; any other word is a kind of failure.
    pub outcome: String,
    /// The log's path, relative to the folder of the report.
    pub log: Option<String>,
}

/// How long a stage waited for resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportStalls {
    /// Waiting for a core.
    #[serde(default, serialize_with = "number")]
    pub cpu_seconds: f64,
    /// Waiting for memory.
    #[serde(default, serialize_with = "number")]
    pub memory_seconds: f64,
    /// Waiting for a disk.
    #[serde(default, serialize_with = "number")]
    pub io_seconds: f64,
    /// Whether the figures cover all processes of the machine instead of only the stage's.
    #[serde(default)]
    pub is_of_machine: bool,
}

impl ReportStage {
    /// Whether the stage failed.
    pub fn failed(&self) -> bool {
        !matches!(self.outcome.as_str(), "" | "ok" | "skipped" | "running" | "cancelled")
    }
}

/// A file that a build produced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportOutput {
    /// Name of the binary package.
    pub name: String,
    /// Version of the binary package.
    pub version: String,
    /// Architecture of the binary package.
    pub architecture: String,
    /// Size of the file in bytes.
    pub size_bytes: u64,
}

/// The cause of a failed build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportFailure {
    /// The stage that failed; the same word as in [`ReportStage::name`].
    pub stage: String,
    /// The kind of failure: `exit`, `timeout`, `memory`.
    pub kind: String,
    /// The cause, in one sentence.
    pub message: String,
    /// Line number of the relevant line in the stage's log, from one.
    pub line_number: Option<u64>,
    /// An excerpt of the log. The relevant line is the one that contains the message (or is contained in it);
    /// if there is none, the last line.
    #[serde(default)]
    pub lines: Vec<String>,
}

/// Packages that failed for the same cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportCause {
    /// What the messages have in common, with the stage.
    pub title: String,
    /// The names of the packages.
    pub packages: Vec<String>,
}

/// A dependency that was cut because it was part of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleCut {
    /// The package whose dependency was cut.
    pub package: String,
    /// The dependency that was cut. It is not built before the package.
    pub dependency: String,
    /// All packages in the cycle.
    #[serde(default)]
    pub members: Vec<String>,
    /// How the build manages without it, as text.
    pub how: String,
}

/// A package of the tree that is not part of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The package's name.
    pub package: String,
    /// Why, on one or more lines.
    pub reason: String,
}

/// The repository that the run published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RepositoryFacts {
    /// The repository's folder.
    pub path: String,
    /// The line that makes a machine use the repository.
    pub sources_line: String,
    /// Fingerprint of the signing key.
    pub fingerprint: String,
    /// Number of binary packages in the repository.
    pub packages: u64,
}

/// Serializes non-finite numbers as zero, because a `null` could not be read back. Microseconds are enough.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let value = if value.is_finite() { *value } else { 0.0 };
    let rounded = (value * 1e6).round() / 1e6;
    serializer.serialize_f64(if rounded.is_finite() { rounded } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kebab_case_words() {
        assert_eq!(serde_json::to_string(&PackageState::UpToDate).unwrap(), r#""up-to-date""#);
        assert_eq!(serde_json::to_string(&RunState::Interrupted).unwrap(), r#""interrupted""#);
        assert_eq!(serde_json::from_str::<PackageState>(r#""blocked""#).unwrap(), PackageState::Blocked);
    }

    #[test]
    fn a_report_survives_being_written_and_read() {
        let report = Report {
            yard: "internal".into(),
            packages: vec![ReportPackage {
                name: "zlib".into(),
                wall_seconds: 1.5,
                ..ReportPackage::default()
            }],
            ..Report::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn unknown_fields_are_ignored_and_missing_lists_are_empty() {
        let mut value = serde_json::to_value(Report::default()).unwrap();
        let fields = value.as_object_mut().unwrap();
        fields.insert("from_the_future".into(), serde_json::json!({"a": [1]}));
        fields.remove("packages");
        fields.remove("expected_wall_seconds");
        assert_eq!(serde_json::from_value::<Report>(value).unwrap(), Report::default());
    }

    #[test]
    fn non_finite_numbers_can_be_read_back() {
        let report = Report {
            wall_seconds: f64::NAN,
            cpu_seconds: f64::INFINITY,
            bound_seconds: Some(f64::NAN),
            ..Report::default()
        };
        let read: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(read, Report::default());
    }
}
