//! The schema of `report.json`.
//!
//! Units stand last in names. Fields that this version does not know are ignored on reading, and lists that are
//! missing read as empty, so a report written by a neighbouring version can still be shown. Times inside a run are
//! seconds since the start of the run; a number that JSON cannot hold (not a number, infinite) is written as zero,
//! or as `null` where the field is optional.

use serde::{Deserialize, Serialize, Serializer};

/// The version of the schema that this crate writes. It grows when a field changes its meaning, not when one is
/// added.
pub const SCHEMA: u32 = 1;

/// All that is known about one run: what `report.json` holds and `index.html` shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of this schema, [`SCHEMA`].
    pub schema: u32,
    /// The version of Kilnyard that wrote the report.
    pub kilnyard: String,
    /// The name of the yard.
    pub yard: String,
    /// The ecosystem: `debian`, `pkgsrc`, `rpm`.
    pub ecosystem: String,
    /// The release that was built for, in the ecosystem's words: `bookworm`, `2026Q3`.
    pub release: String,
    /// The architecture that was built for.
    pub architecture: String,
    /// The number of the run in its yard.
    pub run: u64,
    /// Whether the run is still running.
    pub state: RunState,
    /// When the run started, in seconds since 1970-01-01 UTC.
    pub started_seconds: i64,
    /// How long the run took, or has taken so far.
    #[serde(serialize_with = "number")]
    pub wall_seconds: f64,
    /// The CPU time of all its builds together.
    #[serde(serialize_with = "number")]
    pub cpu_seconds: f64,
    /// How many cores the run could use.
    pub cores: u32,
    /// How many builds could run at the same time.
    pub slots: u32,
    /// How many packages ended how.
    pub counts: Counts,
    /// How long the plan said the run would take.
    pub expected_wall_seconds: Option<f64>,
    /// What no schedule can beat: the larger of the longest path and all the work divided by the cores.
    pub bound_seconds: Option<f64>,
    /// The longest path of builds that had to follow one another, first build first.
    #[serde(default)]
    pub path: Vec<PathStep>,
    /// Every package of the run.
    #[serde(default)]
    pub packages: Vec<ReportPackage>,
    /// The dependencies that were cut because they formed a cycle.
    #[serde(default)]
    pub cycles_cut: Vec<CycleCut>,
    /// The packages of the tree that did not enter the run, and why.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// The repository that was published, if one was.
    pub repository: Option<RepositoryFacts>,
    /// Remarks about the run as a whole, one sentence or more each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Default for Report {
    /// A run of no packages, just begun, in a yard without a name.
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
            cycles_cut: Vec::new(),
            left_out: Vec::new(),
            repository: None,
            notes: Vec::new(),
        }
    }
}

/// Whether a run is running, finished, or was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Builds are still being done.
    #[default]
    Running,
    /// Everything that could be built was tried.
    Finished,
    /// The run was stopped; the same command continues it.
    Interrupted,
}

/// How many packages ended how. Each package is counted once, so the others add up to `total` and `left_out`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// The packages of the run, without those left out.
    pub total: u64,
    /// Built, with outputs that are new.
    pub built: u64,
    /// Built, with outputs whose content is what it was before.
    pub unchanged: u64,
    /// Not built because nothing that goes in has changed.
    pub up_to_date: u64,
    /// Tried, without success.
    pub failed: u64,
    /// Not tried because something they need failed.
    pub blocked: u64,
    /// Not tried because they were not asked for.
    pub skipped: u64,
    /// In the tree but never in the run.
    pub left_out: u64,
    /// Not finished yet: still to be built, or being built now.
    pub waiting: u64,
}

/// One build on the longest path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathStep {
    /// The package.
    pub package: String,
    /// What its build took, or is expected to take.
    #[serde(serialize_with = "number")]
    pub seconds: f64,
}

/// How a package ended, or where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageState {
    /// Built, with outputs that are new.
    Built,
    /// Built, with outputs whose content is what it was before.
    Unchanged,
    /// Not built because nothing that goes in has changed.
    UpToDate,
    /// Tried, without success.
    Failed,
    /// Not tried because something it needs failed.
    Blocked,
    /// Not tried because it was not asked for.
    Skipped,
    /// Still to be built.
    #[default]
    Waiting,
    /// Being built now.
    Building,
}

