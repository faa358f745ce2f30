//! The time that this machine's cores spend in the kernel during a run, to find builds that stall all of them.

use kilnyard_hazard::symptom::{INTERVALS_MIN, Ran, Reading, Suspect, suspects};
use kilnyard_process::now_seconds;
use kilnyard_store::BuildRow;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is read. A build is judged by several intervals.
const STEP: Duration = Duration::from_secs(5);
/// The most readings: of five days. Later builds are not judged.
const READINGS_MAX: usize = 100_000;

/// Reads it until it is asked for a verdict.
pub struct KernelTime {
    end: Sender<()>,
    thread: JoinHandle<Vec<Reading>>,
}

impl KernelTime {
    /// Begins to read.
    pub fn watch() -> KernelTime {
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut readings = Vec::new();
            while readings.len() < READINGS_MAX {
                readings.extend(reading());
                if ended.recv_timeout(STEP) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            readings
        });
        KernelTime { end, thread }
    }

    /// Ends, and returns what was read.
    pub fn end(self) -> Readings {
        // It may have ended by itself.
        let _ = self.end.send(());
        Readings(self.thread.join().unwrap_or_default())
    }
}

/// What was read during a run.
pub struct Readings(Vec<Reading>);

impl Readings {
    /// When the first was made, in seconds since 1970.
    pub fn since_seconds(&self) -> Option<f64> {
        self.0.first().map(|first| first.at_seconds)
    }

    /// Whether they can say anything of a build.
    pub fn are_enough(&self) -> bool {
        self.0.len() > 2 * INTERVALS_MIN
    }

    /// The packages during whose builds on this machine other cores were in the kernel.
    pub fn suspects(&self, builds: &[BuildRow], own_name: &str, cores: u32) -> Vec<Suspect> {
        let here = builds.iter().filter(|build| build.worker.as_deref().is_none_or(|name| name == own_name));
        // A virtual machine's time in the kernel is its own kernel's: what its emulator takes of this one is not measured, and would
        // look like that of other cores.
        let stages = here
            .flat_map(|build| build.stages.iter().map(move |stage| (build, stage)))
            .filter(|(_, stage)| !stage.measures.is_in_machine);
        let ran = |(build, stage): (&BuildRow, &kilnyard_model::result::StageResult)| Ran {
            package: build.package.clone(),
            began_seconds: stage.started_seconds,
            ended_seconds: stage.started_seconds + stage.wall_seconds,
            system_seconds: stage.measures.system_seconds,
        };
        suspects(&self.0, &stages.map(ran).collect::<Vec<Ran>>(), cores)
    }
}

/// The first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, in ticks.
fn reading() -> Option<Reading> {
    let text = fs_err::read_to_string("/proc/stat").ok()?;
    let fields: Vec<f64> =
        text.lines().next()?.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let ticks = fields.get(2)? + fields.get(5)? + fields.get(6)?;
    let system_seconds = ticks / rustix::param::clock_ticks_per_second() as f64;
    Some(Reading { at_seconds: now_seconds(), system_seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_long_it_ran() {
        let first = reading().unwrap();
        assert!(first.system_seconds > 0.0);
        // An end of the run ends the thread at once.
        let began = std::time::Instant::now();
        let readings = KernelTime::watch().end();
        assert!(
            began.elapsed() < STEP && !readings.are_enough() && readings.suspects(&[], "here", 2).is_empty()
        );
    }
}
