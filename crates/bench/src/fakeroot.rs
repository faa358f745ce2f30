//! The fakeroot beside plain calls, and beside other fakeroots that are installed.
//!
//! A machine that others use too is faster at one moment than at the next, by more than what is looked for. So what is compared
//! with plain shares a core with it: single calls and programs that are started in short turns, many processes, trees of files
//! and a package at once, in CPU time. Starts of a session are wall times, in turn. Beside other fakeroots many processes and
//! trees are measured alone; with many processes it is what the whole machine needs for a call, at its best of some turns.
//! Trees are compared with root itself, so that part needs root.

mod client;
mod contender;
mod files;
mod findings;
mod many;
mod package;
mod sides;
mod turns;

use super::figures::{Report, Summary};
use super::scratch::Scratch;
use crate::Trial;
use crate::error::Result;
pub use client::become_client_if_asked;
use contender::Contender;
use findings::{Findings, Judged};

/// The calls that look at files.
const CALLS: [&str; 4] = ["stat", "lstat", "fstat", "statx"];
/// Programs that are started in each of the [`client::WAYS`].
const EXECS: [(&str, &str, Judged); 2] = [
    ("exec", "exec of a dynamic program", Judged::EXEC),
    // As shells do it; the target is about an exec alone.
    ("fork_exec", "fork and exec of a dynamic program", Judged::More(None)),
];
/// Memory that looks like a disk.
const MEMORY: &str = "/dev/shm";
/// Files and folders of the trees that are there at once, with a little to spare.
const MEMORY_FILES_MIN: u64 = 450_000;
/// What is written into them, and a package.
const MEMORY_BYTES_MIN: u64 = 512 << 20;
/// How often everybody has a turn with starts of a session, in each pair.
const START_TURNS: usize = 14;

/// Measures; a source folder with a `configure` is built as well if it is given.
pub fn measure(trial: &Trial<'_>, source: Option<&std::path::Path>) -> Result<Report> {
    let pairs = trial.pairs;
    let scratch = Scratch::within(trial.temporary, None)?;
    let contenders = Contender::all();
    let mut findings = Findings::default();
    for pair in 1..=pairs {
        for call in CALLS {
            let label = format!("{call} of an unknown file");
            for (contender, seconds) in
                contenders.iter().zip(turns::measure(&contenders, &scratch, &["call", call])?)
            {
                findings.take(call, &label, Judged::Call, contender, seconds)?;
            }
        }
        for (contender, seconds) in contenders.iter().zip(starts(&contenders, &scratch)?) {
            findings.take("start", "start of `true`", Judged::START, contender, seconds)?;
        }
        for (way, (name, label, judged)) in client::WAYS.into_iter().zip(EXECS) {
            for (contender, seconds) in
                contenders.iter().zip(turns::measure(&contenders, &scratch, &["exec", way])?)
            {
                findings.take(name, label, judged, contender, seconds)?;
            }
        }
        many::measure(&scratch, &contenders, &mut findings)?;
        trial.say(format_args!("calls and programs: pair {pair} of {pairs} is measured"));
    }
    let mut report = findings.report();
    let scratch = in_memory(scratch);
    files::measure(trial, &scratch, &contenders, &mut report)?;
    match source {
        Some(source) => package::measure(trial, source, &scratch, &contenders, &mut report)?,
        None => report
            .notes
            .push("a package is built as well with --source DIR, a folder with a configure".into()),
    }
    Ok(report)
}

/// What the start of a session takes, of each contender, in seconds.
fn starts(contenders: &[Contender], scratch: &Scratch) -> Result<Vec<Result<f64>>> {
    let mut seconds: Vec<Result<Vec<f64>>> = contenders.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..START_TURNS {
        for (contender, seconds) in contenders.iter().zip(&mut seconds) {
            super::go_on()?;
            if let Ok(times) = seconds {
                match contender.start(scratch) {
                    Ok(time) => times.push(time),
                    Err(error) => *seconds = Err(error),
                }
            }
        }
    }
    Ok(seconds.into_iter().map(|seconds| seconds.map(|times| median(&times))).collect())
}

/// The median of times; there are some.
fn median(times: &[f64]) -> f64 {
    Summary::of(times).map_or(0.0, |summary| summary.median)
}

/// Where trees and packages are made: in memory, where that costs least and is disturbed least by others, if there is room.
fn in_memory(scratch: Scratch) -> Scratch {
    let has_room = |facts: rustix::fs::StatVfs| {
        // Without a limit there are none.
        let has_files = facts.f_files == 0 || facts.f_favail > MEMORY_FILES_MIN;
        let can_run = !facts.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC);
        has_files && can_run && facts.f_bavail * facts.f_frsize > MEMORY_BYTES_MIN
    };
    if !rustix::fs::statvfs(MEMORY).is_ok_and(has_room) {
        return scratch;
    }
    Scratch::within(std::path::Path::new(MEMORY), None).unwrap_or(scratch)
}
