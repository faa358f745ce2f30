//! Runs, and the state of the current or last one.

use super::live;
use super::outlook::Outlook;
use super::picture::Picture;
use crate::error::Result;
use crate::expectations::judge;
use crate::signing::delayed::{Delayed, delayed};
use crate::words::{self, now_seconds};
use crate::yard::{Yard, store_error};
use kilnyard_model::order::Stage;
use kilnyard_model::result::PackageState;
use kilnyard_model::text;
use kilnyard_schema::run::{Building, Commit, FailedPackage, Run, Sample, Status};
use kilnyard_store::{BuildRow, PackageRow, RunCommit, RunRow, RunState, Store};
use std::collections::HashMap;

/// The state of a run in one word. A running run without a process was killed.
pub fn state_of(yard: &Yard, run: &RunRow) -> &'static str {
    match run.state {
        RunState::Running if !yard.is_locked() => "killed",
        state => state.as_str(),
    }
}

/// All runs, the latest first.
pub fn runs(yard: &Yard, store: &dyn Store) -> Result<Vec<Run>> {
    let runs = store.runs().map_err(store_error)?;
    runs.iter().map(|run| described(yard, store, run)).collect()
}

/// A run in short.
pub fn described(yard: &Yard, store: &dyn Store, run: &RunRow) -> Result<Run> {
    let counts = store.counts(run.number).map_err(store_error)?;
    let count = |state| counts.iter().find(|(other, _)| *other == state).map_or(0, |(_, count)| *count);
    let bad = [PackageState::Failed, PackageState::Blocked, PackageState::LeftOut];
    let is_finished = run.state == RunState::Finished;
    // Rows are read only where what was expected decides.
    let is_bad = bad.iter().any(|state| count(*state) > 0) && {
        let mut rows = Vec::new();
        for state in bad {
            rows.extend(store.packages_in_state(run.number, state).map_err(store_error)?);
        }
        let rows = rows.iter().map(|row| (row.name.as_str(), row.state, row.blamed.as_deref()));
        judge(&|name| yard.config.expects_failure(name), rows).is_bad
    };
    Ok(Run {
        run: run.number,
        state: state_of(yard, run).to_owned(),
        started_seconds: run.started_seconds,
        ended_seconds: run.ended_seconds,
        expected_seconds: run.expected_seconds,
        bound_seconds: run.bound_seconds,
        counts: counts.iter().map(|(state, count)| (state.to_string(), *count)).collect(),
        is_all_green: is_finished && !is_bad && count(PackageState::Skipped) == 0,
        commits: run.commits.iter().map(commit).collect(),
    })
}

/// A commit of a run.
pub fn commit(RunCommit { source, commit, .. }: &RunCommit) -> Commit {
    Commit { source: source.clone(), commit: commit.clone() }
}

/// The activity of another process in the yard outside runs, as a clause; none during a run.
pub fn preparing(yard: &Yard) -> Option<String> {
    let holder = yard.holder().filter(|holder| !holder.phase.is_empty())?;
    Some(format!("process {} is {}", text::line(&holder.process), text::line(&holder.phase)))
}

/// The state of the current or last run. `obstacles` are what the caller knows of missing workers.
///
/// # Errors
/// The store cannot be read.
pub fn status(yard: &Yard, store: &dyn Store, obstacles: Vec<String>) -> Result<Status> {
    let preparing = preparing(yard);
    let Some(run) = store.last_run().map_err(store_error)? else {
        let state = if preparing.is_some() { "preparing" } else { "none" };
        let target = yard.target_name.clone();
        return Ok(Status { target, state: state.to_owned(), preparing, ..Status::default() });
    };
    if state_of(yard, &run) == RunState::Running.as_str() {
        let picture = Picture::read(store, run.number)?;
        let outlook = Outlook::of(yard, store, &picture)?;
        return status_of(yard, store, &picture, &outlook, obstacles);
    }
    // Nothing is expected of a run that is over, so that 30,000 rows need not be read.
    let counts = store.counts(run.number).map_err(store_error)?;
    let failed = store.packages_in_state(run.number, PackageState::Failed).map_err(store_error)?;
    Ok(Status {
        counts: counts.iter().map(|(state, count)| (state.to_string(), *count)).collect(),
        failed: failed.iter().map(|row| failed_package(yard, row)).collect(),
        ..head(yard, &run)
    })
}

