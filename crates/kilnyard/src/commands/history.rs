//! `kilnyard history`: runs, or the builds of one package; times of another builder.

use super::{print, print_data, unknown};
use crate::cli;
use crate::error::Result;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_model::result::{PackageState, StageResult};
use kilnyard_store::BuildRow;
use kilnyard_yard::facts::{packages, status};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

/// The maximum number of builds shown.
const BUILDS_MAX: usize = 100;

pub fn run(yard: &Yard, options: &cli::History) -> Result<ExitCode> {
    let store = yard.store()?;
    match &options.package {
        Some(package) => {
            let builds = store.builds_of(package, BUILDS_MAX).map_err(store_error)?;
            if builds.is_empty() && store.planned(package).map_err(store_error)?.is_none() {
                return Err(unknown(yard, &*store, package)?);
            }
            if options.json {
                return print_data(&builds.iter().map(packages::build).collect::<Vec<_>>());
            }
            let text = builds.iter().map(|build| {
                let stages = build.stages.iter().filter(|_| options.stages).map(stage_line);
                let machine = options.stages.then(|| machine_line(build)).flatten();
                std::iter::once(build_line(build)).chain(machine).chain(stages).collect::<String>()
            });
            print(&text.collect::<String>())
        }
        None => {
            let runs = status::runs(yard, &*store)?;
            if options.json {
                return print_data(&runs);
            }
            let mut text = String::new();
            for run in runs {
                let counts: Vec<String> = in_order(&run.counts);
                let wall = run.ended_seconds.map_or(0.0, |ended| ended - run.started_seconds);
                let _ = writeln!(
                    text,
                    "run {:<4} {}  {:<11} {:>12}  {}",
                    run.run,
                    words::time(run.started_seconds),
                    run.state,
                    words::duration(wall),
                    counts.join(", ")
                );
            }
            print(&text)
        }
    }
}

/// Counts of packages, in the order of the states.
pub fn in_order(counts: &BTreeMap<String, u64>) -> Vec<String> {
    let states = PackageState::ALL.into_iter();
    states.filter_map(|state| Some(format!("{} {state}", counts.get(state.as_str())?))).collect()
}

fn cpu_seconds(build: &BuildRow) -> f64 {
    build.stages.iter().map(|stage| stage.cpu_seconds).sum()
}

fn memory_peak_bytes(build: &BuildRow) -> u64 {
    build.stages.iter().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0)
}

/// The machine of a build; `None` if it was not recorded.
fn machine_line(build: &BuildRow) -> Option<String> {
    let host = build.host.as_ref()?;
    let worker = build.worker.as_deref().unwrap_or("this machine");
    let cores = words::count(u64::from(build.cores), "core");
    Some(format!("  on {worker}: {cores}, {}, {}\n", host.cpu, host.kernel))
}

fn build_line(build: &BuildRow) -> String {
    let wall = build.ended_seconds.map_or(0.0, |ended| ended - build.started_seconds);
    let why = build.failure.as_ref().map_or(String::new(), |f| format!("  {}: {}", f.stage, f.message));
    format!(
        "build {:<5} run {:<4} {}  {:<9} {:<24} wall {:>10}  cpu {:>10}  peak {:>10}{}\n",
        build.number,
        build.run,
        words::time(build.started_seconds),
        build.outcome,
        build.version,
        words::duration(wall),
        words::duration(cpu_seconds(build)),
        words::size(memory_peak_bytes(build)),
        why.lines().next().unwrap_or("")
    )
}

/// A size, or a note that it was not counted: unknown is not zero.
fn counted(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), words::size)
}

fn stage_line(stage: &StageResult) -> String {
    let measures = &stage.measures;
    let stalled = [
        ("core", measures.cpu_stalled_seconds),
        ("memory", measures.memory_stalled_seconds),
        ("disk", measures.io_stalled_seconds),
    ];
    let stalled: Vec<String> = stalled
        .iter()
        .filter_map(|(what, seconds)| Some(format!("{what} {}", words::duration((*seconds)?))))
        .collect();
    let mut line = format!(
        "  {:<10} wall {:>10}  user {:>10}  system {:>10}  peak {:>10}  read {:>10}  written {:>10}  {:>6} processes",
        stage.stage.as_str(),
        words::duration(stage.wall_seconds),
        words::duration(measures.user_seconds),
        words::duration(measures.system_seconds),
        words::size(stage.memory_peak_bytes),
        counted(measures.read_bytes),
        counted(measures.written_bytes),
        measures.processes,
    );
    if !stalled.is_empty() {
        let whose = if measures.is_stalled_of_machine { " (of the whole machine)" } else { "" };
        let _ = write!(line, "  stalled for {}{whose}", stalled.join(", "));
    }
    line.push('\n');
    if let Some(kept) = measures.kept {
        let _ = writeln!(line, "    it {kept}");
    }
    for left in &stage.left_behind {
        let _ = writeln!(line, "    left behind: {left}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_is_not_zero() {
        assert_eq!([None, Some(0)].map(counted), ["unknown", "0 B"]);
    }
}
