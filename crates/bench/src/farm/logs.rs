//! The logs of hundreds of workers, while their builds write them.
//!
//! `kilnyard serve` and `kilnyard build --elsewhere` run in a yard with a package for each worker. Every worker has a build
//! that writes lines at a steady rate; the worker sends them in parts, with the code of real workers. A few `kilnyard log
//! --follow` print some of the logs, and some lines have the time at which they were written, so that it is known how late
//! they are printed.
//!
//! Builds do not end during the measurement: the whole log, which a worker sends at the end of a build, is not part of it.
//!
//! Known downside: leader, workers and readers share this machine. A core that is busy delays lines.

use super::chatter::{Chatting, written_seconds};
use super::processes::{Door, Ending, Running, Used, build_failed, start, until};
use super::shams::{Shams, Wanted};
use super::sources::Sources;
use super::{BUILD, sham_yard};
use crate::Trial;
use crate::child;
use crate::error::{Error, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::words::now_seconds;
use crate::yard::Yard;
use serde_json::{Map, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// What all builds write together.
const BYTES_PER_SECOND: f64 = 10e6;
/// The time of a build: longer than any measurement.
const BUILD_SECONDS: f64 = 1e6;
/// The most logs that are followed: each reader needs a process.
const FOLLOWED_MAX: usize = 5;
/// How long a line that was written may take until the measurement fails.
const LATE_MAX: Duration = Duration::from_secs(60);
/// The target for the leader.
const CORES_MAX: f64 = 0.2;
/// The target for a line.
const LATE_SECONDS_MAX: f64 = 3.0;
/// The least share of the text that the leader must have got, for the other figures to count.
const SHARE_MIN: f64 = 0.95;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    pub workers: usize,
    /// The time that is measured.
    pub seconds: u32,
}

/// A line that a reader has printed.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// The position of the reader.
    reader: usize,
    /// When it was written, in seconds since 1970.
    written_seconds: f64,
    /// When it was printed.
    shown_seconds: f64,
}

/// What the leader has used and stored at some moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    door: Used,
    build: Used,
    stored_bytes: u64,
}

/// Runs the benchmark in a copy of this yard, which needs a base root.
pub fn measure(yard: &Yard, amount: Amount, trial: &Trial<'_>) -> Result<Report> {
    let Amount { workers, seconds } = amount;
    let sources = Sources::independent(workers, BUILD_SECONDS);
    let (_scratch, own) = sham_yard(yard, &sources, trial)?;
    let door = Door::open(&own)?;
    let chatting = Some(Chatting { bytes_per_second: BYTES_PER_SECOND / workers as f64 });
    let wanted = Wanted { workers, slots: 1, seconds: sources.seconds_by_name(), chatting };
    let _shams = Shams::join(&own, &door.url, wanted)?;
    let mut build = start(&own, &BUILD, "build", Ending::Killed)?;
    let logs = own.path("logs/1");
    until("all builds write logs", || stored(&logs).0 == workers)?;
    let names = sources.names();
    let step = workers.div_ceil(FOLLOWED_MAX);
    let (sender, shown) = mpsc::channel();
    let followed = names.iter().step_by(step).enumerate();
    let readers: Vec<Running> =
        followed.map(|(reader, name)| follow(&own, reader, name, sender.clone())).collect::<Result<_>>()?;
    drop(sender);
    trial.say(format_args!("{workers} builds write logs; measuring for {seconds} s"));
    let moment = |build: &Running| Moment {
        at: Instant::now(),
        door: door.running.used(),
        build: build.used(),
        stored_bytes: stored(&logs).1,
    };
    // Each reader first prints what was written before.
    let mut lines = shown_since(&shown, readers.len(), now_seconds())?;
    let (before, from_seconds) = (moment(&build), now_seconds());
    while before.at.elapsed() < Duration::from_secs(seconds.into()) {
        crate::check_interrupt()?;
        if let Some(status) = build.status()? {
            return Err(build_failed(&own, "build", status));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let (after, to_seconds) = (moment(&build), now_seconds());
    lines.extend(shown_since(&shown, readers.len(), to_seconds)?);
    let is_measured = |line: &&Shown| (from_seconds..to_seconds).contains(&line.written_seconds);
    let late = lines.iter().filter(is_measured).map(|line| line.shown_seconds - line.written_seconds);
    Ok(report(amount, readers.len(), &before, &after, late.collect()))
}

/// Starts `kilnyard log --follow`, and a thread that notes when it prints lines.
fn follow(own: &Yard, reader: usize, package: &str, shown: Sender<Shown>) -> Result<Running> {
    let mut command = child::this_program(&own.folder, &["log", "--follow", package]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let log = own.path(&format!("logs/reader-{reader}"));
    let mut running = Running::start_piped(command, &log, Ending::Killed)?;
    let output = running.child().stdout.take();
    let output =
        output.ok_or_else(|| Error::new(Kind::Internal, "a reader of the benchmark has no output"))?;
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            let Some(written_seconds) = written_seconds(&line) else { continue };
            // The measurement may be over.
            let _ = shown.send(Shown { reader, written_seconds, shown_seconds: now_seconds() });
        }
    });
    Ok(running)
}

