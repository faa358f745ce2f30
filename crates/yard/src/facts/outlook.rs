//! What is left of a run: what waits, for what, and when it is expected to start.
//!
//! The rest of the run is simulated with the scheduler that decides it, from the estimates and the builds in progress. How
//! far the run's own builds were off so far gives the range of the expected end.
//!
//! Known downside: all machines of a farm count as one with all their cores, so that starts on many small machines are
//! expected too early.

use super::picture::Picture;
use crate::error::Result;
use crate::estimates::Estimates;
use crate::shape::Shape;
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::result::PackageState;
use kilnyard_schedule::{Basis, Limits, Machine, Scheduler, Sharing, Work};
use kilnyard_schema::run::{Ends, Progress, Queued};
use kilnyard_store::{Number, PackageRow, Store};
use std::collections::HashMap;

/// The names that an entry of the queue has of what it waits for.
const NAMES_MAX: usize = 10;
/// The number of ended builds from which their own ratio to the estimates counts.
const RATIOS_MIN: usize = 8;
/// Until then: estimates from recorded builds are seldom further off.
const RATIO_PRIOR: (f64, f64) = (0.8, 1.5);

/// What is expected of a run.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    /// How far it is.
    pub progress: Progress,
    /// What waits, in the order of the expected starts.
    pub queue: Vec<Queued>,
    /// What the packages need, by their place in the picture; empty if the plan is not that of the run.
    pub dependencies: Vec<Vec<u32>>,
}

/// What does not change during a run: the graph, and the cost of builds.
#[derive(Clone, Debug)]
pub struct Base {
    run: Number,
    digest: String,
    dependencies: Vec<Vec<u32>>,
    works: Vec<Work>,
    jobs: Option<u32>,
}

impl Base {
    /// Reads it for a run.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn of(yard: &Yard, store: &dyn Store, picture: &Picture) -> Result<Base> {
        let shape = Shape::of(yard);
        let dependencies = dependencies(store, picture)?;
        let mut works = vec![Work::default(); picture.rows.len()];
        let is_left = |row: &PackageRow| !row.state.is_final();
        if picture.rows.iter().any(is_left) {
            let estimates = Estimates::of(yard, store, shape.machine)?;
            for (place, row) in picture.rows.iter().enumerate().filter(|(_, row)| row.estimate_seconds > 0.0)
            {
                let known = estimates.known(&row.name);
                let work = known.unwrap_or_else(|| Work::serial(row.estimate_seconds, Basis::Prior));
                // Memory and disk bound a run on its own machines, which are not known here.
                works[place] = Work { steps: work.steps, jobs_max: work.jobs_max, ..Work::default() };
            }
        }
        let (run, digest) = (picture.run.number, picture.run.plan_digest.clone());
        Ok(Base { run, digest, dependencies, works, jobs: yard.config.build.jobs })
    }

    /// Whether it is that of this run.
    pub fn is_of(&self, picture: &Picture) -> bool {
        self.run == picture.run.number
            && self.digest == picture.run.plan_digest
            && self.works.len() == picture.rows.len()
    }
}

impl Outlook {
    /// What is expected of a run now.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn of(yard: &Yard, store: &dyn Store, picture: &Picture) -> Result<Outlook> {
        Ok(Outlook::from(&Base::of(yard, store, picture)?, picture))
    }

    /// What is expected of a run now, of which some is known.
    pub fn from(base: &Base, picture: &Picture) -> Outlook {
        let now = now_seconds();
        let is_over = picture.rows.iter().all(|row| row.state.is_final());
        let starts = if is_over { None } else { simulate(base, picture, now) };
        let (left_seconds, starts) =
            starts.map_or((None, HashMap::new()), |(left, starts)| (Some(left), starts));
        let mut progress = progress(picture, now);
        let (fast, slow) = ratios(picture);
        progress.ends = left_seconds.map(|left| Ends {
            earliest_seconds: now + left * fast.min(1.0),
            expected_seconds: now + left,
            latest_seconds: now + left * slow.max(1.0),
        });
        let mut queue: Vec<Queued> = picture
            .in_state(&[PackageState::Ready, PackageState::Waiting])
            .filter(|(place, _)| {
                // A build that is being repeated is not queued.
                picture.last_build(*place).is_none_or(|build| build.ended_seconds.is_some())
            })
            .map(|(place, row)| {
                queued(base, picture, place, row, starts.get(&place).map(|after| now + after))
            })
            .collect();
        queue.sort_by(|one, other| {
            let start = |queued: &Queued| queued.expected_start_seconds.unwrap_or(f64::INFINITY);
            start(one).total_cmp(&start(other)).then(other.rank_seconds.total_cmp(&one.rank_seconds))
        });
        Outlook { progress, queue, dependencies: base.dependencies.clone() }
    }
}

