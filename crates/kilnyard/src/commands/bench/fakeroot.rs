//! The fakeroot beside plain calls, and beside other fakeroots that are installed.
//!
//! A machine that others use too is faster at one moment than at the next, by more than what is looked for. So what is compared
//! shares a core: single calls and programs that are started in short turns, trees of files and a package at once, in CPU time.
//! Times with many processes beside other fakeroots are what the whole machine needs for a call, at its best of some turns.
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
/// How often everybody has a turn with starts of a session, in each pair.
const START_TURNS: usize = 14;

/// Measures; a source folder with a `configure` is built as well if it is given.
pub fn measure(pairs: u32, source: Option<&std::path::Path>) -> Result<Report> {
    let scratch = Scratch::temporary()?;
    let contenders = Contender::all();
    let mut findings = Findings::default();
    for _ in 0..pairs {
        for call in CALLS {
            let label = format!("{call} of an unknown file");
            for (contender, seconds) in
                contenders.iter().zip(turns::measure(&contenders, &scratch, &["call", call])?)
            {
                findings.take(call, &label, Judged::Call, contender, seconds)?;
            }
        }
        for (contender, seconds) in contenders.iter().zip(starts(&contenders, &scratch)?) {
            findings.take("start", "start of `true`", Judged::START, contender, Ok(seconds))?;
        }
        for (way, (name, label, judged)) in client::WAYS.into_iter().zip(EXECS) {
            for (contender, seconds) in
                contenders.iter().zip(turns::measure(&contenders, &scratch, &["exec", way])?)
            {
                findings.take(name, label, judged, contender, seconds)?;
            }
        }
        many::measure(&scratch, &contenders, &mut findings)?;
    }
    let mut report = findings.report();
    // In memory, where making files costs least and is disturbed least by others.
    let memory = std::path::Path::new("/dev/shm");
    let in_memory = if memory.is_dir() { Scratch::within(memory, None)? } else { scratch };
    files::measure(pairs, &in_memory, &contenders, &mut report)?;
    match source {
        Some(source) => package::measure(pairs, source, &in_memory, &contenders, &mut report)?,
        None => report
            .notes
            .push("a package is built as well with --source DIR, a folder with a configure".into()),
    }
    Ok(report)
}

/// What the start of a session takes, of each contender, in seconds.
fn starts(contenders: &[Contender], scratch: &Scratch) -> Result<Vec<f64>> {
    let mut seconds = vec![Vec::new(); contenders.len()];
    for _ in 0..START_TURNS {
        for (contender, seconds) in contenders.iter().zip(&mut seconds) {
            super::go_on()?;
            seconds.push(contender.start(scratch)?);
        }
    }
    Ok(seconds.iter().map(|seconds| Summary::of(seconds).map_or(0.0, |summary| summary.median)).collect())
}
