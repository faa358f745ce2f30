//! Compares Kilnyard's fakeroot with plain calls and with other installed fakeroots.
//!
//! The speed of a shared machine varies over time by more than the differences to be measured. Anything compared with
//! plain calls therefore shares a core with them: single calls and program starts take short turns; many processes,
//! file trees and a package run at the same time and are compared by CPU time. Session starts are compared by wall
//! time, in turn. For other fakeroots, many processes and file trees are measured alone. With many processes, the
//! figure is the time of the whole machine per call, the best of several turns. File trees are compared with real root,
//! so that part requires root.

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

/// The calls to measure, all of the stat family.
const CALLS: [&str; 4] = ["stat", "lstat", "fstat", "statx"];
/// The programs to start, one for each of the [`client::START_METHODS`].
const EXECS: [(&str, &str, Judged); 2] = [
    ("exec", "exec of a dynamic program", Judged::EXEC),
    // As shells do it. The target only covers exec alone.
    ("fork_exec", "fork and exec of a dynamic program", Judged::More(None)),
];
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Number of files and folders in the trees that exist at the same time, with a margin.
const MEMORY_FILES_MIN: u64 = 450_000;
/// Size of the data written to the trees and for a package.
const MEMORY_BYTES_MIN: u64 = 512 << 20;
/// Number of turns with session starts that each contender has, per pair.
const START_TURNS: usize = 14;

/// Runs the benchmark. If a source folder with a `configure` script is given, builds that as well.
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
        for (way, (name, label, judged)) in client::START_METHODS.into_iter().zip(EXECS) {
            for (contender, seconds) in
                contenders.iter().zip(turns::measure(&contenders, &scratch, &["exec", way])?)
            {
                findings.take(name, label, judged, contender, seconds)?;
            }
        }
        many::measure(&scratch, &contenders, &mut findings)?;
        trial.say(format_args!("calls and programs: pair {pair} of {pairs} measured"));
    }
    let mut report = findings.report();
    let scratch = in_memory(scratch);
    files::measure(trial, &scratch, &contenders, &mut report)?;
    match source {
        Some(source) => package::measure(trial, source, &scratch, &contenders, &mut report)?,
        None => report
            .notes
            .push("use --source DIR (a folder with a configure script) to also build a package".into()),
    }
    Ok(report)
}

/// The time that each contender takes to start a session, in seconds.
fn starts(contenders: &[Contender], scratch: &Scratch) -> Result<Vec<Result<f64>>> {
    let mut seconds: Vec<Result<Vec<f64>>> = contenders.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..START_TURNS {
        for (contender, seconds) in contenders.iter().zip(&mut seconds) {
            super::check_interrupt()?;
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

/// The median of these times, or zero without any.
fn median(times: &[f64]) -> f64 {
    Summary::of(times).map_or(0.0, |summary| summary.median)
}

/// A scratch folder for trees and packages: in memory if there is enough, where costs and disturbances are
/// smallest.
fn in_memory(scratch: Scratch) -> Scratch {
    let has_room = |facts: rustix::fs::StatVfs| {
        // Zero means that there is no limit.
        let has_files = facts.f_files == 0 || facts.f_favail > MEMORY_FILES_MIN;
        let can_run = !facts.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC);
        has_files && can_run && facts.f_bavail * facts.f_frsize > MEMORY_BYTES_MIN
    };
    if !rustix::fs::statvfs(MEMORY).is_ok_and(has_room) {
        return scratch;
    }
    Scratch::within(std::path::Path::new(MEMORY), None).unwrap_or(scratch)
}
