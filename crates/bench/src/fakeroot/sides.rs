//! Runs two contenders at the same time on one core, and two more on a second core.
//!
//! The kernel gives the core to each in turn, for several milliseconds. Anything that slows the core down, above all
//! other virtual machines on the same host, slows both down alike. On a virtual machine with 2 cores, two builds of the
//! same kind differ by 0.5 % this way, and by 5 % with a core for each. Known downside: the two compete for the caches,
//! so each is slower than it would be alone.

use super::super::scratch::Scratch;
use super::contender::Contender;
use crate::error::{Context, Error, Kind, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum number of cores used.
const CORES_MAX: usize = 2;
/// Maximum number of contenders running at the same time. Each has a folder with its number, counted from 0.
pub const PLACES_MAX: usize = 2 * CORES_MAX;

/// The measured steps. A run returns the seconds that each step took.
pub trait Steps<const STEPS: usize>: Sync {
    /// Fills a folder with what the steps need. Not measured.
    fn prepare(&self, folder: &Path) -> Result<()>;
    /// Runs the steps in that folder, on a core.
    fn run(&self, contender: &Contender, folder: &Path, core: usize) -> Result<[f64; STEPS]>;
}

/// Returns the mean time in seconds of each step, for both contenders.
pub fn measure<const STEPS: usize>(
    turns: usize,
    two: [&Contender; 2],
    scratch: &Scratch,
    steps: &impl Steps<STEPS>,
) -> Result<[[f64; STEPS]; 2]> {
    let mut cores = cores();
    cores.truncate(CORES_MAX);
    let mut means = [[0.0; STEPS]; 2];
    for turn in 0..turns {
        for place in 0..2 * cores.len() {
            super::super::check_interrupt()?;
            let folder = folder(scratch, place);
            clear(&folder)?;
            steps.prepare(&folder)?;
        }
        let outcomes: Vec<(usize, Result<[f64; STEPS]>)> = std::thread::scope(|scope| {
            let start = |place: usize| {
                let (number, core) = (place / 2, cores[place / 2]);
                // The contender that starts first alternates between cores and turns.
                let who = (turn + number + place) % 2;
                (who, scope.spawn(move || steps.run(two[who], &folder(scratch, place), core)))
            };
            let running: Vec<_> = (0..2 * cores.len()).map(start).collect();
            let gone = |_| Err(Error::new(Kind::Internal, "a measuring thread panicked"));
            running.into_iter().map(|(who, thread)| (who, thread.join().unwrap_or_else(gone))).collect()
        });
        for (who, seconds) in outcomes {
            for (mean, seconds) in means[who].iter_mut().zip(seconds?) {
                *mean += seconds / (turns * cores.len()) as f64;
            }
        }
    }
    Ok(means)
}

/// The folder in which the steps of a place run.
pub fn folder(scratch: &Scratch, place: usize) -> PathBuf {
    scratch.path(&format!("place-{place}"))
}

/// Removes the files of the previous steps.
pub fn clear(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs_err::remove_dir_all(folder).context(Kind::Machine, "remove the files of the last steps")
}

/// The cores that this process may run on. Never empty.
pub fn cores() -> Vec<usize> {
    // SAFETY: an all-zero set is valid and empty, and outlives the calls.
    let mut cores: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..8 * size_of_val(&set)).filter(|core| libc::CPU_ISSET(*core, &set)).collect()
    };
    if cores.is_empty() {
        // The machine has more cores than the set can hold. Any core will do.
        cores.push(0);
    }
    cores
}

/// Pins a command and all processes that it starts to a core.
pub fn pin_command(command: &mut Command, core: usize) {
    // SAFETY: the closure neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            pin_this_process(core);
            Ok(())
        });
    }
}

/// Pins this process to a core. If that fails, it is not pinned.
pub fn pin_this_process(core: usize) {
    // SAFETY: an all-zero set is valid and empty, and outlives the calls.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut cores);
        libc::sched_setaffinity(0, size_of_val(&cores), &cores);
    }
}