/// What each package needs, if the stored plan is that of the run.
fn dependencies(store: &dyn Store, picture: &Picture) -> Result<Vec<Vec<u32>>> {
    let mut needs: Vec<Vec<u32>> = vec![Vec::new(); picture.rows.len()];
    let mut each = |row: kilnyard_store::PlanRowSeen| {
        if let Some(place) = picture.place(row.name) {
            let found = row.dependencies.split_ascii_whitespace().filter_map(|name| picture.place(name));
            needs[place] = found.map(|place| place as u32).collect();
        }
        true
    };
    store.each_planned(&mut each).map_err(store_error)?;
    Ok(needs)
}

/// How far a run is by work: the estimates of all that it builds, and of what is done.
fn progress(picture: &Picture, now_seconds: f64) -> Progress {
    let mut progress = Progress::default();
    for (place, row) in picture.rows.iter().enumerate() {
        let estimate = row.estimate_seconds.max(0.0);
        match row.state {
            // They will not be built.
            PackageState::Blocked | PackageState::Skipped | PackageState::LeftOut => continue,
            PackageState::Built | PackageState::Unchanged | PackageState::UpToDate | PackageState::Failed => {
                progress.done_seconds += estimate;
            }
            PackageState::Building => {
                let since = picture.last_build(place).map_or(now_seconds, |build| build.started_seconds);
                progress.done_seconds += (now_seconds - since).clamp(0.0, estimate);
            }
            PackageState::Waiting | PackageState::Ready => {}
        }
        progress.work_seconds += estimate;
    }
    progress
}

/// The quartiles of the durations of the run's builds, as multiples of the estimates.
fn ratios(picture: &Picture) -> (f64, f64) {
    let ended = picture.rows.iter().zip(&picture.builds).filter_map(|(row, builds)| {
        let build = builds.last().filter(|build| build.outcome.is_good())?;
        let wall = build.ended_seconds? - build.started_seconds;
        (row.estimate_seconds > 0.0 && wall > 0.0).then(|| wall / row.estimate_seconds)
    });
    let mut ratios: Vec<f64> = ended.collect();
    if ratios.len() < RATIOS_MIN {
        return RATIO_PRIOR;
    }
    ratios.sort_by(f64::total_cmp);
    (ratios[ratios.len() / 4], ratios[ratios.len() * 3 / 4])
}

/// The time until the end, and until the start of each package by its place, in seconds. Absent if the rest of the run cannot be
/// simulated.
fn simulate(base: &Base, picture: &Picture, now_seconds: f64) -> Option<(f64, HashMap<usize, f64>)> {
    let mut graph = Graph::new();
    let mut works = Vec::new();
    // Only what is left: the rest of 30,000 packages would take most of the time.
    let mut places: Vec<usize> = Vec::new();
    let mut ids: HashMap<usize, PackageId> = HashMap::new();
    for (place, row) in picture.rows.iter().enumerate().filter(|(_, row)| !row.state.is_final()) {
        ids.insert(place, graph.add(&row.name));
        places.push(place);
        works.push(match picture.last_build(place).filter(|build| build.ended_seconds.is_none()) {
            None => base.works[place].clone(),
            Some(build) => {
                let done = (now_seconds - build.started_seconds).max(0.0);
                let left = (1.0 - done / row.estimate_seconds.max(0.1)).max(LATE_LEFT);
                base.works[place].scaled(left)
            }
        });
    }
    for place in &places {
        for need in &base.dependencies[*place] {
            if let Some(need) = ids.get(&(*need as usize)) {
                graph.depend(ids[place], *need);
            }
        }
    }
    let machine = Machine::of_cores(picture.run.cores.max(1));
    let slots_max = Some(picture.run.slots.max(1));
    let limits = Limits { slots_max, jobs_max: base.jobs, sharing: Sharing::ByRank };
    let mut scheduler = Scheduler::new(graph.clone().into(), works.clone(), vec![machine], limits).ok()?;
    let played = kilnyard_schedule::simulate(&graph, &works, &[machine], &mut scheduler).ok()?;
    let starts = played.builds.iter().map(|built| (places[built.package.index()], built.start_seconds));
    Some((played.makespan_seconds, starts.collect()))
}

/// The part of a build that is expected to be left when it has taken longer than estimated.
const LATE_LEFT: f64 = 0.05;

fn queued(
    base: &Base,
    picture: &Picture,
    place: usize,
    row: &PackageRow,
    expected_start_seconds: Option<f64>,
) -> Queued {
    let is_left = |need: &&u32| !picture.rows[**need as usize].state.is_final();
    let mut waits: Vec<&PackageRow> =
        base.dependencies[place].iter().filter(is_left).map(|need| &picture.rows[*need as usize]).collect();
    waits.sort_by(|one, other| other.rank_seconds.total_cmp(&one.rank_seconds));
    Queued {
        package: row.name.clone(),
        state: row.state.to_string(),
        reason: row.reason.to_string(),
        why: row.reason.clone(),
        waits_for_count: waits.len() as u64,
        waits_for: waits.iter().take(NAMES_MAX).map(|row| row.name.clone()).collect(),
        estimate_seconds: row.estimate_seconds,
        rank_seconds: row.rank_seconds,
        expected_start_seconds,
    }
}
