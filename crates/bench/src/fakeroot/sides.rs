//! Two contenders at once on one core, and the same on a second core beside it.
//!
//! The kernel gives the core to both in turn, for some milliseconds each. So whatever slows it down, other guests of the machine
//! above all, slows both down alike: on a virtual machine with 2 cores, two builds of the same kind differ by 0.5 % this way,
//! and by 5 % with a core for each. Either finds less in the caches than it would alone.

use super::super::scratch::Scratch;
use super::contender::Contender;
use crate::error::{Context, Error, Kind, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many cores are used.
const CORES_MAX: usize = 2;
/// Those that do something at once: each uses what has its number, from 0 on.
pub const PLACES_MAX: usize = 2 * CORES_MAX;

/// What the contenders do: the seconds of each step of one of them.
pub trait Steps<const STEPS: usize>: Sync {
    /// Makes a folder with what the steps need; this is not measured.
    fn prepare(&self, folder: &Path) -> Result<()>;
    /// Runs them there, on a core.
    fn run(&self, contender: &Contender, folder: &Path, core: usize) -> Result<[f64; STEPS]>;
}

/// The mean seconds of each step of the two.
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
            super::super::go_on()?;
            let folder = folder(scratch, place);
            clear(&folder)?;
            steps.prepare(&folder)?;
        }
        let outcomes: Vec<(usize, Result<[f64; STEPS]>)> = std::thread::scope(|scope| {
            let start = |place: usize| {
                let (number, core) = (place / 2, cores[place / 2]);
                // Who begins is the other one on the other core, and in the next turn.
                let who = (turn + number + place) % 2;
                (who, scope.spawn(move || steps.run(two[who], &folder(scratch, place), core)))
            };
            let running: Vec<_> = (0..2 * cores.len()).map(start).collect();
            let gone = |_| Err(Error::new(Kind::Internal, "a thread that measures ended early"));
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

/// Where the steps run at a place.
pub fn folder(scratch: &Scratch, place: usize) -> PathBuf {
    scratch.path(&format!("place-{place}"))
}

/// Removes what the last ones have left there.
pub fn clear(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs_err::remove_dir_all(folder).context(Kind::Machine, "remove what the last steps have left")
}

/// The cores that this process may run on; at least one.
pub fn cores() -> Vec<usize> {
    // SAFETY: an all-zero set is valid and empty, and lives to the end of the calls.
    let mut cores: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..8 * size_of_val(&set)).filter(|core| libc::CPU_ISSET(*core, &set)).collect()
    };
    if cores.is_empty() {
        // More cores than the set holds: the first is as good as any.
        cores.push(0);
    }
    cores
}

/// Lets a command and all that it starts run on this core alone.
pub fn stay_on(command: &mut Command, core: usize) {
    // SAFETY: what is done there neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            stay_here(core);
            Ok(())
        });
    }
}

/// Lets this process run on this core alone; where that fails, it runs where it likes.
pub fn stay_here(core: usize) {
    // SAFETY: an all-zero set is valid and empty, and lives to the end of the calls.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut cores);
        libc::sched_setaffinity(0, size_of_val(&cores), &cores);
    }
}
