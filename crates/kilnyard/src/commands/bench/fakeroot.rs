//! The fakeroot beside plain calls, and beside other fakeroots that are installed.
//!
//! Every pair measures each contender in turn; single calls and starts in several short turns, since a machine that
//! others use too is faster at one moment than at the next. Times of single calls are the smallest of many short batches, as
//! other load only adds to them; times with many processes are what the whole machine needs for a call, at its best of
//! some turns; programs that are started are the fifth percentile of many, of which each contender starts a few in turn.
//! Trees of files and a package are measured in CPU time, which other load changes the least, with and without at once.
//! Trees are compared with root itself, so that part needs root.

mod client;
mod contender;
mod execs;
mod files;
mod package;
mod sides;

use super::figures::{Report, Series, Summary, Unit, ratios};
use super::scratch::Scratch;
use crate::error::Result;
pub use client::become_client_if_asked;
use contender::Contender;
use serde_json::{Map, json};

/// What calls may cost, to plain.
const CALL_RATIO_MAX: f64 = 1.04;
/// What an exec may cost more than plain.
const EXEC_SECONDS_MAX: f64 = 30e-6;
/// What the start of a session may cost more than none.
const START_SECONDS_MAX: f64 = 3e-3;

/// The calls that look at files.
const CALLS: [&str; 4] = ["stat", "lstat", "fstat", "statx"];
/// Programs that are started in each of the [`client::WAYS`].
const EXECS: [(&str, &str); 2] =
    [("exec", "exec of a dynamic program"), ("fork_exec", "fork and exec of a dynamic program")];
/// How often everybody has a turn with single calls and starts, in each pair.
const TURNS: u32 = 14;
/// How often everybody has a turn with each number of processes at once, in each pair; the smallest time counts.
const MANY_TURNS: u32 = 5;
/// Processes at once.
const PROCESSES: [u32; 4] = [1, 4, 16, 64];

