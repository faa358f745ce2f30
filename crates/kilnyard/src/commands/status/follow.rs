//! `kilnyard status --follow`: shows a run in another terminal as in its own, from the events of the store.

use crate::error::{Error, Kind, Result};
use crate::run::picture::{Follower, Picture};
use crate::run::view::{self, BuildSeen, Events, Plain, Snapshot, View, ViewEvent};
use crate::signals;
use crate::yard::{Yard, store_error};
use kilnyard_store::{RunRow, Store};
use kilnyard_yard::facts::status::open_stage;
use kilnyard_yard::remedy::Remedy;
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long it waits for events before it checks whether the run's process is there.
const PAUSE: Duration = Duration::from_millis(200);
/// The interval at which the logs are read for the stage of each build.
const STAGES_PAUSE: Duration = Duration::from_secs(2);

/// Prints the events of a run until it ends or is killed, or this process is interrupted, which does not end the run.
pub fn run(yard: &Yard, store: &dyn Store, run: &RunRow, as_json: bool) -> Result<ExitCode> {
    signals::install();
    // Before the rows are read: decisions made meanwhile are shown twice rather than missed.
    let follower = Follower::new(yard.store()?).map_err(store_error)?;
    let mut view: Box<dyn View> = match as_json {
        true => Box::new(Events::new(Box::new(std::io::stdout()))),
        false => Box::new(Plain::new(Box::new(std::io::stdout()))),
    };
    let rows = store.packages(run.number).map_err(store_error)?;
    let estimates: HashMap<String, f64> =
        rows.iter().map(|row| (row.name.clone(), row.estimate_seconds)).collect();
    let estimate = |package: &str| estimates.get(package).copied().unwrap_or(0.0);
    let mut picture = Picture::new(follower, Box::new(estimate), snapshot(run));
    for build in store.builds_open(run.number).map_err(store_error)? {
        picture.snapshot.builds.push(BuildSeen::of(&build, estimate(&build.package)));
    }
    picture.set_states(rows.into_iter().map(|row| (row.name, row.state)).collect());
    view.see(&ViewEvent::Began, &picture.snapshot);
    let mut staged: Option<Instant> = None;
    loop {
        // Before the events are read: they then include everything that the process of the run wrote before it ended.
        let is_there = yard.is_locked();
        picture.follow(view.as_mut());
        if let Some(state) = picture.ended {
            view.see(&ViewEvent::Ended(state), &picture.snapshot);
            return Ok(ExitCode::SUCCESS);
        }
        if !is_there {
            return Err(Error::new(Kind::Packages, format!("run {} was killed", run.number))
                .hint(Remedy::command("build").then(", which resumes it")));
        }
        if signals::count() > 0 {
            return Ok(ExitCode::SUCCESS);
        }
        if staged.is_none_or(|staged| staged.elapsed() >= STAGES_PAUSE) {
            staged = Some(Instant::now());
            find_stages(yard, store, &mut picture)?;
        }
        view.tick(&picture.snapshot);
        picture.wait(PAUSE);
    }
}

fn find_stages(yard: &Yard, store: &dyn Store, picture: &mut Picture) -> Result<()> {
    for build in store.builds_open(picture.snapshot.run).map_err(store_error)? {
        let shown = picture.snapshot.builds.iter_mut().find(|seen| seen.build == build.number);
        if let (Some(shown), Some(stage)) = (shown, open_stage(yard, &build)) {
            shown.stage = Some(stage);
        }
    }
    Ok(())
}

fn snapshot(run: &RunRow) -> Snapshot {
    Snapshot {
        run: run.number,
        is_resumed: false,
        started: view::since(run.started_seconds),
        cores: run.cores,
        slots: run.slots,
        expected_seconds: run.expected_seconds,
        counts: Vec::new(),
        builds: Vec::new(),
        remaining_path_seconds: 0.0,
        bytes_fetched: 0,
        work_seconds: (0.0, 0.0),
        ready: Vec::new(),
        failed: Vec::new(),
    }
}
