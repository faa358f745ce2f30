//! Runs one command of a stage in its sandbox and reports how it ended.
//!
//! [`run`] copies the output into a bounded [`Log`], reads the sandbox's reports, and ends the whole process tree when
//! a limit is exceeded or the caller cancels. The [`CommandOutcome`] names the exit code, the exceeded limit with a
//! [`Snapshot`] of which process hung on what, the processes left behind and what started them, and the resources used.
//! `progress`, which is pure, decides whether the command makes progress. The caller decides what follows: whether the
//! command failed, and whether to retry it.
//!
//! Where possible, the command runs in a control group of its own (`leaf`).
//!
//! How each figure is measured:
//!
//! - User and system time: by the kernel, for all processes of the group, or else for all processes that were waited
//!   for (getrusage(2)).
//! - Disk bytes: for all processes that were waited for (`/proc/1/io` of the sandbox, where the kernel adds them up).
//! - Processes and threads created: from the ids that the pid namespace assigned.
//! - Memory: sampled five times a second, less often when there are thousands of processes.
//! - Stalls: by the kernel (PSI).
//!
//! Known downside: memory is the sum of resident memory, so shared pages count once per process, except where the
//! kernel counts the group's memory. Without a group, the times exclude children that nothing waited for because
//! their parent ignores SIGCHLD.

mod births;
mod calls;
mod capture;
mod clock;
mod groups;
mod handover;
mod inspector;
pub mod jobserver;
mod leaf;
mod leftovers;
mod limits;
mod log;
mod memory;
pub mod pressure;
mod processes;
mod progress;
mod snapshot;
mod stalls;
mod terminal;
mod traps;
mod tree;
mod watch;
pub mod weight;
mod written;

pub use births::has_birth_events;
pub use capture::{CaptureEnd, CaptureLimits, Captured, capture};
pub use clock::{now_seconds, own_cpu_seconds, time_of_day_seconds};
pub use handover::hand_over;
pub use inspector::become_inspector_if_asked;
pub use leaf::folder_of_groups;
pub use limits::{LEARNED_SIZE_TIMES, LEARNED_TIMES, LimitRules, Limits, Passed, StagePeaks, written_words};
pub use log::{Log, LogFacts, LogLimits, read_log, read_log_from};
pub use snapshot::{ObservedProcess, Snapshot};
pub use stalls::Stalls;
pub use terminal::{RawMode, Terminal, own_screen};
pub use traps::{Instructions, Traps};
pub use watch::{Watched, run, run_watched};
pub use written::Writing;

use serde::{Deserialize, Serialize};

/// What the processes of a command are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Living processes.
    pub processes: u32,
    /// Processes that run, or would run if they had a core.
    pub runnable: u32,
    /// The sum of their resident memory; a shared page counts once per process.
    pub memory_bytes: u64,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum End {
    /// The command exited with this code (128 plus the signal number if a signal killed it).
    Exit(i32),
    /// The command was ended because it exceeded a limit. The snapshot shows what its processes were doing.
    Limit(Passed, Box<Snapshot>),
    /// The caller cancelled it.
    Cancelled,
    /// The log could not be written, which is not the build's fault.
    LogFailed(String),
    /// The sandbox could not be set up or was killed from outside, which is not the build's fault.
    SandboxFailed(String),
}

/// What a command did and used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// How it ended.
    pub end: End,
    /// From start to end.
    pub wall_seconds: f64,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// User time of all its processes. Without a control group, only of those that were waited for, and zero if the
    /// sandbox had to be killed.
    pub user_seconds: f64,
    /// System time, counted in the same way.
    pub system_seconds: f64,
    /// The largest sampled sum of resident memory, or the peak of the largest process if that is more. Never more
    /// than the peak charge of the control group, where the kernel counts that.
    pub memory_peak_bytes: u64,
    /// Bytes read from disks; absent if the kernel does not count them or the sandbox had to be killed.
    pub read_bytes: Option<u64>,
    /// Bytes written, or still to be written, to disks; absent as for `read_bytes`.
    pub written_bytes: Option<u64>,
    /// Processes and threads created.
    pub created: u64,
    /// How often the command tried to reach a network that the sandbox lacks, as counted by the kernel.
    pub unreachable: u64,
    /// User and system time of process 1 of the sandbox, which counts the others.
    pub keeper_seconds: f64,
    /// How long the command waited for cores, memory and disks.
    pub stalls: Stalls,
    /// The longest time without output, a new process or CPU use.
    pub still_seconds_max: f64,
    /// The longest time without output.
    pub silent_seconds_max: f64,
    /// Processes that it left running, each with the processes that started it, and any that were found only in its
    /// control group. All of them were ended.
    pub left_behind: Vec<String>,
    /// What it left in shared memory, which is gone with the sandbox.
    pub left_in_memory: Vec<String>,
    /// Refused system calls, by name, with their counts. Also empty where refusals are not counted
    /// ([`kilnyard_root::sandbox::Nesting`]).
    pub refused_calls: Vec<(String, u64)>,
    /// Traps that stalled other cores too; zero where the kernel does not count them.
    pub traps: Traps,
    /// Whether it ran in a virtual machine.
    #[serde(default)]
    pub is_in_machine: bool,
}

impl CommandOutcome {
    /// The outcome of a command that ended before it did anything.
    pub fn of(end: End) -> CommandOutcome {
        CommandOutcome {
            end,
            wall_seconds: 0.0,
            cpu_seconds: 0.0,
            user_seconds: 0.0,
            system_seconds: 0.0,
            memory_peak_bytes: 0,
            read_bytes: None,
            written_bytes: None,
            created: 0,
            unreachable: 0,
            keeper_seconds: 0.0,
            stalls: Stalls::default(),
            still_seconds_max: 0.0,
            silent_seconds_max: 0.0,
            left_behind: Vec::new(),
            left_in_memory: Vec::new(),
            refused_calls: Vec::new(),
            traps: Traps::default(),
            is_in_machine: false,
        }
    }
}
