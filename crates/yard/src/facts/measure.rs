//! Times of the latest runs as percentiles: what waits, what is slow, and how long a change takes until it is published.

use super::packages::last_all_green_run;
use crate::error::Result;
use crate::yard::{Yard, store_error};
use kilnyard_model::order::Stage;
use kilnyard_model::result::PackageState;
use kilnyard_schema::measure::{Figures, Percentiles, SlowTest};
use kilnyard_store::{BuildRow, EventKind, Number, RunRow, Store};
use std::collections::HashMap;

/// The slowest tests that are listed.
const TESTS_MAX: usize = 20;
/// Events read at once.
const EVENTS_MAX: usize = 4096;

/// Times of the latest runs, at most this many; of one package if it is named.
///
/// # Errors
/// The store cannot be read.
pub fn figures(yard: &Yard, store: &dyn Store, runs_max: usize, package: Option<&str>) -> Result<Figures> {
    let runs: Vec<RunRow> = store.runs().map_err(store_error)?.into_iter().take(runs_max).collect();
    let is_wanted = |name: &str| package.is_none_or(|package| package == name);
    let moments = Moments::read(store, &runs)?;
    let (mut waits, mut walls, mut ends, mut publications) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut tests: HashMap<String, SlowTest> = HashMap::new();
    for run in &runs {
        let builds = store.builds_in(run.number).map_err(store_error)?;
        let mut last_end: Option<f64> = None;
        for build in builds.iter().filter(|build| is_wanted(&build.package)) {
            let Some(ended) = build.ended_seconds else { continue };
            last_end = Some(last_end.map_or(ended, |last| last.max(ended)));
            let ready =
                moments.ready.get(&(run.number, build.package.clone())).map_or(&[][..], Vec::as_slice);
            // The last time before this build, which may be a retry.
            if let Some(ready) = ready.iter().rev().find(|ready| **ready <= build.started_seconds) {
                waits.push((build.started_seconds - ready).max(0.0));
            }
            if !build.outcome.is_good() {
                continue;
            }
            walls.push(ended - build.started_seconds);
            if let Some(published) = moments.published.get(&run.number) {
                ends.push(published - source_seconds(run));
            }
            if let Some(slow) = slow_test(build, ended) {
                let known = tests.entry(build.package.clone()).or_insert_with(|| slow.clone());
                if slow.build > known.build {
                    *known = slow;
                }
            }
        }
        if let (Some(end), Some(published)) = (last_end, moments.published.get(&run.number)) {
            publications.push((published - end).max(0.0));
        }
    }
    let mut slowest_tests: Vec<SlowTest> = tests.into_values().collect();
    slowest_tests.sort_by(|one, other| {
        other.wall_seconds.total_cmp(&one.wall_seconds).then_with(|| one.package.cmp(&other.package))
    });
    slowest_tests.truncate(TESTS_MAX);
    Ok(Figures {
        runs: runs.iter().map(|run| run.number).collect(),
        last_all_green_run: last_all_green_run(yard, store)?,
        end_to_end: Percentiles::of(ends),
        wait: Percentiles::of(waits),
        build: Percentiles::of(walls),
        publication: Percentiles::of(publications),
        slowest_tests,
    })
}

/// The test stages of a build.
fn slow_test(build: &BuildRow, ended_seconds: f64) -> Option<SlowTest> {
    let tests = build.stages.iter().filter(|stage| stage.stage == Stage::Test);
    let wall_seconds: f64 = tests.map(|stage| stage.wall_seconds).sum();
    let whole = (ended_seconds - build.started_seconds).max(wall_seconds);
    (wall_seconds > 0.0).then(|| SlowTest {
        package: build.package.clone(),
        build: build.number,
        wall_seconds,
        part: wall_seconds / whole,
    })
}

/// When packages could start, and when runs were published, by the events that are still there.
#[derive(Debug, Default)]
struct Moments {
    /// By run and package, in order.
    ready: HashMap<(Number, String), Vec<f64>>,
    /// The first publication that changed something; a later one is not because of the run.
    published: HashMap<Number, f64>,
}

impl Moments {
    fn read(store: &dyn Store, runs: &[RunRow]) -> Result<Moments> {
        let mut moments = Moments::default();
        let mut seq = 0;
        loop {
            let events = store.events_since(seq, EVENTS_MAX).map_err(store_error)?;
            let Some(last) = events.last() else { return Ok(moments) };
            seq = last.seq;
            for event in events {
                let Some(run) = event.ids.run.filter(|run| runs.iter().any(|row| row.number == *run)) else {
                    continue;
                };
                match (event.kind, event.ids.package) {
                    (EventKind::Package { state: PackageState::Ready, .. }, Some(package)) => {
                        moments.ready.entry((run, package)).or_default().push(event.at);
                    }
                    (EventKind::Published { is_changed: true, .. }, _) => {
                        moments.published.entry(run).or_insert(event.at);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// When the newest of a run's sources came to be: the last commit of its tree or repositories, or the index of its archive.
/// Where that is not known, the start of the run.
fn source_seconds(run: &RunRow) -> f64 {
    let dates = run.commits.iter().filter_map(|commit| commit.date_seconds);
    dates.max().map_or(run.started_seconds, |seconds| (seconds as f64).min(run.started_seconds))
}
