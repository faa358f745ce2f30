//! The difference of two runs, and what a change would rebuild.

use crate::run::Commit;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A commit between those of two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// What it is a commit of: the tree, or the repository.
    pub source: String,
    /// Its id.
    pub commit: String,
    /// Who wrote it.
    pub author: String,
    /// When it was written, in seconds since 1970.
    pub date_seconds: i64,
    /// The lines of its message that people wrote, the first one being its subject.
    pub lines: Vec<String>,
}

/// The difference of two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// The earlier run.
    pub earlier: u64,
    /// The later run.
    pub later: u64,
    /// The commits of the earlier run's sources.
    pub earlier_commits: Vec<Commit>,
    /// The commits of the later run's sources.
    pub later_commits: Vec<Commit>,
    /// The commits between them, the newest first.
    pub changes: Vec<Change>,
    /// Packages that have no outputs in the later run alone: name and reason.
    pub newly_failing: Vec<(String, String)>,
    /// Packages that have none in both, in different states.
    pub otherwise_failing: Vec<OtherState>,
    /// Names of packages that have outputs in the later run alone.
    pub newly_fixed: Vec<String>,
    /// Packages of another version.
    pub new_versions: Vec<NewVersion>,
    /// Names of packages that only the earlier run had.
    pub only_earlier: Vec<String>,
    /// Names of packages that only the later run had.
    pub only_later: Vec<String>,
    /// Packages that took more CPU time, the largest difference first.
    pub slower: Vec<Slower>,
    /// Packages that used more memory, the largest difference first.
    pub larger: Vec<Larger>,
}

/// A package that was not built in either of two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OtherState {
    /// Its name.
    pub package: String,
    /// Its state in the earlier run.
    pub earlier_state: String,
    /// Its state in the later run.
    pub later_state: String,
    /// Why it is in that state.
    pub reason: String,
}

/// A package with another version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewVersion {
    /// Its name.
    pub package: String,
    /// Its version in the earlier run; empty if it had none.
    pub earlier_version: String,
    /// Its version in the later run.
    pub later_version: String,
}

/// A package that took more CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Slower {
    /// Its name.
    pub package: String,
    /// CPU time in the earlier run.
    pub earlier_cpu_seconds: f64,
    /// CPU time in the later run.
    pub later_cpu_seconds: f64,
}

/// A package that used more memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Larger {
    /// Its name.
    pub package: String,
    /// The largest sampled memory usage in the earlier run.
    pub earlier_memory_peak_bytes: u64,
    /// The largest sampled memory usage in the later run.
    pub later_memory_peak_bytes: u64,
}

/// What a change of packages would rebuild, at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Impact {
    /// Names of the packages that change.
    pub changed: Vec<String>,
    /// The packages that depend on them, the nearest first.
    pub rebuilt: Vec<Rebuilt>,
    /// The estimated build time of all of these.
    pub work_seconds: f64,
    /// The longest estimated path through them.
    pub path_seconds: f64,
    /// The number of packages in the set.
    pub packages_of_the_set: u64,
}

/// A package that a change would rebuild.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rebuilt {
    /// Its name.
    pub package: String,
    /// The package that leads to it.
    pub via: String,
    /// The number of steps from a package that changes.
    pub depth: u32,
    /// Its estimated duration.
    pub estimate_seconds: f64,
}
