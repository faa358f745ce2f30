//! A farm of hundreds of workers: the leader, the protocol and the packages are real, the builds are not.
//!
//! `kilnyard serve` and `kilnyard build --elsewhere` run in a yard of two thousand small source packages. The workers are
//! threads of a few processes: each joins with a token and a key of its own, speaks the protocol over TLS, and stores real
//! packages of 4 KiB, but its builds only wait. Their times are one tenth of those of real ones. The run is compared with
//! a simulation of the same graph, times and machines.
//!
//! Known downside: leader and workers share this machine, whose cores should not be busy.

pub mod cells;
mod chatter;
pub mod cost;
pub mod logs;
mod processes;
mod real;
mod shams;
mod sources;
pub mod split;
pub mod worker;

pub use real::processors;

use crate::error::{Context, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::scratch::Scratch;
use crate::yard::{CONFIG, Yard, store_error};
use crate::{Trial, interrupt, sham};
use kilnyard_schedule::{Limits, Machine, Scheduler, simulate};
use processes::{Door, Ending, build_failed, start};
use serde_json::{Map, json};
use shams::{Shams, Wanted};
use sources::Sources;
use std::time::{Duration, Instant};

/// Number of packages.
const PACKAGES: usize = 2000;
/// Number of workers.
const WORKERS: usize = 300;
/// Slots of each worker.
const SLOTS: u32 = 16;
/// The arguments of the run.
const BUILD: [&str; 4] = ["build", "--elsewhere", "--no-publish", "--no-scan"];

/// Runs the benchmark in a copy of this yard, which needs a base root.
pub fn measure(yard: &Yard, trial: &Trial<'_>) -> Result<Report> {
    let sources = Sources::new(PACKAGES);
    let (_scratch, own) = sham_yard(yard, &sources, trial)?;
    let door = Door::open(&own)?;
    trial.say(format_args!("{WORKERS} workers join, with {SLOTS} slots each"));
    let seconds = sources.seconds_by_name();
    let wanted = Wanted { workers: WORKERS, slots: SLOTS, seconds, chatting: None };
    let shams = Shams::join(&own, &door.url, wanted)?;
    let (door_before, began) = (door.running.used().cpu_seconds, Instant::now());
    let mut build = start(&own, &BUILD, "build", Ending::Killed)?;
    let (mut cpu_seconds, mut memory_bytes) = (0.0, 0);
    let status = loop {
        crate::check_interrupt()?;
        if let Some(status) = build.status()? {
            break status;
        }
        let (of_build, of_door) = (build.used(), door.running.used());
        cpu_seconds = of_build.cpu_seconds + of_door.cpu_seconds - door_before;
        // Both are peaks already; a process that ends meanwhile has none.
        memory_bytes = memory_bytes.max(of_build.memory_peak_bytes + of_door.memory_peak_bytes);
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        return Err(build_failed(&own, "build", status));
    }
    let wall_seconds = began.elapsed().as_secs_f64();
    let granted = shams.end()?;
    drop(door);
    let rows = own.store()?.builds_in(1).map_err(store_error)?;
    let first = rows.iter().map(|row| row.started_seconds).fold(f64::INFINITY, f64::min);
    let last = rows.iter().filter_map(|row| row.ended_seconds).fold(0.0, f64::max);
    let makespan_seconds = last - first;
    let simulated_seconds = simulated(&sources)?;
    let mut delays = sources.delays(&granted);
    delays.sort_by(f64::total_cmp);
    let at =
        |share: f64| delays.get((delays.len() as f64 * share) as usize).copied().unwrap_or(f64::INFINITY);
    let cores = cpu_seconds / wall_seconds;
    let series = |key: &str, label: &str, unit, value| Series::new(key, label, unit, vec![value]);
    let figures = vec![
        series("leader_cores", "the leader's cores (build and serve)", Unit::Ratio, cores),
        series("leader_memory_bytes", "their memory", Unit::Bytes, memory_bytes as f64),
        series(
            "assignment_p50_seconds",
            "from the last dependency's result to the lease, median",
            Unit::Seconds,
            at(0.5),
        ),
        series("assignment_p99_seconds", "the same, 99 of 100", Unit::Seconds, at(0.99)),
        series(
            "makespan_seconds",
            "the run, from the first to the last build",
            Unit::Seconds,
            makespan_seconds,
        ),
        series("simulated_seconds", "the same, simulated", Unit::Seconds, simulated_seconds),
    ];
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(PACKAGES));
    facts.insert("workers".to_owned(), json!(WORKERS));
    facts.insert("builds".to_owned(), json!(rows.len()));
    let ratio = makespan_seconds / simulated_seconds;
    let notes = vec![
        format!(
            "{} builds of {PACKAGES} packages by {WORKERS} workers; {:.2} of the simulation",
            rows.len(),
            ratio
        ),
        "workers and leader share this machine".to_owned(),
    ];
    let target =
        "half a core and 300 MB; assignment in 10 ms; the run within 5 % of the simulation".to_owned();
    let is_met = cores <= 0.5 && memory_bytes <= 300_000_000 && at(0.5) <= 0.01 && ratio <= 1.05;
    Ok(Report { name: "farm", series: figures, facts, notes, target, is_met: Some(is_met) })
}

/// A yard of these sources with the base root of another one, inside it.
fn sham_yard(yard: &Yard, sources: &Sources, trial: &Trial<'_>) -> Result<(Scratch, Yard)> {
    yard.config.family.check_scanned(yard)?;
    let ids = yard.ids();
    yard.config.family.ensure_layers(yard, &ids, interrupt::cancel(), &|text| trial.say(text))?;
    let scratch = Scratch::within(&yard.folder, Some(ids))?;
    let own = scratch.beside(yard, yard.config.clone())?;
    sources.write(&own.path("own")).context(Kind::Machine, "write the sources of the benchmark")?;
    configure(&own)?;
    Ok((scratch, own))
}

/// Replaces the packages of the yard, and leaves out tests of outputs.
fn configure(own: &Yard) -> Result<()> {
    let failed = "configure the yard of the benchmark";
    let text = fs_err::read_to_string(own.path(CONFIG)).context(Kind::Machine, failed)?;
    let (before, rest) = text.split_once("packages = [").unwrap_or((&text, "]"));
    let after = rest.split_once(']').map_or("", |(_, after)| after);
    let text = format!("{before}packages = [\"{}\"]{after}", sham::RULE);
    let text = text.replace("# test = true", "test = false");
    fs_err::write(own.path(CONFIG), text).context(Kind::Machine, failed)
}

/// The time of the run by the scheduler's own rules, without any delay.
fn simulated(sources: &Sources) -> Result<f64> {
    let failed = "simulate the benchmark";
    let (graph, works) = (sources.graph(), sources.works());
    let machines = vec![Machine::of_cores(SLOTS); WORKERS];
    let scheduler = Scheduler::new(graph.clone(), works.clone(), machines.clone(), Limits::default());
    let mut scheduler = scheduler.or_internal(failed)?;
    Ok(simulate(&graph, &works, &machines, &mut scheduler).or_internal(failed)?.makespan_seconds)
}
