//! Runs every target on its seeds and on mutations of them. `KILNYARD_FUZZ_SEED` repeats the run with that number,
//! `KILNYARD_FUZZ_INPUTS` sets the number of mutations.

use kilnyard_fuzz::mutate::{mutated, seeds};
use kilnyard_fuzz::{TARGETS, Target};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fmt::Write;
use std::panic::catch_unwind;
use std::str::FromStr;

/// Default number of mutations per target.
const INPUTS: u64 = 3000;

/// How much of a failing input is printed.
const SHOWN_BYTES_MAX: usize = 4096;

fn setting<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}

fn main() {
    let arguments = Arguments::from_args();
    let seed = setting("KILNYARD_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let inputs = setting("KILNYARD_FUZZ_INPUTS").unwrap_or(INPUTS);
    eprintln!("KILNYARD_FUZZ_SEED={seed} repeats this run");
    let trials = TARGETS.iter().map(|target| Trial::test(target.0, move || try_all(*target, seed, inputs)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn try_all((name, target): Target, seed: u64, inputs: u64) -> Result<(), Failed> {
    let seeds = seeds(name).map_err(|error| format!("failed to read the seeds of {name}: {error}"))?;
    if seeds.is_empty() {
        return Err(format!("{name} has no seeds").into());
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mutations = std::iter::repeat_with(|| mutated(&seeds, &mut random)).take(inputs as usize);
    for input in seeds.iter().cloned().chain(mutations) {
        if catch_unwind(|| target(&input)).is_err() {
            let mut message =
                format!("{name} failed, see above; repeat with KILNYARD_FUZZ_SEED={seed}; the input was:\n");
            // Writing to a string cannot fail.
            let _ = write!(message, "{}", input[..input.len().min(SHOWN_BYTES_MAX)].escape_ascii());
            return Err(message.into());
        }
    }
    Ok(())
}
