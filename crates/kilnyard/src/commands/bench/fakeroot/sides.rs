//! Two contenders at once, each on a core of its own, and then the other way round.
//!
//! What disturbs one disturbs the other then, and a core that is slower than another is so for both. Other load only adds to
//! the CPU time of a step, so that the smallest of the turns counts.

use super::contender::Contender;
use crate::error::{Error, Kind, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How often each is measured; each core has its half.
const TURNS: usize = 4;

/// The seconds of each step of each contender. `steps` is called with the contender, a number that no other one has at that
/// time, and its core.
pub fn measure<'a, const STEPS: usize>(
    contenders: &[&'a Contender],
    steps: impl Fn(&Contender, usize, usize) -> Result<[f64; STEPS]> + Sync,
) -> Result<Vec<[f64; STEPS]>> {
    let mut all = Vec::new();
    for two in contenders.chunks(2) {
        let mut best = vec![[f64::INFINITY; STEPS]; two.len()];
        for turn in 0..TURNS {
            super::super::go_on()?;
            let outcomes: Vec<Result<[f64; STEPS]>> = std::thread::scope(|scope| {
                let start = |(place, contender): (usize, &&'a Contender)| {
                    let (steps, contender) = (&steps, *contender);
                    scope.spawn(move || steps(contender, place, (turn + place) % 2))
                };
                let running: Vec<_> = two.iter().enumerate().map(start).collect();
                let gone = |_| Err(Error::new(Kind::Internal, "a thread that measures ended early"));
                running.into_iter().map(|thread| thread.join().unwrap_or_else(gone)).collect()
            });
            for (best, outcome) in best.iter_mut().zip(outcomes) {
                best.iter_mut().zip(outcome?).for_each(|(best, seconds)| *best = best.min(seconds));
            }
        }
        all.extend(best);
    }
    Ok(all)
}

/// Lets a command and all that it starts run on this core alone, where there is one of that number.
pub fn stay_on(command: &mut Command, core: usize) {
    // SAFETY: the call takes a set that lives to its end, and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            let mut cores: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut cores);
            // A machine without that core runs it where it likes.
            libc::sched_setaffinity(0, size_of_val(&cores), &cores);
            Ok(())
        });
    }
}
