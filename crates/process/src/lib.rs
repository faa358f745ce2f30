//! Runs one command of a stage in its sandbox, and knows what became of it.
//!
//! [`run`] moves the output into a bounded [`Log`], reads the sandbox's reports, and ends the whole tree when a limit is
//! passed or when it is told to. It returns an [`Outcome`] that names things: the exit code, the limit with a
//! [`Portrait`] of who hung on what, the processes that were left behind with who started them, and what all of it used.
//! Whether a command gets on is decided by `progress`, which is pure. What becomes of it (is the command failed, is it tried
//! again) is the caller's.
//!
//! Where it can, it gives the command a control group of its own (`leaf`).
//!
//! What is counted, and how: user and system time by the kernel, of all processes in the group or of all that somebody
//! waited for (getrusage(2)); bytes of disks of the latter (`/proc/1/io` of the sandbox, to which the kernel adds those of
//! all that were waited for); processes and threads that were begun by the numbers that the pid namespace gave; memory by
//! samples, five a second, fewer where there are thousands of processes; stalls by the kernel (PSI).
//!
//! Known downside: memory is the sum of resident memory, and what several processes share counts in each, but for where the
//! kernel counts the group's. Without a group a child that nobody waits for, since its parent ignores the end of children,
//! is not in the times.

mod births;
mod calls;
mod capture;
mod clock;
mod groups;
pub mod jobserver;
mod leaf;
mod leftovers;
mod limits;
mod log;
mod memory;
mod onlooker;
mod portrait;
pub mod pressure;
mod processes;
mod progress;
mod stalls;
mod tree;
mod watch;
pub mod weight;
mod written;

pub use births::hears_of_births;
pub use capture::{CaptureEnd, CaptureLimits, Captured, capture};
pub use clock::{now_seconds, own_cpu_seconds};
pub use leaf::folder_of_groups;
pub use limits::{LEARNED_SIZE_TIMES, LEARNED_TIMES, LimitRules, Limits, Passed, Seen, written_words};
pub use log::{Log, LogFacts, LogLimits, read_log};
pub use onlooker::become_onlooker_if_asked;
pub use portrait::{Portrait, Sighting};
pub use stalls::Stalls;
pub use watch::{Watched, run, run_watched};
pub use written::Writing;

/// What the processes of a command are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// How many there are.
    pub processes: u32,
    /// How many of them run, or could run if they had a core.
    pub runnable: u32,
    /// The sum of their resident memory; shared pages count in each.
    pub memory_bytes: u64,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// By itself, with this exit code (128 and the signal, where one killed it).
    Exit(i32),
    /// It was ended, since it had passed a limit; what its processes were doing then.
    Limit(Passed, Box<Portrait>),
    /// The caller cancelled it.
    Cancelled,
    /// The log could not be written: this is no fault of the build.
    LogFailed(String),
    /// The sandbox could not be made or was killed from outside: this is no fault of the build.
    SandboxFailed(String),
}

/// What a command did and used.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// From start to end.
    pub wall_seconds: f64,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// User time of those; without a control group of those that were waited for, and nothing where the sandbox had to be
    /// killed.
    pub user_seconds: f64,
    /// Their system time.
    pub system_seconds: f64,
    /// The largest sum of resident memory that was sampled, or what the largest process held if that is more; at most
    /// what was ever charged to the control group, if the kernel counts that.
    pub memory_peak_bytes: u64,
    /// Bytes that were read from disks; absent where the kernel does not count them, or the sandbox had to be killed.
    pub read_bytes: Option<u64>,
    /// Bytes that were written, or are to be written, to disks; absent as above.
    pub written_bytes: Option<u64>,
    /// Processes and threads that were begun.
    pub created: u64,
    /// How often the network was asked for that a sandbox does not have, as the kernel counts it.
    pub unreachable: u64,
    /// User and system time of process 1 of the sandbox, which counts the others.
    pub keeper_seconds: f64,
    /// What was waited for.
    pub stalls: Stalls,
    /// The longest time in which nothing was printed, no process begun and no CPU time used.
    pub still_seconds_max: f64,
    /// The longest time in which nothing was printed.
    pub silent_seconds_max: f64,
    /// Processes that it left running, with who started them, and any that were in its control group alone; they were
    /// ended.
    pub left_behind: Vec<String>,
    /// What it left in memory that processes share; it is gone with the sandbox.
    pub left_in_memory: Vec<String>,
    /// System calls that it was refused, by name, and how often; empty too where they are not counted
    /// ([`kilnyard_root::sandbox::Nesting`]).
    pub refused_calls: Vec<(String, u64)>,
}

impl Outcome {
    /// Of a command that ended before it did anything.
    pub fn of(end: End) -> Outcome {
        Outcome {
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
        }
    }
}
