//! Packages of a run, their builds, and what else is known of them.

use super::edges::{Direction, Edges};
use super::picture::Picture;
use super::status::described;
use crate::error::Result;
use crate::yard::{Yard, store_error};
use kilnyard_model::result::PackageState;
use kilnyard_schema::package::{Build, BuildBrief, Output, PackageHistory, PackageOfRun};
use kilnyard_store::{BuildRow, OutputRow, Store};

/// A package of a run.
pub fn of_run(picture: &Picture, place: usize) -> PackageOfRun {
    let row = &picture.rows[place];
    PackageOfRun {
        package: row.name.clone(),
        version: row.version.clone(),
        state: row.state.to_string(),
        reason: row.reason.to_string(),
        why: row.reason.clone(),
        blamed: row.blamed.clone(),
        estimate_seconds: row.estimate_seconds,
        rank_seconds: row.rank_seconds,
        build: picture.last_build(place).map(brief),
    }
}

/// A build in short.
pub fn brief(row: &BuildRow) -> BuildBrief {
    let stages = row.stages.iter();
    BuildBrief {
        build: row.number,
        outcome: row.outcome.to_string(),
        worker: row.worker.clone(),
        started_seconds: row.started_seconds,
        wall_seconds: row.ended_seconds.map(|ended| ended - row.started_seconds),
        cpu_seconds: stages.clone().map(|stage| stage.cpu_seconds).sum(),
        memory_peak_bytes: stages.map(|stage| stage.memory_peak_bytes).max().unwrap_or(0),
    }
}

/// A build.
pub fn build(row: &BuildRow) -> Build {
    Build {
        build: row.number,
        run: row.run,
        package: row.package.clone(),
        version: row.version.clone(),
        worker: row.worker.clone(),
        cores: row.cores,
        host: row.host.clone(),
        started_seconds: row.started_seconds,
        ended_seconds: row.ended_seconds,
        outcome: row.outcome.to_string(),
        failure: row.failure.clone(),
        reproducible: row.is_reproducible,
        stages: row.stages.clone(),
    }
}

/// The builds of a package, the latest first.
///
/// # Errors
/// The store cannot be read.
pub fn builds(store: &dyn Store, package: &str, count_max: usize) -> Result<Vec<Build>> {
    Ok(store.builds_of(package, count_max).map_err(store_error)?.iter().map(build).collect())
}

/// An output of the repository.
pub fn output(OutputRow { package, output }: OutputRow) -> Output {
    Output {
        package,
        name: output.name,
        version: output.version,
        architecture: output.architecture,
        file: output.file,
        size_bytes: output.size_bytes,
        sha256: output.sha256,
    }
}

/// The packages that one blocks in a run.
pub fn blocked_by(picture: &Picture, package: &str) -> Vec<String> {
    let is_blocked = |row: &&kilnyard_store::PackageRow| {
        row.state == PackageState::Blocked && row.blamed.as_deref() == Some(package)
    };
    picture.rows.iter().filter(is_blocked).map(|row| row.name.clone()).collect()
}

/// The history of a package, and its place in the set; `blocks` are the packages that it blocks in the last run.
///
/// # Errors
/// The store cannot be read.
pub fn history(
    store: &dyn Store,
    blocks: Vec<String>,
    edges: &Edges,
    package: &str,
    builds_max: usize,
) -> Result<PackageHistory> {
    let neighbours = |direction| {
        let found = edges.find(package).map_or(&[][..], |number| edges.of(number, direction));
        let mut names: Vec<String> = found.iter().map(|other| edges.name(*other).to_owned()).collect();
        names.sort_unstable();
        names
    };
    let current = store.current(package).map_err(store_error)?;
    let outputs = current.into_iter().flat_map(|current| current.outputs);
    let outputs = outputs.map(|one| output(OutputRow { package: package.to_owned(), output: one }));
    Ok(PackageHistory {
        package: package.to_owned(),
        dependencies: neighbours(Direction::Dependencies),
        dependents: neighbours(Direction::Dependents),
        blocks,
        outputs: outputs.collect(),
        last_green_run: last_green_run(store, package)?,
        builds: builds(store, package, builds_max)?,
    })
}

/// How many runs are read to find the last one in which a package was well.
const RUNS_MAX: usize = 50;

/// The last run that ended with outputs of a package.
fn last_green_run(store: &dyn Store, package: &str) -> Result<Option<u64>> {
    for run in store.runs().map_err(store_error)?.iter().take(RUNS_MAX) {
        let row = store.package(run.number, package).map_err(store_error)?;
        if row.is_some_and(|row| row.state.has_outputs()) {
            return Ok(Some(run.number));
        }
    }
    Ok(None)
}

/// The last run in which all was well.
///
/// # Errors
/// The store cannot be read.
pub fn last_all_green_run(yard: &Yard, store: &dyn Store) -> Result<Option<u64>> {
    for run in store.runs().map_err(store_error)? {
        if described(yard, store, &run)?.is_all_green {
            return Ok(Some(run.number));
        }
    }
    Ok(None)
}
