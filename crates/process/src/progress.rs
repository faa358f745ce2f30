//! Decides whether a command makes progress, by its output, the processes it starts and the CPU time it uses. Pure:
//! each call passes the time, in seconds since the command began.

use crate::{Limits, Passed};

/// CPU time counts as work if at least this much is used within [`WINDOW_SECONDS`]. A process that only wakes up now
/// and then to poll uses less.
const WORK_CPU_SECONDS: f64 = 0.1;
/// The window for [`WORK_CPU_SECONDS`].
const WINDOW_SECONDS: f64 = 10.0;
/// Samples of a command with thousands of processes are seconds apart. After this long without one, sampling has
/// stopped.
const SAMPLED_WITHIN_SECONDS: f64 = 10.0;
/// A silent command that started no process for this share of the silence is busy with a single task.
const ALONE_SHARE: f64 = 0.9;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// When it last printed.
    printed: f64,
    /// When it last started a process.
    began: f64,
    /// When it last used CPU time that counts, or was waiting for a core.
    worked: f64,
    created: u64,
    cpu_seconds: f64,
    /// When the window of CPU time began, and the CPU time then.
    window: (f64, f64),
    /// How many samples of the window had a runnable process, and how many had none.
    wanted: (u32, u32),
    /// When the last sample was taken.
    sampled: Option<f64>,
    still_max: f64,
    silent_max: f64,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            printed: 0.0,
            began: 0.0,
            worked: 0.0,
            created: 0,
            cpu_seconds: 0.0,
            window: (0.0, 0.0),
            wanted: (0, 0),
            sampled: None,
            still_max: 0.0,
            silent_max: 0.0,
        }
    }

    /// Records output.
    pub(crate) fn print(&mut self, now: f64) {
        self.note(now);
        self.printed = now;
    }

    /// Records a sample: CPU time and processes created since the start, and the processes that are runnable now.
    pub(crate) fn sample(&mut self, now: f64, cpu_seconds: f64, created: u64, runnable: u32) {
        self.sampled = Some(now);
        self.note(now);
        if created > self.created {
            self.created = created;
            self.began = now;
        }
        // A process that ends during a sample may be missing from its total.
        self.cpu_seconds = self.cpu_seconds.max(cpu_seconds);
        if runnable > 0 {
            self.wanted.0 += 1;
        } else {
            self.wanted.1 += 1;
        }
        let (since, before) = self.window;
        let has_worked = self.cpu_seconds - before >= WORK_CPU_SECONDS;
        let is_over = now - since >= WINDOW_SECONDS;
        // A process without a core cannot use CPU time.
        let has_waited = is_over && self.wanted.0 > self.wanted.1;
        if has_worked || has_waited {
            self.worked = now;
        }
        if has_worked || is_over {
            self.window = (now, self.cpu_seconds);
            self.wanted = (0, 0);
        }
    }

    /// The time limit that it has exceeded, if any.
    pub(crate) fn passed(&self, now: f64, limits: &Limits) -> Option<Passed> {
        if now >= limits.wall_seconds_max {
            return Some(Passed::Wall);
        }
        if limits.cpu_seconds_max.is_some_and(|max| self.cpu_seconds >= max) {
            return Some(Passed::Cpu);
        }
        // A command that is not sampled may be working, and so may one since its last sample.
        if self.sampled.is_some_and(|sampled| sampled - self.moved() >= limits.hung_seconds_max) {
            return Some(Passed::Hung);
        }
        let looked = self.sampled.filter(|sampled| now - sampled < SAMPLED_WITHIN_SECONDS);
        let silent = looked.unwrap_or(now) - self.printed;
        if silent < limits.silent_seconds_max {
            return None;
        }
        let is_alone = looked.is_some_and(|looked| looked - self.began >= ALONE_SHARE * silent);
        Some(if is_alone { Passed::Spinning } else { Passed::Silent })
    }

    /// The longest time without any progress, and the longest time without output.
    pub(crate) fn longest(mut self, now: f64) -> (f64, f64) {
        self.note(now);
        (if self.sampled.is_some() { self.still_max } else { 0.0 }, self.silent_max)
    }

    /// User and system time so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }

    /// When progress was last made.
    fn moved(&self) -> f64 {
        self.printed.max(self.began).max(self.worked)
    }

    fn note(&mut self, now: f64) {
        self.still_max = self.still_max.max(now - self.moved());
        self.silent_max = self.silent_max.max(now - self.printed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        wall_seconds_max: 10_000.0,
        cpu_seconds_max: Some(5_000.0),
        hung_seconds_max: 600.0,
        silent_seconds_max: 3600.0,
        memory_bytes_max: None,
        processes_max: None,
        written_bytes_max: None,
        open_files_max: None,
    };

    /// The verdict on a command sampled five times a second; `sample` returns CPU time, processes created and
    /// runnable processes for a time in seconds.
    fn passed(until: f64, sample: impl Fn(f64) -> (f64, u64, u32)) -> Option<(f64, Passed)> {
        let mut progress = Progress::new();
        let mut now = 0.0;
        while now < until {
            now += 0.2;
            let (cpu_seconds, created, runnable) = sample(now);
            progress.sample(now, cpu_seconds, created, runnable);
            if let Some(passed) = progress.passed(now, &LIMITS) {
                return Some((now.round(), passed));
            }
        }
        None
    }

    #[test]
    fn sleeping_and_spinning_commands_are_distinguished() {
        assert_eq!(passed(9e3, |_| (0.01, 3, 0)), Some((600.0, Passed::Hung)));
        // It wakes up now and then to poll.
        assert_eq!(passed(9e3, |now| (now * 0.002, 3, 0)), Some((600.0, Passed::Hung)));
        assert_eq!(passed(9e3, |now| (now * 0.9, 3, 1)), Some((3600.0, Passed::Spinning)));
        // The spinning process belongs to the last command that was printed.
        assert_eq!(
            passed(9e3, |now| (now * 0.9, if now < 60.0 { 3 } else { 4 }, 1)),
            Some((3600.0, Passed::Spinning))
        );
        assert_eq!(passed(9e3, |now| (now * 0.05, now as u64, 0)), Some((3600.0, Passed::Silent)));
    }

    #[test]
    fn a_command_that_waits_for_a_core_does_not_hang() {
        assert_eq!(passed(3500.0, |now| (now * 0.001, 3, 1)), None);
        // A burst of work counts, however long the idle time before it.
        assert_eq!(passed(1100.0, |now| (if now < 550.0 { 0.0 } else { 0.2 }, 3, 0)), None);
    }

    #[test]
    fn the_time_after_the_last_sample_is_not_judged() {
        let mut progress = Progress::new();
        progress.print(0.1);
        progress.sample(0.2, 0.01, 3, 1);
        assert_eq!(progress.passed(700.0, &LIMITS), None, "no sample shows whether it worked");
        progress.sample(700.0, 650.0, 3, 1);
        assert_eq!(progress.passed(700.0, &LIMITS), None);
        // It has stopped since, which the next sample shows.
        progress.sample(1300.0, 650.0, 3, 0);
        assert_eq!(progress.passed(1300.0, &LIMITS), Some(Passed::Hung));
        // The next sample judges a silence; if none comes, it is judged without one.
        let mut progress = Progress::new();
        progress.sample(1.0, 0.9, 3, 1);
        progress.sample(3598.0, 3000.0, 3, 1);
        assert_eq!(progress.passed(3602.0, &LIMITS), None);
        assert_eq!(progress.passed(3608.0, &LIMITS), Some(Passed::Silent));
        progress.sample(3602.0, 3004.0, 3, 1);
        assert_eq!(progress.passed(3602.0, &LIMITS), Some(Passed::Spinning));
    }

    #[test]
    fn limits_of_time_come_first() {
        assert_eq!(passed(9e3, |now| (now * 4.0, now as u64, 4)), Some((1250.0, Passed::Cpu)));
        let mut progress = Progress::new();
        for second in 1..20_000 {
            progress.print(f64::from(second));
            progress.sample(f64::from(second), f64::from(second) * 0.2, 1, 1);
        }
        assert_eq!(progress.passed(9_999.0, &LIMITS), None);
        assert_eq!(progress.passed(10_000.0, &LIMITS), Some(Passed::Wall));
    }

    #[test]
    fn the_longest_times_are_remembered() {
        let mut progress = Progress::new();
        progress.print(5.0);
        progress.sample(6.0, 0.5, 2, 0);
        progress.sample(26.0, 0.5, 2, 0);
        progress.sample(30.0, 0.5, 3, 0);
        progress.print(31.0);
        assert_eq!(progress.clone().longest(32.0), (24.0, 26.0));
        assert_eq!(progress.longest(99.0), (68.0, 68.0));
        // Without samples, activity is unknown.
        assert_eq!(Progress::new().longest(9.0), (0.0, 9.0));
        let silent = Progress::new().passed(9e3, &LIMITS);
        assert_eq!(silent, Some(Passed::Silent));
    }
}