/// What is known of a run without its packages.
fn head(yard: &Yard, run: &RunRow) -> Status {
    let measured_bound_seconds = match run.ended_seconds {
        Some(_) => crate::report::bound_seconds(yard, run.number),
        None => None,
    };
    Status {
        target: yard.target_name.clone(),
        run: Some(run.number),
        state: state_of(yard, run).to_owned(),
        preparing: preparing(yard),
        started_seconds: Some(run.started_seconds),
        ended_seconds: run.ended_seconds,
        expected_seconds: run.expected_seconds,
        bound_seconds: run.bound_seconds,
        measured_bound_seconds,
        slots: run.slots,
        obstacles: delayed(yard).map(publication).into_iter().collect(),
        ..Status::default()
    }
}

/// Why the publication waits, which it may after the run, too.
fn publication(Delayed { since_seconds, reason }: Delayed) -> String {
    let since = words::time(since_seconds);
    format!("the publication, since {since}, for the signer, which is away: {reason}")
}

fn failed_package(yard: &Yard, row: &PackageRow) -> FailedPackage {
    FailedPackage {
        package: row.name.clone(),
        reason: row.reason.to_string(),
        expected: yard.config.expects_failure(&row.name),
    }
}

/// The state of a run whose rows are in memory.
///
/// # Errors
/// The store cannot be read.
pub fn status_of(
    yard: &Yard,
    store: &dyn Store,
    picture: &Picture,
    outlook: &Outlook,
    obstacles: Vec<String>,
) -> Result<Status> {
    let mut head = head(yard, &picture.run);
    let is_running = head.state == RunState::Running.as_str();
    if is_running {
        head.obstacles.extend(obstacles);
    }
    let failed = picture.in_state(&[PackageState::Failed]);
    Ok(Status {
        progress: is_running.then_some(outlook.progress),
        path: if is_running { path(store, picture)? } else { Vec::new() },
        counts: picture.counts(),
        building: if is_running { building(yard, picture) } else { Vec::new() },
        failed: failed.map(|(_, row)| failed_package(yard, row)).collect(),
        ..head
    })
}

/// The builds in progress, by worker and slot.
pub fn building(yard: &Yard, picture: &Picture) -> Vec<Building> {
    let now = now_seconds();
    let live = live::read(yard, picture.run.number, now);
    let live: HashMap<u64, _> = live.builds.iter().map(|build| (build.build, build)).collect();
    let open = picture.in_state(&[PackageState::Building, PackageState::Ready]).filter_map(|(place, row)| {
        let build = picture.last_build(place).filter(|build| build.ended_seconds.is_none())?;
        let known = live.get(&build.number);
        let stage = known.and_then(|known| known.stage.clone());
        Some(Building {
            package: row.name.clone(),
            version: build.version.clone(),
            build: build.number,
            worker: build.worker.clone(),
            slot: build.slot,
            started_seconds: build.started_seconds,
            since_seconds: (now - build.started_seconds).max(0.0),
            stage: stage.unwrap_or_else(|| stage_of(yard, build).to_owned()),
            estimate_seconds: row.estimate_seconds,
            sample: known.map(|known| known.sample).filter(|sample| *sample != Sample::default()),
        })
    });
    let mut open: Vec<Building> = open.collect();
    open.sort_by(|one, other| (&one.worker, one.slot).cmp(&(&other.worker, other.slot)));
    open
}

/// The path of the current run, if the stored plan belongs to it. After a run, the stored plan is that of the next one.
fn path(store: &dyn Store, picture: &Picture) -> Result<Vec<String>> {
    let plan = store.plan_head().map_err(store_error)?;
    let plan = plan.filter(|plan| plan.digest == picture.run.plan_digest);
    let is_whole = plan.is_some() && {
        let mut planned = 0;
        let mut count = |_: kilnyard_store::PlanRowSeen| {
            planned += 1;
            true
        };
        store.each_planned(&mut count).map_err(store_error)?;
        planned == picture.rows.len()
    };
    Ok(plan.filter(|_| is_whole).map_or_else(Vec::new, |plan| plan.path))
}

/// The current stage of a build: the one with a log that no result names. The time between stages is negligible.
fn stage_of(yard: &Yard, build: &BuildRow) -> &'static str {
    open_stage(yard, build).map_or("between stages", Stage::as_str)
}

/// The stage of a build that is running, by its log.
pub fn open_stage(yard: &Yard, build: &BuildRow) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| yard.open_log(build, *stage).is_some())
}
