//! The limits of a command, some of them learned from earlier builds.

use serde::{Deserialize, Serialize};

/// The factor between the highest recorded time of a stage and its limit.
pub const LEARNED_TIMES: f64 = 10.0;
/// The factor between the highest recorded size and its limit, for memory and for bytes written.
pub const LEARNED_SIZE_TIMES: u64 = 4;

/// The configured limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitRules {
    /// The longest time a command may run.
    pub wall_seconds_max: f64,
    /// The CPU time that a command may always use.
    pub cpu_seconds_min: f64,
    /// The CPU time that a command may use while its stage has no history. Unlimited when absent: large packages use
    /// many hours, and nothing shows yet which packages are large.
    pub cpu_seconds_unknown_max: Option<f64>,
    /// How long a command may always do nothing at all.
    pub hung_seconds_min: f64,
    /// How long a command may always print nothing.
    pub silent_seconds_min: f64,
    /// Maximum number of concurrent processes and threads.
    pub processes_max: u32,
    /// The memory that a command's processes may always hold.
    pub memory_bytes_min: u64,
    /// Maximum memory of a command's processes, whatever its history; unlimited when absent.
    pub memory_bytes_max: Option<u64>,
    /// The bytes that a build may always write to its root.
    pub written_bytes_min: u64,
    /// Maximum number of files that a process may have open at once.
    pub open_files_max: u32,
}

/// The highest values of a stage of a package in successful builds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StagePeaks {
    /// User and system time.
    pub cpu_seconds: f64,
    /// The longest time without any activity.
    pub still_seconds: f64,
    /// The longest time without output.
    pub silent_seconds: f64,
    /// Maximum memory held by its processes.
    pub memory_bytes: u64,
    /// Bytes that the whole build had written by its end.
    pub written_bytes: u64,
}

/// The limits of one command. An absent limit means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The longest time it may run.
    pub wall_seconds_max: f64,
    /// Maximum CPU time that it may use.
    pub cpu_seconds_max: Option<f64>,
    /// The longest time without output, a new process or CPU use.
    pub hung_seconds_max: f64,
    /// The longest time without output.
    pub silent_seconds_max: f64,
    /// Maximum memory that its processes may hold.
    pub memory_bytes_max: Option<u64>,
    /// Maximum number of concurrent processes and threads.
    pub processes_max: Option<u32>,
    /// Maximum number of bytes that its build may have written to its root.
    pub written_bytes_max: Option<u64>,
    /// Maximum number of files that each of its processes may have open at once.
    pub open_files_max: Option<u32>,
}

impl Limits {
    /// A time limit alone, for a command of Kilnyard's own.
    pub fn of_wall(wall_seconds_max: f64) -> Limits {
        Limits {
            wall_seconds_max,
            cpu_seconds_max: None,
            hung_seconds_max: wall_seconds_max,
            silent_seconds_max: wall_seconds_max,
            memory_bytes_max: None,
            processes_max: None,
            written_bytes_max: None,
            open_files_max: None,
        }
    }
}

impl LimitRules {
    /// The limits of a command, given the history of its stage.
    pub fn limits(&self, seen: Option<StagePeaks>) -> Limits {
        let learned = |seen: f64, min: f64| (LEARNED_TIMES * seen).max(min);
        // Builds of one package write and hold similar amounts; times also depend on the machine's load.
        let sized =
            |seen: Option<u64>, min: u64| seen.unwrap_or(0).saturating_mul(LEARNED_SIZE_TIMES).max(min);
        let memory = sized(seen.map(|seen| seen.memory_bytes), self.memory_bytes_min);
        let (still, silent) = seen.map_or((0.0, 0.0), |seen| (seen.still_seconds, seen.silent_seconds));
        Limits {
            wall_seconds_max: self.wall_seconds_max,
            cpu_seconds_max: match seen {
                Some(seen) => Some(learned(seen.cpu_seconds, self.cpu_seconds_min)),
                None => self.cpu_seconds_unknown_max,
            },
            hung_seconds_max: learned(still, self.hung_seconds_min),
            silent_seconds_max: learned(silent, self.silent_seconds_min),
            memory_bytes_max: Some(memory.min(self.memory_bytes_max.unwrap_or(u64::MAX))),
            processes_max: Some(self.processes_max),
            written_bytes_max: Some(sized(seen.map(|seen| seen.written_bytes), self.written_bytes_min)),
            open_files_max: Some(self.open_files_max),
        }
    }
}

