//! Real builds of a synthetic set, scheduled as in a run, compared with workers that give each build a fixed
//! number of jobs.
//!
//! The set has a path of large packages and many small ones, each with a serial configure, a parallel build and
//! a serial install. Half of them are built by make and half by ninja, if ninja supports jobservers. Decisions
//! and the distribution of cores use the code of a real run, [`Scheduler`] and [`kilnyard_worker::Cores`]; only
//! roots and packages are left out. The others start the package with the most dependents first, like pbulk and
//! bob, with up to as many workers and jobs as there are cores.

mod drive;
mod projects;

use super::figures::{Report, Series, Summary, Unit, ratios};
use super::scratch::Scratch;
use crate::Trial;
use crate::error::{Context, Result};
use drive::{Decider, Driven, drive};
use kilnyard_schedule::policies::{Jobs, Workers};
use kilnyard_schedule::{Bound, Limits, Machine, Scheduler};
use projects::Projects;
use serde_json::{Map, json};

/// Minimum share of the time in which cores are busy while work is ready.
const BUSY_MIN: f64 = 0.9;

/// The configurations with a fixed number of jobs: number of workers, and jobs of each.
fn fixed(cores: u32) -> Vec<(u32, u32)> {
    let mut shapes = vec![(cores, 1), (1, cores)];
    // Values in between, as bulk builders are configured on larger machines.
    let mut workers = 2;
    while workers < cores {
        if cores.is_multiple_of(workers) {
            shapes.push((workers, cores / workers));
        }
        workers *= 2;
    }
    // More jobs than cores, so that there is always one to run.
    shapes.push((cores, cores));
    shapes.dedup();
    shapes
}

/// Runs the benchmark.
pub fn measure(trial: &Trial<'_>) -> Result<Report> {
    let pairs = trial.pairs;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let scratch = Scratch::within(trial.temporary, None)?;
    let projects = Projects::write(&scratch.path("projects"), cores)?;
    let machines = [Machine::of_cores(cores)];
    let bound = Bound::of(&projects.graph, &projects.works, &machines);
    let shapes = fixed(cores);
    let mut ours: Vec<Driven> = Vec::new();
    let mut others: Vec<Vec<f64>> = vec![Vec::new(); shapes.len()];
    for pair in 0..pairs {
        let run = |decider: Decider| {
            super::check_interrupt()?;
            projects.clean()?;
            drive(&projects, cores, decider, &scratch.path("jobservers"))
        };
        let own = || {
            let (graph, works) = (projects.graph.clone(), projects.works.clone());
            let limits = Limits { jobs_max: Some(cores), ..Limits::default() };
            let scheduler = Scheduler::new(graph, works, vec![machines[0].oversubscribed()], limits);
            run(Decider::ByRank(Box::new(scheduler.or_internal("schedule the projects")?)))
        };
        // Alternate between first and last, so that other load affects both.
        if pair % 2 == 0 {
            ours.push(own()?);
        }
        for ((workers, jobs), walls) in shapes.iter().zip(&mut others) {
            let graph = projects.graph.clone();
            let fixed = Workers::new(graph, &projects.works, &machines, *workers, Jobs::Each(*jobs));
            walls.push(run(Decider::Fixed(Box::new(fixed)))?.wall_seconds);
        }
        if pair % 2 == 1 {
            ours.push(own()?);
        }
    }
    report(cores, &projects, &bound, &ours, &shapes, &others)
}

fn report(
    cores: u32,
    projects: &Projects,
    bound: &Bound,
    ours: &[Driven],
    shapes: &[(u32, u32)],
    others: &[Vec<f64>],
) -> Result<Report> {
    let walls: Vec<f64> = ours.iter().map(|driven| driven.wall_seconds).collect();
    let mut series = vec![Series::new("ours_wall_seconds", "cores by rank", Unit::Seconds, walls.clone())];
    let mut best = (f64::INFINITY, 0);
    for (place, ((workers, jobs), seconds)) in shapes.iter().zip(others).enumerate() {
        let label = format!("{workers} workers, {jobs} jobs each");
        let key = format!("fixed_{workers}x{jobs}_wall_seconds");
        series.push(Series::new(key, label, Unit::Seconds, seconds.clone()));
        let median = Summary::of(seconds).map_or(f64::INFINITY, |summary| summary.median);
        if median < best.0 {
            best = (median, place);
        }
    }
    let (_, best) = best;
    let ratio =
        Series::new("ratio", "cores by rank / the best of these", Unit::Ratio, ratios(&walls, &others[best]));
    let busy: Vec<f64> = ours.iter().filter_map(|driven| driven.busy_share).collect();
    let busy = Series::new("busy_share", "cores busy while work is ready", Unit::Ratio, busy);
    let to_bound: Vec<f64> = walls.iter().map(|wall| wall / bound.seconds()).collect();
    let is_busy = Summary::of(&busy.values).map(|summary| summary.median >= BUSY_MIN);
    let is_met = is_busy.map(|is_busy| is_busy && ratio.median() < 1.0);
    let (workers, jobs) = shapes[best];
    let mut facts = Map::new();
    facts.insert("projects".into(), projects.works.len().into());
    facts.insert("by_ninja".into(), projects.by_ninja.into());
    facts.insert("bound_seconds".into(), bound.seconds().into());
    facts.insert("best_fixed".into(), json!({ "workers": workers, "jobs": jobs }));
    let mut notes = vec![
        format!(
            "{} projects on {cores} cores, {} of them by ninja; estimated minimum {:.2} s",
            projects.works.len(),
            projects.by_ninja,
            bound.seconds()
        ),
        format!("the best of the others: {workers} workers, {jobs} jobs each"),
    ];
    if projects.by_ninja == 0 {
        notes
            .push("all by make: ninja 1.13 or later, which supports jobservers, is not installed".to_owned());
    }
    if busy.values.is_empty() {
        notes.push("the kernel does not count the CPU time of builds here: no control groups".to_owned());
    }
    series.extend([ratio, Series::new("to_bound", "cores by rank / minimum", Unit::Ratio, to_bound), busy]);
    Ok(Report {
        name: "schedule",
        series,
        facts,
        notes,
        target: format!("faster than any fixed number of jobs, and at least {BUSY_MIN} of the cores busy"),
        is_met,
    })
}