/// One package of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportPackage {
    /// Its name, which no other package of the run has.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How it ended, or where it stands.
    pub state: PackageState,
    /// Why it was built, or why not.
    #[serde(default)]
    pub reason: String,
    /// The slot that built it, counted from zero over all workers.
    pub slot: Option<u32>,
    /// How often it was tried.
    #[serde(default)]
    pub attempts: u32,
    /// When its last build started, since the start of the run.
    pub started_seconds: Option<f64>,
    /// How long its last build took, or has taken so far.
    #[serde(default, serialize_with = "number")]
    pub wall_seconds: f64,
    /// The CPU time of its last build.
    #[serde(default, serialize_with = "number")]
    pub cpu_seconds: f64,
    /// The most memory that its last build held at one time.
    #[serde(default)]
    pub memory_peak_bytes: u64,
    /// The stages of its last build, in order.
    #[serde(default)]
    pub stages: Vec<ReportStage>,
    /// What the build made.
    #[serde(default)]
    pub outputs: Vec<ReportOutput>,
    /// The packages of the run that it needs directly.
    #[serde(default)]
    pub depends: Vec<String>,
    /// The packages whose failure keeps it from being built: the culprits, not those in between.
    #[serde(default)]
    pub blocked_by: Vec<String>,
    /// The packages that its failure keeps from being built, directly or through others.
    #[serde(default)]
    pub blocks: Vec<String>,
    /// What went wrong, if something did.
    pub failure: Option<ReportFailure>,
    /// Whether a second build gave the same outputs; nothing if that was not tried.
    pub reproducible: Option<bool>,
}

/// One stage of a build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportStage {
    /// Its name: `fetch`, `configure`, `build`.
    pub name: String,
    /// When it started, since the start of the run.
    #[serde(serialize_with = "number")]
    pub started_seconds: f64,
    /// How long it took, or has taken so far.
    #[serde(serialize_with = "number")]
    pub wall_seconds: f64,
    /// Its CPU time.
    #[serde(default, serialize_with = "number")]
    pub cpu_seconds: f64,
    /// The most memory that it held at one time.
    #[serde(default)]
    pub memory_peak_bytes: u64,
    /// Its user time, as far as it is known apart.
    #[serde(default, serialize_with = "number")]
    pub user_seconds: f64,
    /// Its system time, as far as it is known apart.
    #[serde(default, serialize_with = "number")]
    pub system_seconds: f64,
    /// Bytes that it read from disks, where the kernel counts them.
    #[serde(default)]
    pub read_bytes: Option<u64>,
    /// Bytes that it wrote to disks, where the kernel counts them.
    #[serde(default)]
    pub written_bytes: Option<u64>,
    /// Processes and threads that it began.
    #[serde(default)]
    pub processes: u64,
    /// For how long some process waited for a core, for memory, for a disk, where it was counted.
    #[serde(default)]
    pub stalled: Option<ReportStalls>,
    /// Processes that it left running and that were ended, and what it left in shared memory.
    #[serde(default)]
    pub left_behind: Vec<String>,
    /// How it ended: `ok`, `skipped`, `running`; every other word is a way to fail.
    pub outcome: String,
    /// Its log: a path relative to the folder of the report.
    pub log: Option<String>,
}

/// What a stage waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportStalls {
    /// For a core.
    #[serde(default, serialize_with = "number")]
    pub cpu_seconds: f64,
    /// For memory.
    #[serde(default, serialize_with = "number")]
    pub memory_seconds: f64,
    /// For a disk.
    #[serde(default, serialize_with = "number")]
    pub io_seconds: f64,
    /// Whether it is what all processes of the machine waited.
    #[serde(default)]
    pub is_of_machine: bool,
}

impl ReportStage {
    /// Whether the stage ended badly.
    pub fn failed(&self) -> bool {
        !matches!(self.outcome.as_str(), "" | "ok" | "skipped" | "running")
    }
}

/// One file that a build made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportOutput {
    /// The name of the binary package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture.
    pub architecture: String,
    /// The size of the file.
    pub size_bytes: u64,
}

/// What went wrong in a build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportFailure {
    /// The stage that failed.
    pub stage: String,
    /// The kind of failure: `exit`, `timeout`, `memory`.
    pub kind: String,
    /// One sentence that says what went wrong.
    pub message: String,
    /// Where in the log of the stage the line that matters stands, counted from one.
    pub line_number: Option<u64>,
    /// The telling lines of the log. The one that matters is the one that contains the message (or is contained in
    /// it); where no line does, the last.
    #[serde(default)]
    pub lines: Vec<String>,
}

/// A dependency that was cut because it closed a cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleCut {
    /// The package whose dependency was cut.
    pub package: String,
    /// The dependency that was cut.
    pub dependency: String,
    /// All packages of the cycle.
    #[serde(default)]
    pub members: Vec<String>,
    /// How the build does without it, in words.
    pub how: String,
}

/// A package of the tree that did not enter the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The package.
    pub package: String,
    /// Why, in one line or many.
    pub reason: String,
}

/// The repository that the run published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RepositoryFacts {
    /// Where it is.
    pub path: String,
    /// The line that makes a machine use it.
    pub sources_line: String,
    /// The fingerprint of the key that signed it.
    pub fingerprint: String,
    /// How many outputs it holds.
    pub packages: u64,
}

/// Writes a number that JSON can hold: what is not finite becomes zero, because `null` could not be read back.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(if value.is_finite() { *value } else { 0.0 })
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
    fn numbers_that_json_lacks_are_written_so_that_they_can_be_read() {
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
