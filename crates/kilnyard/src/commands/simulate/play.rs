//! Runs the simulation, with one policy and the requested number of seeds.

use super::SimulatedSet;
use crate::cli::{PolicyName, Simulate};
use crate::error::{Context, Error, Kind, Result};
use kilnyard_schedule::policies::{Jobs, Workers};
use kilnyard_schedule::{
    Action, Bound, Built, Conditions, Event, Limits, Machine, Policy, Scheduler, Sharing, Simulated, Work,
    noisy, simulate_under,
};
use std::time::{Duration, Instant};

/// The result.
pub struct Played {
    /// The first seed's run.
    pub first: Simulated,
    /// The lower bound of the first seed's run.
    pub bound: Bound,
    /// Means over all seeds.
    pub makespan_seconds: f64,
    /// See `makespan_seconds`.
    pub bound_seconds: f64,
    /// See `makespan_seconds`.
    pub ratio: f64,
    /// The ratio of each seed.
    pub ratios: Vec<f64>,
    /// The largest memory of all seeds.
    pub memory_peak_bytes: u64,
    /// Parallel builds on each machine, if fixed.
    pub workers: Option<u32>,
    /// Events per second of decision time alone.
    pub events_per_second: f64,
    /// The builds of the first run that began with kept work.
    pub with_kept: u64,
    /// The time to simulate the first run, including decisions.
    pub simulated_in: Duration,
}

/// A policy whose decisions are timed.
struct Timed {
    policy: Box<dyn Policy>,
    events: u64,
    spent: Duration,
}

impl Policy for Timed {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        let begun = Instant::now();
        self.policy.apply(now_seconds, event, actions);
        self.spent += begun.elapsed();
        self.events += 1;
    }
}

pub fn play(
    set: &SimulatedSet,
    machines: &[Machine],
    conditions: &Conditions,
    options: &Simulate,
) -> Result<Played> {
    let workers = match options.workers {
        Some(0) => return Err(Error::usage("--workers 0: no package could be built")),
        Some(workers) => vec![Some(workers)],
        None if options.policy == PolicyName::Rank => vec![None],
        None => numbers_of_workers(options.policy, machines).into_iter().map(Some).collect(),
    };
    let mut best: Option<Played> = None;
    for workers in workers {
        let played = with_workers(set, (machines, conditions), options, workers)?;
        if best.as_ref().is_none_or(|best| played.makespan_seconds < best.makespan_seconds) {
            best = Some(played);
        }
    }
    best.ok_or_else(|| Error::new(Kind::Internal, "no number of workers was tried"))
}

