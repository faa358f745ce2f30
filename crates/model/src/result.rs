//! Results of packages and builds.

use crate::keep::KeptWork;
use crate::order::Stage;
use crate::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of a package in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageState {
    /// Not all of its dependencies are available.
    Waiting,
    /// It can be built: its order is being prepared or its files fetched, or it waits for a slot.
    Ready,
    /// It is being built.
    Building,
    /// It was built in this run, and its outputs are new.
    Built,
    /// It was built in this run with the same content, or its dependencies were; the existing outputs stay.
    Unchanged,
    /// The existing outputs have the same key: nothing to build.
    UpToDate,
    /// It could not be built.
    Failed,
    /// A dependency failed or was skipped.
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

    /// The name of the state, as in databases and JSON.
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

    /// The state with this name; absent if there is none.
    pub fn parse(name: &str) -> Option<PackageState> {
        PackageState::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the package's outputs exist, so that its dependents can be built.
    pub fn has_outputs(self) -> bool {
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

/// The outcome of a build, including one that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BuildOutcome {
    /// It has not ended, or its end was not recorded.
    Building,
    /// Its outputs are new.
    Built,
    /// Its outputs have the same content as the existing ones, which stay.
    Unchanged,
    /// It failed.
    Failed,
    /// It ended without a result: it was cancelled, or its worker was lost.
    Lost,
    /// A newer version of Kilnyard recorded this text, which is displayed unchanged.
    Unknown(String),
}

impl BuildOutcome {
    /// All outcomes that this version records.
    pub const ALL: [BuildOutcome; 5] = [
        BuildOutcome::Building,
        BuildOutcome::Built,
        BuildOutcome::Unchanged,
        BuildOutcome::Failed,
        BuildOutcome::Lost,
    ];

    /// The name of the outcome, as in databases and JSON.
    pub fn as_str(&self) -> &str {
        match self {
            BuildOutcome::Building => "building",
            BuildOutcome::Built => "built",
            BuildOutcome::Unchanged => "unchanged",
            BuildOutcome::Failed => "failed",
            BuildOutcome::Lost => "lost",
            BuildOutcome::Unknown(text) => text,
        }
    }

    /// The outcome with this name. Every text gives an outcome, so that a store of a newer version stays readable.
    pub fn parse(text: &str) -> BuildOutcome {
        let known = BuildOutcome::ALL.into_iter().find(|outcome| outcome.as_str() == text);
        known.unwrap_or_else(|| BuildOutcome::Unknown(text.to_owned()))
    }

    /// Whether the build made outputs that can be published. Estimates use the times of such builds.
    pub fn is_good(&self) -> bool {
        match self {
            BuildOutcome::Built | BuildOutcome::Unchanged => true,
            BuildOutcome::Building | BuildOutcome::Failed | BuildOutcome::Lost | BuildOutcome::Unknown(_) => {
                false
            }
        }
    }
}

impl fmt::Display for BuildOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for BuildOutcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for BuildOutcome {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<BuildOutcome, D::Error> {
        String::deserialize(deserializer).map(|text| BuildOutcome::parse(&text))
    }
}

/// The verdict on a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// A command ended with an error.
    Command,
    /// A stage took too long.
    WallLimit,
    /// A stage used too much CPU time.
    CpuLimit,
    /// A stage did nothing at all for too long: it waits for an event that does not come.
    Hung,
    /// A stage used CPU time for too long, without printing anything or starting a process: an endless loop.
    Spinning,
    /// A stage started processes but printed nothing for too long. Earlier versions called all three kinds
    /// `idle-limit`.
    #[serde(alias = "idle-limit")]
    Silent,
    /// The build or the machine ran out of memory.
    Memory,
    /// It had too many processes at once.
    Processes,
    /// The disk was full.
    Disk,
    /// It wrote more than its limit.
    DiskLimit,
    /// One of its processes was not allowed to open another file.
    OpenFiles,
    /// A signal ended the command, probably from outside the package.
    Signal,
    /// It needs the network, which builds do not have.
    NoNetwork,
    /// The network failed while something was fetched.
    Network,
    /// A file cannot be fetched.
    Fetch,
    /// Its dependencies cannot be installed.
    Dependencies,
    /// It named requirements that its recipe does not have, and is built again with them.
    Requirements,
    /// The outputs are wrong or missing.
    Outputs,
    /// The outputs cannot be installed or removed.
    Test,
    /// The machine failed, not the package.
    Machine,
    /// Its worker was lost.
    Lost,
    /// It was ended on request.
    Cancelled,
}

impl FailureKind {
    /// All kinds, in the order of their definition.
    pub const ALL: [FailureKind; 22] = [
        FailureKind::Command,
        FailureKind::WallLimit,
        FailureKind::CpuLimit,
        FailureKind::Hung,
        FailureKind::Spinning,
        FailureKind::Silent,
        FailureKind::Memory,
        FailureKind::Processes,
        FailureKind::Disk,
        FailureKind::DiskLimit,
        FailureKind::OpenFiles,
        FailureKind::Signal,
        FailureKind::NoNetwork,
        FailureKind::Network,
        FailureKind::Fetch,
        FailureKind::Dependencies,
        FailureKind::Requirements,
        FailureKind::Outputs,
        FailureKind::Test,
        FailureKind::Machine,
        FailureKind::Lost,
        FailureKind::Cancelled,
    ];

    /// The name of the kind, as in databases and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Command => "command",
            FailureKind::WallLimit => "wall-limit",
            FailureKind::CpuLimit => "cpu-limit",
            FailureKind::Hung => "hung",
            FailureKind::Spinning => "spinning",
            FailureKind::Silent => "silent",
            FailureKind::Memory => "memory",
            FailureKind::Processes => "processes",
            FailureKind::Disk => "disk",
            FailureKind::DiskLimit => "disk-limit",
            FailureKind::OpenFiles => "open-files",
            FailureKind::Signal => "signal",
            FailureKind::NoNetwork => "no-network",
            FailureKind::Network => "network",
            FailureKind::Fetch => "fetch",
            FailureKind::Dependencies => "dependencies",
            FailureKind::Requirements => "requirements",
            FailureKind::Outputs => "outputs",
            FailureKind::Test => "test",
            FailureKind::Machine => "machine",
            FailureKind::Lost => "lost",
            FailureKind::Cancelled => "cancelled",
        }
    }

    /// Whether the cause may be outside the package and temporary, so that a retry may succeed.
    pub fn is_transient(self) -> bool {
        match self {
            FailureKind::Memory
            | FailureKind::Disk
            | FailureKind::Signal
            | FailureKind::Network
            | FailureKind::Machine
            | FailureKind::Lost => true,
            FailureKind::Command
            | FailureKind::WallLimit
            | FailureKind::CpuLimit
            | FailureKind::Hung
            | FailureKind::Spinning
            | FailureKind::Silent
            | FailureKind::Processes
            | FailureKind::DiskLimit
            | FailureKind::OpenFiles
            | FailureKind::NoNetwork
            | FailureKind::Fetch
            | FailureKind::Dependencies
            | FailureKind::Requirements
            | FailureKind::Outputs
            | FailureKind::Test
            | FailureKind::Cancelled => false,
        }
    }
}

