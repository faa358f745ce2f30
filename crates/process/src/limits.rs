//! What a command may take, and how much of it was learned from what it took before.

/// A stage may take so many times what it took at the most in the builds that are remembered.
pub const LEARNED_TIMES: f64 = 10.0;
/// The same of memory, and of what a build writes.
pub const LEARNED_SIZE_TIMES: u64 = 4;

/// What a person says of limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitRules {
    /// The longest that a command may run.
    pub wall_seconds_max: f64,
    /// What a command may use of CPU time in any case.
    pub cpu_seconds_min: f64,
    /// What a command may use of CPU time while nothing is known of its stage. Not bounded where it is absent: large
    /// packages use many hours, and nothing says yet which ones are large.
    pub cpu_seconds_unknown_max: Option<f64>,
    /// How long nothing at all may happen in any case.
    pub hung_seconds_min: f64,
    /// How long nothing may be printed in any case.
    pub silent_seconds_min: f64,
    /// How many processes and threads there may be at once.
    pub processes_max: u32,
    /// The most memory that its processes may hold in any case.
    pub memory_bytes_min: u64,
    /// The most memory that its processes may hold, whatever they held before; not bounded where it is absent.
    pub memory_bytes_max: Option<u64>,
    /// What a build may write to its root in any case.
    pub written_bytes_min: u64,
    /// How many files a process may have open at once.
    pub open_files_max: u32,
}

/// What a stage of a package took at the most in builds that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// CPU time.
    pub cpu_seconds: f64,
    /// The longest in which nothing at all happened.
    pub still_seconds: f64,
    /// The longest in which nothing was printed.
    pub silent_seconds: f64,
    /// The most memory of its processes.
    pub memory_bytes: u64,
    /// What the whole build had written at its end.
    pub written_bytes: u64,
}

/// Limits of one command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The longest that it may run.
    pub wall_seconds_max: f64,
    /// The most CPU time that it may use.
    pub cpu_seconds_max: Option<f64>,
    /// The longest in which it may print nothing, begin no process and use no CPU time.
    pub hung_seconds_max: f64,
    /// The longest in which it may print nothing.
    pub silent_seconds_max: f64,
    /// The most memory that its processes may hold; not bounded where it is absent.
    pub memory_bytes_max: Option<u64>,
    /// How many processes and threads there may be at once; not bounded where it is absent.
    pub processes_max: Option<u32>,
    /// What its build may have written to its root; not bounded where it is absent.
    pub written_bytes_max: Option<u64>,
    /// How many files each of its processes may have open at once; not bounded where it is absent.
    pub open_files_max: Option<u32>,
}

impl Limits {
    /// The bound of time alone, for a command of Kilnyard's own.
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
    /// The limits of a command of a stage of which so much is known.
    pub fn limits(&self, seen: Option<Seen>) -> Limits {
        let learned = |seen: f64, min: f64| (LEARNED_TIMES * seen).max(min);
        // Two builds of one package write and hold much the same; times depend on what else runs.
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

/// A limit that a command passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It ran too long.
    Wall,
    /// It used too much CPU time.
    Cpu,
    /// It did nothing at all for too long.
    Hung,
    /// It worked alone at one thing, and printed nothing for too long.
    Spinning,
    /// It began processes, and printed nothing for too long.
    Silent,
    /// Its processes held too much memory.
    Memory,
    /// It had too many processes at once.
    Processes,
    /// Its build had written this many bytes to its root, more than its limit.
    Written {
        /// What was found there.
        bytes: u64,
    },
}

impl Passed {
    /// What happened, as a clause.
    pub fn words(self, limits: &Limits) -> String {
        let seconds =
            |seconds: f64| if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") };
        match self {
            Passed::Wall => format!("it was not done after {}", seconds(limits.wall_seconds_max)),
            Passed::Cpu => {
                format!("it used more than {} of CPU time", seconds(limits.cpu_seconds_max.unwrap_or(0.0)))
            }
            Passed::Hung => format!(
                "it hangs: for {} it printed nothing, used no CPU time and began no process",
                seconds(limits.hung_seconds_max)
            ),
            Passed::Spinning => format!(
                "it spins: for {} it used CPU time, and neither printed anything nor began a process",
                seconds(limits.silent_seconds_max)
            ),
            Passed::Silent => format!(
                "it is silent: for {} it began processes and printed nothing",
                seconds(limits.silent_seconds_max)
            ),
            Passed::Memory => format!(
                "its processes held more than {}, its limit (`memory` of [limits])",
                size(limits.memory_bytes_max.unwrap_or(0))
            ),
            Passed::Processes => format!(
                "it had {} processes and threads at once, its limit (`processes-max` of [build])",
                limits.processes_max.unwrap_or(0)
            ),
            Passed::Written { bytes } => written_words(bytes, limits.written_bytes_max.unwrap_or(0)),
        }
    }
}

/// That a build has written too much, as a clause.
pub fn written_words(bytes: u64, bytes_max: u64) -> String {
    format!("it wrote {}, its limit is {} (`disk` of [limits])", size(bytes), size(bytes_max))
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
    fn limits_are_ten_times_what_was_seen_and_at_least_what_somebody_said() {
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
        let seen = rules.limits(Some(Seen {
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
        let large = rules.limits(Some(Seen { memory_bytes: 3 << 30, ..Seen::default() }));
        assert_eq!(large.memory_bytes_max, Some(8 << 30), "the machine has no more");
        assert_eq!(rules.limits(Some(Seen::default())).cpu_seconds_max, Some(7200.0));
    }
}
