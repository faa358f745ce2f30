//! The figures for Prometheus: of the farm, and of the latest runs of each yard.

use super::SILENT_SECONDS_MAX;
use crate::yard::Yard;
use kilnyard_farm::relay::{Status, WorkerStatus, YardStatus};
use kilnyard_schema::measure::{Figures, Percentiles};
use kilnyard_yard::facts::measure::figures;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The runs that percentiles are of.
const RUNS: usize = 10;
/// How old the figures of runs may be: they take a moment to read.
const AGE_MAX: Duration = Duration::from_secs(60);

/// What writes the figures of a site.
pub fn writer(yard: &Yard) -> impl Fn(&Status) -> String + Send + Sync + 'static {
    let home = yard.home.clone();
    let known: Mutex<Option<(Instant, String)>> = Mutex::default();
    move |status| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(made, _)| made.elapsed() > AGE_MAX) {
            *known = Some((Instant::now(), of_yards(&home)));
        }
        of_farm(status) + known.as_ref().map_or("", |(_, text)| text)
    }
}

/// The figures of the latest runs of all yards.
fn of_yards(home: &std::path::Path) -> String {
    let Ok(site) = crate::commands::open(home) else { return String::new() };
    let further = site.config.farm.yards.iter();
    let further = further
        .filter_map(|(name, one)| Some((name.clone(), crate::commands::open(&home.join(&one.path)).ok()?)));
    let yards: Vec<(String, Yard)> = std::iter::once((String::new(), site.clone())).chain(further).collect();
    let mut all: Vec<(String, Figures)> = Vec::new();
    for (name, yard) in yards {
        for target in yard.targets().unwrap_or_default() {
            let read = target.store().and_then(|store| figures(&target, &*store, RUNS, None));
            if let Ok(figures) = read {
                let target = target.target_name.unwrap_or_default();
                all.push((format!("yard=\"{name}\",target=\"{target}\""), figures));
            }
        }
    }
    let mut text = String::new();
    for (name, help, of) in SUMMARIES {
        let _ =
            writeln!(text, "# HELP kilnyard_{name}_seconds {help}\n# TYPE kilnyard_{name}_seconds summary");
        for (labels, figures) in &all {
            let of = of(figures);
            let quantiles = [("0.5", of.p50_seconds), ("0.9", of.p90_seconds), ("0.99", of.p99_seconds)];
            for (quantile, seconds) in quantiles.into_iter().filter(|_| of.count > 0) {
                let _ =
                    writeln!(text, "kilnyard_{name}_seconds{{{labels},quantile=\"{quantile}\"}} {seconds}");
            }
            let _ = writeln!(text, "kilnyard_{name}_seconds_sum{{{labels}}} {}", of.sum_seconds);
            let _ = writeln!(text, "kilnyard_{name}_seconds_count{{{labels}}} {}", of.count);
        }
    }
    for (name, help, of) in RUNS_OF {
        let _ = writeln!(text, "# HELP kilnyard_{name} {help}\n# TYPE kilnyard_{name} gauge");
        for (labels, figures) in &all {
            if let Some(run) = of(figures) {
                let _ = writeln!(text, "kilnyard_{name}{{{labels}}} {run}");
            }
        }
    }
    text
}

/// A figure's name, its description, and where it is.
type Summary = (&'static str, &'static str, fn(&Figures) -> &Percentiles);

const SUMMARIES: [Summary; 4] = [
    ("end_to_end", "From a commit or a new source to its publication, in the latest runs.", |figures| {
        &figures.end_to_end
    }),
    ("wait", "From the moment when a package could start to its start.", |figures| &figures.wait),
    ("build", "From the start of a build to its end.", |figures| &figures.build),
    ("publication", "From the end of a run's last build to its publication.", |figures| &figures.publication),
];

/// The name of a run's number, its description, and where it is.
type RunOf = (&'static str, &'static str, fn(&Figures) -> Option<u64>);

const RUNS_OF: [RunOf; 2] = [
    ("last_run", "The number of the last run.", |figures| figures.runs.first().copied()),
    ("last_all_green_run", "The number of the last run in which all was well.", |figures| {
        figures.last_all_green_run
    }),
];

/// The end of a figure's name, its description, and the figure.
type YardFigure = (&'static str, &'static str, fn(&YardStatus) -> f64);

/// The figures of the farm, for Prometheus.
fn of_farm(status: &Status) -> String {
    let connected =
        |worker: &&WorkerStatus| worker.silent_seconds.is_some_and(|silent| silent < SILENT_SECONDS_MAX);
    let there: Vec<&WorkerStatus> = status.workers.iter().filter(connected).collect();
    let builds: usize = there.iter().map(|worker| worker.builds).sum();
    let cores: u32 = there.iter().map(|worker| worker.about.cores).sum();
    let has_run = u32::from(status.has_run);
    let mut text = String::new();
    for (name, help, value) in [
        ("workers", "Connected workers.", there.len().to_string()),
        ("workers_cores", "The cores of connected workers.", cores.to_string()),
        ("workers_builds", "The builds of connected workers.", builds.to_string()),
        ("has_run", "Whether a run is connected.", has_run.to_string()),
    ] {
        text += &format!(
            "# HELP kilnyard_{name} {help}\n# TYPE kilnyard_{name} gauge\nkilnyard_{name} {value}\n"
        );
    }
    let of_yards: [YardFigure; 4] = [
        ("running", "Builds of a yard that are in progress.", |yard| yard.running as f64),
        ("ready", "Packages of a yard that could start.", |yard| yard.ready as f64),
        ("work_core_seconds", "The expected work that is left in a yard's run.", |yard| yard.core_seconds),
        (
            "quota_used",
            "The part of its core-hours of a day that a yard has used; 0 without a bound.",
            |yard| yard.quota.map_or(0.0, |quota| quota.part()),
        ),
    ];
    for (name, help, of) in of_yards.into_iter().filter(|_| !status.yards.is_empty()) {
        text += &format!("# HELP kilnyard_yard_{name} {help}\n# TYPE kilnyard_yard_{name} gauge\n");
        for yard in &status.yards {
            // Names of yards have neither quotes nor backslashes.
            text += &format!("kilnyard_yard_{name}{{yard=\"{}\"}} {}\n", yard.name, of(yard));
        }
    }
    text + &crate::commands::pools::metrics(&status.pools)
}
