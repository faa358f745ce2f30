//! Two contenders at once, each on a core of its own, and then the other way round.
//!
//! What disturbs one disturbs the other then, and a core that is slower than another is so for both. Other load only adds to
//! the CPU time of a step, so that the smallest of the turns counts, and there are turns until they bring nothing smaller.

use super::contender::Contender;
use crate::error::{Error, Kind, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How often each is measured at least; each core has its half.
const TURNS_MIN: usize = 4;
/// And at most.
const TURNS_MAX: usize = 16;
/// What a turn has to take from the smallest time of a step to have brought anything, as a part of that.
const GAIN_MIN: f64 = 0.003;

/// The seconds of each step of each contender. `steps` is called with the contender, a number that no other one has at that
/// time, and its core.
pub fn measure<'a, const STEPS: usize>(
    contenders: &[&'a Contender],
    steps: impl Fn(&Contender, usize, usize) -> Result<[f64; STEPS]> + Sync,
) -> Result<Vec<[f64; STEPS]>> {
    let mut all = Vec::new();
    for two in contenders.chunks(2) {
        let mut best = vec![[f64::INFINITY; STEPS]; two.len()];
        let (mut turn, mut since_gain) = (0, 0);
        while turn < TURNS_MIN || (two.len() == 2 && since_gain < TURNS_MIN && turn < TURNS_MAX) {
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
            turn += 1;
            since_gain += 1;
            for (best, outcome) in best.iter_mut().zip(outcomes) {
                for (best, seconds) in best.iter_mut().zip(outcome?) {
                    if seconds < *best * (1.0 - GAIN_MIN) {
                        since_gain = 0;
                    }
                    *best = best.min(seconds);
                }
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
