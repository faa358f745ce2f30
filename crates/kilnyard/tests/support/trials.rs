//! Trials that declare their requirements, and are skipped with a reason if one is missing.

use libtest_mimic::{Arguments, Trial};
use std::sync::{Mutex, PoisonError};

/// Trials of one lane run one after another, those of the two lanes at the same time.
static LANES: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

/// A trial, and the reason if it cannot run here.
pub struct Case {
    name: &'static str,
    missing: Option<String>,
    mostly_waits: bool,
    run: Box<dyn FnOnce() + Send>,
}

pub fn case(name: &'static str, run: impl FnOnce() + Send + 'static) -> Case {
    Case { name, missing: None, mostly_waits: false, run: Box::new(run) }
}

impl Case {
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Says that the trial waits for most of its time, and that others do not disturb it: they may run meanwhile.
    pub fn that_mostly_waits(self) -> Case {
        Case { mostly_waits: true, ..self }
    }

    /// Skips the trial if `is_there` is false.
    pub fn needs(mut self, is_there: bool, reason: &str) -> Case {
        if !is_there && self.missing.is_none() {
            self.missing = Some(reason.to_owned());
        }
        self
    }

    /// Skips the trial if there is a reason.
    pub fn unless(self, missing: &Option<String>) -> Case {
        let reason = missing.clone().unwrap_or_default();
        self.needs(missing.is_none(), &reason)
    }
}

/// Runs the trials in two lanes, those that mostly wait in one of their own; then as [`run`].
pub fn run_in_lanes(cases: Vec<Case>, finish: impl FnOnce()) -> ! {
    let in_lane = |case: Case| {
        let (lane, run) = (&LANES[usize::from(case.mostly_waits)], case.run);
        let run = Box::new(move || {
            // One that failed is out of the way, too.
            let _turn = lane.lock().unwrap_or_else(PoisonError::into_inner);
            run();
        });
        Case { run, ..case }
    };
    // Each has a thread, which waits for its turn.
    let threads = cases.len();
    run(cases.into_iter().map(in_lane).collect(), threads, finish)
}

/// Runs the trials, calls `finish`, prints the skipped trials, and exits.
pub fn run(cases: Vec<Case>, threads_max: usize, finish: impl FnOnce()) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads_max);
    let mut skipped = Vec::new();
    let mut trials = Vec::new();
    for case in cases {
        let run = case.run;
        let is_skipped = case.missing.is_some();
        skipped.extend(case.missing.map(|reason| format!("skipped: {}: {reason}", case.name)));
        let trial = Trial::test(case.name, move || {
            run();
            Ok(())
        });
        trials.push(trial.with_ignored_flag(is_skipped));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        finish();
        for line in skipped {
            eprintln!("{line}");
        }
    }
    conclusion.exit()
}