/// Why a build failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The stage that failed, or that could not start.
    pub stage: Stage,
    /// The verdict, by which failures are counted and retried.
    pub kind: FailureKind,
    /// The cause, in one sentence.
    pub message: String,
    /// The line of the stage's log that explains the failure, from 1; absent if none was found.
    pub line_number: Option<u64>,
    /// That line with its context.
    pub lines: Vec<String>,
}

/// The result and resource usage of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageResult {
    /// The stage that ended.
    pub stage: Stage,
    /// Start time, in seconds since 1970.
    pub started_seconds: f64,
    /// Elapsed time.
    pub wall_seconds: f64,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// The largest sampled memory usage.
    pub memory_peak_bytes: u64,
    /// Size of the build's work folder at the end of the stage, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_bytes: Option<u64>,
    /// Size of the files written to the build's root by the end of the stage, without its work folder, if it was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// How long it could have used more than one core, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_seconds: Option<f64>,
    /// Whether it succeeded.
    pub is_ok: bool,
    /// Path of its log, relative to the yard, without the suffix of the compression.
    pub log: Option<String>,
    /// The hash of its compressed log, by which machines that share their files find it. The worker says so: readers of the
    /// file compare it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_sha256: Option<Sha256Hex>,
    /// Processes that it left running, which were killed, and objects that it left in shared memory.
    pub left_behind: Vec<String>,
    /// Other measurements.
    #[serde(default)]
    pub measures: Measures,
}

impl StageResult {
    /// How many traps a second stalled other cores.
    pub fn traps_per_second(&self) -> f64 {
        // A command that ends at once has no rate.
        self.measures.traps as f64 / self.wall_seconds.max(0.1)
    }
}

/// Further measurements of a stage. They have default values in stages recorded before they were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measures {
    /// User time of all its processes. With the system time it is the CPU time, unless a sandbox had to be killed.
    pub user_seconds: f64,
    /// System time of all its processes.
    pub system_seconds: f64,
    /// Bytes read from disks, if the kernel counts them.
    pub read_bytes: Option<u64>,
    /// Bytes written to disks, or due to be written, if the kernel counts them.
    pub written_bytes: Option<u64>,
    /// Number of processes and threads started.
    pub processes: u64,
    /// How long some process waited for a core, if the kernel counts it.
    pub cpu_stalled_seconds: Option<f64>,
    /// How long some process waited for memory, if the kernel counts it.
    pub memory_stalled_seconds: Option<f64>,
    /// How long some process waited for a disk, if the kernel counts it.
    pub io_stalled_seconds: Option<f64>,
    /// Whether the stall times are those of all processes of the machine.
    pub is_stalled_of_machine: bool,
    /// The longest time without any activity.
    pub still_seconds_max: f64,
    /// The longest time without output.
    pub silent_seconds_max: f64,
    /// Instructions that the kernel emulated and accesses to memory that it repeated, each of which stalls other cores.
    #[serde(skip_serializing_if = "is_zero")]
    pub traps: u64,
    /// Whether its commands ran in a virtual machine, where they stall no core but that machine's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_in_machine: bool,
    /// The kept work that it began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptWork>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The traps a second from which a build is said to stall other cores: at this rate, they stand still for about a thousandth of