/// The numbers of workers to try: powers of two, and those halfway between.
fn numbers_of_workers(policy: PolicyName, machines: &[Machine]) -> Vec<u32> {
    let cores = machines.iter().map(|machine| machine.cores).max().unwrap_or(1);
    if policy == PolicyName::OneJob {
        return vec![cores];
    }
    let mut numbers: Vec<u32> = (0..u32::BITS - 1)
        .flat_map(|power| [1 << power, 3 << power.saturating_sub(1)])
        .filter(|number| *number <= cores)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn with_workers(
    set: &SimulatedSet,
    (machines, conditions): (&[Machine], &Conditions),
    options: &Simulate,
    workers: Option<u32>,
) -> Result<Played> {
    let mut played: Option<Played> = None;
    let (mut events, mut spent) = (0, Duration::ZERO);
    let seeds = if options.noise > 0.0 { options.seeds } else { 1 };
    for seed in 1..=seeds {
        let actual: Vec<Work> = match options.noise > 0.0 {
            true => noisy(&set.works, options.noise, seed.into()),
            false => set.works.clone(),
        };
        let conditions = with_kept(set, &actual, (machines, conditions), options, workers)?;
        let begun = Instant::now();
        let mut policy = Timed { policy: policy(set, machines, options.policy, workers)?, events: 0, spent };
        let simulated = simulate_under(&conditions, &set.graph, &actual, machines, &mut policy)
            .context(Kind::Internal, "simulate the run")?;
        let simulated_in = begun.elapsed();
        let has_kept = |built: &&Built| conditions.kept.get(&built.package) == Some(&built.machine);
        let with_kept = simulated.builds.iter().filter(has_kept).count() as u64;
        events += policy.events;
        spent = policy.spent;
        // No schedule is faster than one in which every package begins with kept work.
        let least: Vec<Work> = actual.iter().map(|work| work.scaled(options.kept.unwrap_or(1.0))).collect();
        let bound = Bound::of(&set.graph, &least, machines);
        let (makespan_seconds, bound_seconds) = (simulated.makespan_seconds, bound.seconds());
        let ratio = if bound_seconds > 0.0 { makespan_seconds / bound_seconds } else { 1.0 };
        let sums = played.get_or_insert_with(|| Played {
            memory_peak_bytes: simulated.memory_peak_bytes,
            first: simulated.clone(),
            bound,
            makespan_seconds: 0.0,
            bound_seconds: 0.0,
            ratio: 0.0,
            ratios: Vec::new(),
            workers,
            events_per_second: 0.0,
            with_kept,
            simulated_in,
        });
        sums.makespan_seconds += makespan_seconds / f64::from(seeds);
        sums.bound_seconds += bound_seconds / f64::from(seeds);
        sums.ratio += ratio / f64::from(seeds);
        sums.ratios.push(ratio);
        sums.memory_peak_bytes = sums.memory_peak_bytes.max(simulated.memory_peak_bytes);
        sums.events_per_second = events as f64 / spent.as_secs_f64().max(f64::MIN_POSITIVE);
    }
    played.ok_or_else(|| Error::new(Kind::Internal, "no seed was simulated"))
}

/// The conditions with the kept work that an earlier run leaves, if that was asked for.
fn with_kept(
    set: &SimulatedSet,
    actual: &[Work],
    (machines, conditions): (&[Machine], &Conditions),
    options: &Simulate,
    workers: Option<u32>,
) -> Result<Conditions> {
    let mut conditions = conditions.clone();
    if options.kept.is_some() {
        let mut policy = policy(set, machines, options.policy, workers)?;
        let earlier = simulate_under(&conditions, &set.graph, actual, machines, &mut *policy)
            .context(Kind::Internal, "simulate the run that leaves kept work")?;
        conditions.kept = earlier.builds.iter().map(|built| (built.package, built.machine)).collect();
        conditions.is_kept_secret = options.blind;
    }
    Ok(conditions)
}

/// The policy of this name. It gets the expected times, not those with noise.
fn policy(
    set: &SimulatedSet,
    machines: &[Machine],
    name: PolicyName,
    workers: Option<u32>,
) -> Result<Box<dyn Policy>> {
    let cores = machines.iter().map(|machine| machine.cores).max().unwrap_or(1);
    let scheduler = |sharing| {
        let limits = Limits { slots_max: workers, jobs_max: None, sharing };
        let machines = machines.to_vec();
        let scheduler = Scheduler::new(set.graph.clone(), set.works.clone(), machines, limits);
        scheduler.map(|scheduler| Box::new(scheduler) as Box<dyn Policy>).map_err(|error| {
            let mut refused = Error::usage("the simulation cannot be scheduled");
            refused.causes.push(error.to_string());
            refused
        })
    };
    let number = workers.unwrap_or(cores);
    let with_jobs = |jobs| {
        Box::new(Workers::new(set.graph.clone(), &set.works, machines, number, jobs)) as Box<dyn Policy>
    };
    match name {
        PolicyName::Rank => scheduler(Sharing::ByRank),
        PolicyName::EqualJobserver => scheduler(Sharing::Equally),
        PolicyName::Dependents => Ok(with_jobs(Jobs::Each((cores / number).max(1)))),
        PolicyName::OneJob => Ok(with_jobs(Jobs::Each(1))),
        PolicyName::Bob => Ok(with_jobs(Jobs::Bob)),
    }
}