/// The lines that readers print until each has printed one that was written after this time.
fn shown_since(shown: &Receiver<Shown>, readers: usize, seconds: f64) -> Result<Vec<Shown>> {
    let (mut lines, mut is_done) = (Vec::new(), vec![false; readers]);
    let began = Instant::now();
    while !is_done.iter().all(|is_done| *is_done) {
        crate::check_interrupt()?;
        match shown.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                is_done[line.reader] |= line.written_seconds > seconds;
                lines.push(line);
            }
            Err(RecvTimeoutError::Timeout) if began.elapsed() < LATE_MAX => {}
            Err(_) => {
                let what = "a line of a log was not printed by `kilnyard log --follow`";
                return Err(Error::new(Kind::Internal, what));
            }
        }
    }
    Ok(lines)
}

/// The number and the bytes of a run's logs that the leader has.
fn stored(logs: &Path) -> (usize, u64) {
    let folders = fs_err::read_dir(logs).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| fs_err::read_dir(folder.path()).into_iter().flatten().flatten());
    let sizes: Vec<u64> = files.filter_map(|file| Some(file.metadata().ok()?.len())).collect();
    (sizes.len(), sizes.iter().sum())
}

fn report(amount: Amount, readers: usize, before: &Moment, after: &Moment, mut late: Vec<f64>) -> Report {
    let wall_seconds = after.at.duration_since(before.at).as_secs_f64();
    let cores = |of: fn(&Moment) -> Used| (of(after).cpu_seconds - of(before).cpu_seconds) / wall_seconds;
    let (by_door, by_build) = (cores(|moment| moment.door), cores(|moment| moment.build));
    let stored_per_second = (after.stored_bytes - before.stored_bytes) as f64 / wall_seconds;
    let memory_bytes = after.door.memory_peak_bytes + after.build.memory_peak_bytes;
    late.sort_by(f64::total_cmp);
    let count = late.len();
    let at = |share: f64| late.get((count as f64 * share) as usize).copied().unwrap_or(f64::INFINITY);
    let series = |key: &str, label: &str, unit, value| Series::new(key, label, unit, vec![value]);
    let is_whole = stored_per_second >= BYTES_PER_SECOND * SHARE_MIN;
    let mut notes = vec![
        format!("{} workers, each with a build that writes; {} s", amount.workers, amount.seconds),
        format!("{count} lines with a time were printed by {readers} readers"),
        "workers, leader and readers share this machine".to_owned(),
    ];
    if !is_whole {
        notes.push("the leader got less than was written: this machine is too busy".to_owned());
    }
    let mut facts = Map::new();
    facts.insert("workers".to_owned(), json!(amount.workers));
    facts.insert("seconds".to_owned(), json!(amount.seconds));
    facts.insert("lines".to_owned(), json!(count));
    Report {
        name: "farm-logs",
        series: vec![
            series("leader_cores", "the leader's cores (build and serve)", Unit::Ratio, by_door + by_build),
            series("serve_cores", "part of serve", Unit::Ratio, by_door),
            series("leader_memory_bytes", "their memory", Unit::Bytes, memory_bytes as f64),
            series(
                "stored_bytes_per_second",
                "text that arrived, per second",
                Unit::Bytes,
                stored_per_second,
            ),
            series(
                "late_p50_seconds",
                "from writing a line to `log --follow`, median",
                Unit::Seconds,
                at(0.5),
            ),
            series("late_p99_seconds", "the same, 99 of 100", Unit::Seconds, at(0.99)),
            series(
                "late_max_seconds",
                "the same, the latest line",
                Unit::Seconds,
                late.last().copied().unwrap_or(f64::INFINITY),
            ),
        ],
        facts,
        notes,
        target: format!(
            "{CORES_MAX} cores for 10 MB of text per second; 99 of 100 lines printed within {LATE_SECONDS_MAX} s"
        ),
        is_met: Some(is_whole && by_door + by_build <= CORES_MAX && at(0.99) <= LATE_SECONDS_MAX),
    }
}