/// Measures; a source folder with a `configure` is built as well if it is given.
pub fn measure(pairs: u32, source: Option<&std::path::Path>) -> Result<Report> {
    let scratch = Scratch::temporary()?;
    let contenders = Contender::all();
    let mut rows: Vec<Row> = Vec::new();
    let mut take = |name: String, label: String, contender: &Contender, value: f64| match rows
        .iter_mut()
        .find(|row| row.name == name && row.contender == contender.name)
    {
        Some(row) => row.values.push(value),
        None => rows.push(Row { name, label, contender: contender.name, values: vec![value] }),
    };
    for _ in 0..pairs {
        let mut turns: Vec<Turns> = contenders.iter().map(|_| Turns::default()).collect();
        for _ in 0..TURNS {
            for (contender, turns) in contenders.iter().zip(&mut turns) {
                super::go_on()?;
                turns.take(contender, &scratch)?;
            }
        }
        for (contender, turns) in contenders.iter().zip(&turns) {
            for (call, seconds) in CALLS.iter().zip(&turns.calls) {
                let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
                take((*call).to_owned(), format!("{call} of an unknown file"), contender, best);
            }
            let start = Summary::of(&turns.starts).map_or(0.0, |summary| summary.median);
            take("start".to_owned(), "start of `true`".to_owned(), contender, start);
        }
        for (way, (name, label)) in client::WAYS.into_iter().zip(EXECS) {
            for (contender, seconds) in contenders.iter().zip(execs::measure(&contenders, &scratch, way)?) {
                take(name.to_owned(), label.to_owned(), contender, seconds);
            }
        }
        for processes in PROCESSES {
            let mut best = vec![f64::INFINITY; contenders.len()];
            for _ in 0..MANY_TURNS {
                for (contender, best) in contenders.iter().zip(&mut best) {
                    super::go_on()?;
                    *best = best.min(contender.client(&scratch, &["many", &processes.to_string()])?);
                }
            }
            let label = format!("stat by {} at once", crate::words::count(processes.into(), "process"));
            let label = label.replace("processs", "processes");
            for (contender, seconds) in contenders.iter().zip(best) {
                take(format!("stat_{processes}"), label.clone(), contender, seconds);
            }
        }
    }
    let mut report = Findings::of(rows).report();
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

/// What the turns of one contender in a pair came to, in seconds.
#[derive(Default)]
struct Turns {
    calls: [Vec<f64>; CALLS.len()],
    starts: Vec<f64>,
}

impl Turns {
    fn take(&mut self, contender: &Contender, scratch: &Scratch) -> Result<()> {
        for (call, seconds) in CALLS.iter().zip(&mut self.calls) {
            seconds.push(contender.client(scratch, &["call", call])?);
        }
        self.starts.push(contender.start(scratch)?);
        Ok(())
    }
}

/// One figure of one contender, in seconds.
struct Row {
    name: String,
    label: String,
    contender: &'static str,
    values: Vec<f64>,
}

struct Findings {
    rows: Vec<Row>,
    is_met: bool,
    notes: Vec<String>,
}

impl Findings {
    fn of(rows: Vec<Row>) -> Findings {
        Findings { rows, is_met: true, notes: Vec::new() }
    }

    fn values(&self, name: &str, contender: &str) -> &[f64] {
        let row = self.rows.iter().find(|row| row.name == name && row.contender == contender);
        row.map_or(&[], |row| &row.values)
    }

    fn judge(&mut self, is_met: bool, what: &str) {
        self.is_met &= is_met;
        if !is_met {
            self.notes.push(format!("missed: {what}"));
        }
    }

    fn report(mut self) -> Report {
        let mut series = Vec::new();
        for row in &self.rows {
            let key = format!("{}_{}_seconds", row.name, row.contender.replace('-', "_"));
            let label = format!("{}, {}", row.label, row.contender);
            series.push(Series::new(key, label, Unit::Seconds, row.values.clone()));
        }
        let names: Vec<(String, String)> = self
            .rows
            .iter()
            .filter(|row| row.contender == contender::PLAIN)
            .map(|row| (row.name.clone(), row.label.clone()))
            .collect();
        let others: Vec<&'static str> = self.others();
        for (name, label) in names {
            let ours = self.values(&name, contender::OURS).to_vec();
            let plain = self.values(&name, contender::PLAIN).to_vec();
            let ratio = Series::new(
                format!("{name}_to_plain"),
                format!("{label}: ours to plain"),
                Unit::Ratio,
                ratios(&ours, &plain),
            );
            let more = ours.iter().zip(&plain).map(|(ours, plain)| ours - plain).collect();
            let more = Series::new(
                format!("{name}_more_seconds"),
                format!("{label}: ours less plain"),
                Unit::Seconds,
                more,
            );
            match name.as_str() {
                "exec" => self.judge(more.median() <= EXEC_SECONDS_MAX, &label),
                "start" => self.judge(more.median() <= START_SECONDS_MAX, &label),
                // As shells do it; the target is about an exec alone.
                "fork_exec" => {}
                _ => self.judge(ratio.median() <= CALL_RATIO_MAX, &label),
            }
            series.push(if matches!(name.as_str(), "exec" | "fork_exec" | "start") { more } else { ratio });
            for other in &others {
                let theirs = self.values(&name, other);
                let key = format!("{name}_{}_to_ours", other.replace('-', "_"));
                series.push(Series::new(
                    key,
                    format!("{label}: {other} to ours"),
                    Unit::Ratio,
                    ratios(theirs, &ours),
                ));
            }
        }
        let mut facts = Map::new();
        facts.insert("contenders".to_owned(), json!(others));
        Report {
            name: "fakeroot",
            series,
            facts,
            notes: self.notes,
            target: format!(
                "calls at most {CALL_RATIO_MAX} x plain with 1 to 64 processes, an exec at most 30 µs and a start \
                 at most 3 ms more than plain; trees of files at most {} x root, {} bytes a file",
                files::RATIO_MAX,
                files::BYTES_MAX
            ),
            is_met: Some(self.is_met),
        }
    }

    /// The other fakeroots that were measured.
    fn others(&self) -> Vec<&'static str> {
        let mut others: Vec<&'static str> = self.rows.iter().map(|row| row.contender).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|name| *name != contender::PLAIN && *name != contender::OURS);
        others
    }
}