/// A limit that a command exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Passed {
    /// It ran too long.
    Wall,
    /// It used too much CPU time.
    Cpu,
    /// It did nothing at all for too long.
    Hung,
    /// It was busy with a single task, and printed nothing for too long.
    Spinning,
    /// It started processes, but printed nothing for too long.
    Silent,
    /// Its processes held too much memory.
    Memory,
    /// It had too many processes at once.
    Processes,
    /// Its build had written this many bytes to its root, more than its limit.
    Written {
        /// The bytes found there.
        bytes: u64,
    },
}

impl Passed {
    /// Describes the event in a clause.
    pub fn words(self, limits: &Limits) -> String {
        let seconds =
            |seconds: f64| if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") };
        match self {
            Passed::Wall => format!("it did not finish within {}", seconds(limits.wall_seconds_max)),
            Passed::Cpu => {
                format!("it used more than {} of CPU time", seconds(limits.cpu_seconds_max.unwrap_or(0.0)))
            }
            Passed::Hung => format!(
                "it hangs: for {} it printed nothing, used no CPU time and started no process",
                seconds(limits.hung_seconds_max)
            ),
            Passed::Spinning => format!(
                "it spins: for {} it used CPU time, but printed nothing and started no process",
                seconds(limits.silent_seconds_max)
            ),
            Passed::Silent => format!(
                "it is silent: for {} it started processes but printed nothing",
                seconds(limits.silent_seconds_max)
            ),
            Passed::Memory => format!(
                "its processes held more than {}, the limit (`memory` of [limits] or [package])",
                size(limits.memory_bytes_max.unwrap_or(0))
            ),
            Passed::Processes => format!(
                "it had {} processes and threads at once, the limit (`processes-max` of [build] or [package])",
                limits.processes_max.unwrap_or(0)
            ),
            Passed::Written { bytes } => written_words(bytes, limits.written_bytes_max.unwrap_or(0)),
        }
    }
}

/// Describes a build that has written too much, in a clause.
pub fn written_words(bytes: u64, bytes_max: u64) -> String {
    format!("it wrote {}; its limit is {} (`disk` of [limits] or [package])", size(bytes), size(bytes_max))
}

fn size(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 10_240.0 {
        format!("{mebibytes:.0} MiB")
    } else {
        format!("{:.1} GiB", mebibytes / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_ten_times_the_history_and_at_least_the_configured_minimum() {
        let rules = LimitRules {
            wall_seconds_max: 9e4,
            cpu_seconds_min: 7200.0,
            cpu_seconds_unknown_max: None,
            hung_seconds_min: 600.0,
            silent_seconds_min: 3600.0,
            processes_max: 4096,
            memory_bytes_min: 1 << 30,
            memory_bytes_max: Some(8 << 30),
            written_bytes_min: 20 << 30,
            open_files_max: 1024,
        };
        let unknown = rules.limits(None);
        assert_eq!((unknown.cpu_seconds_max, unknown.hung_seconds_max), (None, 600.0));
        assert_eq!((unknown.silent_seconds_max, unknown.processes_max), (3600.0, Some(4096)));
        let strict = LimitRules { cpu_seconds_unknown_max: Some(60.0), ..rules };
        assert_eq!(strict.limits(None).cpu_seconds_max, Some(60.0));
        let seen = rules.limits(Some(StagePeaks {
            cpu_seconds: 900.0,
            still_seconds: 90.0,
            silent_seconds: 100.0,
            memory_bytes: 1 << 30,
            written_bytes: 6 << 30,
        }));
        assert_eq!((seen.cpu_seconds_max, seen.hung_seconds_max), (Some(9000.0), 900.0));
        assert_eq!(seen.silent_seconds_max, 3600.0);
        assert_eq!((unknown.memory_bytes_max, unknown.written_bytes_max), (Some(1 << 30), Some(20 << 30)));
        assert_eq!((seen.memory_bytes_max, seen.written_bytes_max), (Some(4 << 30), Some(24 << 30)));
        let large = rules.limits(Some(StagePeaks { memory_bytes: 3 << 30, ..StagePeaks::default() }));
        assert_eq!(large.memory_bytes_max, Some(8 << 30), "the machine has no more");
        assert_eq!(rules.limits(Some(StagePeaks::default())).cpu_seconds_max, Some(7200.0));
    }
}
