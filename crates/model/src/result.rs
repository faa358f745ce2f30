//! What became of packages and builds.

use crate::order::Stage;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a package stands in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageState {
    /// Its dependencies are not all there yet.
    Waiting,
    /// It can be built; what it needs is being worked out or fetched, or it waits for a slot.
    Ready,
    /// It is being built.
    Building,
    /// It was built in this run, and its outputs are new.
    Built,
    /// It was built in this run to the same content, or what it needs turned out the same; the outputs that
    /// were there stay.
    Unchanged,
    /// Its key is that of the outputs that are there: nothing to do.
    UpToDate,
    /// It could not be built.
    Failed,
    /// Something that it needs failed or was skipped.
    Blocked,
    /// It was left out of the run on request.
    Skipped,
    /// It could not be resolved.
    LeftOut,
}

impl PackageState {
    /// All states.
    pub const ALL: [PackageState; 10] = [
        PackageState::Waiting,
        PackageState::Ready,
        PackageState::Building,
        PackageState::Built,
        PackageState::Unchanged,
        PackageState::UpToDate,
        PackageState::Failed,
        PackageState::Blocked,
        PackageState::Skipped,
        PackageState::LeftOut,
    ];

    /// The state's name.
    pub fn as_str(self) -> &'static str {
        match self {
            PackageState::Waiting => "waiting",
            PackageState::Ready => "ready",
            PackageState::Building => "building",
            PackageState::Built => "built",
            PackageState::Unchanged => "unchanged",
            PackageState::UpToDate => "up-to-date",
            PackageState::Failed => "failed",
            PackageState::Blocked => "blocked",
            PackageState::Skipped => "skipped",
            PackageState::LeftOut => "left-out",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<PackageState> {
        PackageState::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the package's outputs are there, so that its dependents can go on.
    pub fn is_there(self) -> bool {
        matches!(self, PackageState::Built | PackageState::Unchanged | PackageState::UpToDate)
    }

    /// Whether the run has nothing more to do for the package.
    pub fn is_final(self) -> bool {
        !matches!(self, PackageState::Waiting | PackageState::Ready | PackageState::Building)
    }
}

impl fmt::Display for PackageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// A command ended with an error.
    Command,
    /// A stage took too long.
    WallLimit,
    /// A stage was silent for too long.
    IdleLimit,
    /// There was not enough memory.
    Memory,
    /// A file could not be had.
    Fetch,
    /// What the package needs cannot be installed.
    Dependencies,
    /// The outputs are wrong or missing.
    Outputs,
    /// The outputs cannot be installed or removed.
    Test,
    /// The machine is at fault and not the package.
    Machine,
    /// It was ended on request.
    Cancelled,
}

impl FailureKind {
    /// The kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Command => "command",
            FailureKind::WallLimit => "wall-limit",
            FailureKind::IdleLimit => "idle-limit",
            FailureKind::Memory => "memory",
            FailureKind::Fetch => "fetch",
            FailureKind::Dependencies => "dependencies",
            FailureKind::Outputs => "outputs",
            FailureKind::Test => "test",
            FailureKind::Machine => "machine",
            FailureKind::Cancelled => "cancelled",
        }
    }
}

/// Why a build failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In which stage.
    pub stage: Stage,
    /// What kind of thing went wrong.
    pub kind: FailureKind,
    /// One sentence.
    pub message: String,
    /// The line of the stage's log that matters, from 1.
    pub line_number: Option<u64>,
    /// That line with some around it.
    pub lines: Vec<String>,
}

/// What a stage did and used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageResult {
    /// Which stage.
    pub stage: Stage,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// How long it took.
    pub wall_seconds: f64,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// The largest memory that was sampled.
    pub memory_peak_bytes: u64,
    /// What the build's work folder held at its end, where that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_bytes: Option<u64>,
    /// What the build had written to its root at its end, without its work folder, where that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// For how long it could have used more than one core, where somebody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_seconds: Option<f64>,
    /// Whether it did what it should.
    pub is_ok: bool,
    /// Its log, relative to the yard, without the suffix of the compression.
    pub log: Option<String>,
    /// Processes that it left running and that were ended.
    pub left_behind: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_known_by_their_names() {
        for state in PackageState::ALL {
            assert_eq!(PackageState::parse(state.as_str()), Some(state));
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
            assert!(!state.is_there() || state.is_final());
        }
    }
}