/// the time.
pub const STALLING_TRAPS_PER_SECOND: f64 = 1000.0;

/// The maximum resource usage of a package's stage in successful builds, from which its limits are learned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageSeen {
    /// The stage that was measured.
    pub stage: Stage,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// The longest time without any activity.
    pub still_seconds: f64,
    /// The longest time without output.
    pub silent_seconds: f64,
    /// The largest sampled memory usage.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Size of the files that the build had written, including its work folder, if it was measured at the end of the
    /// stage.
    #[serde(default)]
    pub written_bytes: u64,
}

impl StageSeen {
    /// Computes the maxima of a package's stages; failed ones are ignored.
    pub fn of<'a>(stages: impl IntoIterator<Item = &'a StageResult>) -> Vec<StageSeen> {
        let mut all: Vec<StageSeen> = Vec::new();
        for result in stages.into_iter().filter(|stage| stage.is_ok) {
            let StageResult { stage, cpu_seconds, measures, .. } = result;
            let written_bytes = result.work_bytes.unwrap_or(0).saturating_add(result.disk_bytes.unwrap_or(0));
            let at = all.iter().position(|seen| seen.stage == *stage).unwrap_or_else(|| {
                all.push(StageSeen {
                    stage: *stage,
                    cpu_seconds: 0.0,
                    still_seconds: 0.0,
                    silent_seconds: 0.0,
                    memory_bytes: 0,
                    written_bytes: 0,
                });
                all.len() - 1
            });
            let seen = &mut all[at];
            seen.cpu_seconds = seen.cpu_seconds.max(*cpu_seconds);
            seen.still_seconds = seen.still_seconds.max(measures.still_seconds_max);
            seen.silent_seconds = seen.silent_seconds.max(measures.silent_seconds_max);
            seen.memory_bytes = seen.memory_bytes.max(result.memory_peak_bytes);
            seen.written_bytes = seen.written_bytes.max(written_bytes);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_states_can_be_parsed() {
        for state in PackageState::ALL {
            assert_eq!(PackageState::parse(state.as_str()), Some(state));
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
            assert!(!state.has_outputs() || state.is_final());
        }
    }

    #[test]
    fn names_of_outcomes_can_be_parsed_and_unknown_ones_stay_readable() {
        // Existing stores contain these texts.
        let texts = ["building", "built", "unchanged", "failed", "lost"];
        assert_eq!(BuildOutcome::ALL.map(|outcome| outcome.to_string()), texts);
        for outcome in BuildOutcome::ALL {
            assert_eq!(BuildOutcome::parse(outcome.as_str()), outcome);
        }
        let newer = BuildOutcome::parse("revoked");
        assert_eq!((newer.as_str(), newer.is_good()), ("revoked", false));
        assert_eq!(serde_json::to_string(&newer).unwrap(), "\"revoked\"");
    }

    #[test]
    fn kinds_have_their_names_and_one_former_name() {
        for kind in FailureKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.as_str()));
        }
        assert_eq!(serde_json::from_str::<FailureKind>("\"idle-limit\"").unwrap(), FailureKind::Silent);
    }

    #[test]
    fn a_stage_recorded_without_later_measurements_is_read() {
        let before = r#"{"stage":"build","started_seconds":1.0,"wall_seconds":2.0,"cpu_seconds":3.0,
            "memory_peak_bytes":4,"is_ok":true,"log":null,"left_behind":[]}"#;
        let stage: StageResult = serde_json::from_str(before).unwrap();
        assert_eq!((stage.cpu_seconds, stage.measures), (3.0, Measures::default()));
        let silent = |is_ok, silent_seconds_max| StageResult {
            is_ok,
            measures: Measures { silent_seconds_max, ..Measures::default() },
            ..stage.clone()
        };
        let seen = StageSeen::of(&[stage.clone(), silent(true, 7.0), silent(false, 99.0)]);
        let expected = StageSeen {
            stage: Stage::Build,
            cpu_seconds: 3.0,
            still_seconds: 0.0,
            silent_seconds: 7.0,
            memory_bytes: 4,
            written_bytes: 0,
        };
        assert_eq!(seen, [expected]);
    }
}
