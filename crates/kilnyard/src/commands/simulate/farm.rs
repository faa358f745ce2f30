//! `kilnyard simulate --farm`: several yards on machines that they share, some of which are started on demand.
//!
//! Schedulers, shares and pools are those of real farms.

mod pilots;
mod settings;
mod show;

use super::{SimulatedSet, add_machines, delays, show as shown, write};
use crate::cli::Simulate;
use crate::commands::print;
use crate::error::{Context, Error, Kind, Result};
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_schedule::{
    Action, Backlog, Conditions, Event, Farm, Limits, Machine, MachineId, Policy, Scheduler, Simulated,
    Supply, Together, Work, YardPolicy, Yards, noisy, simulate_farm,
};
use pilots::PoolPilots;
use settings::{FarmFile, YardTable};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// How often pools decide, and cores are divided if nothing ends, in seconds.
const STEP_SECONDS: f64 = 1.0;
/// How old the picture of the work may be by which pools decide, in seconds.
const BACKLOG_SECONDS_MAX: f64 = 5.0;
/// The most ready packages of a yard that pools see.
const READY_MAX: usize = 2_000;

/// A yard with its set.
struct Taken<'a> {
    name: &'a str,
    table: &'a YardTable,
    set: SimulatedSet,
}

/// The yards and the pools, as one policy.
struct SimulatedFarm {
    yards: Yards,
    pools: Vec<PoolPilots>,
    backlog: Option<(f64, (Backlog, f64))>,
}

/// A simulated farm.
struct Played {
    simulated: Simulated,
    together: Together,
    pools: Vec<PoolPilots>,
}

impl Policy for SimulatedFarm {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.yards.apply(now_seconds, event, actions);
    }
}

impl Farm for SimulatedFarm {
    fn step_seconds(&self) -> Option<f64> {
        Some(STEP_SECONDS)
    }

    fn has_later(&self) -> bool {
        self.yards.has_later()
    }

    fn supply(&mut self, now_seconds: f64) -> Vec<Supply> {
        if self.pools.is_empty() {
            return Vec::new();
        }
        let is_old = |(at, _): &(f64, _)| now_seconds - at >= BACKLOG_SECONDS_MAX;
        if self.backlog.as_ref().is_none_or(is_old) {
            self.backlog = Some((now_seconds, self.yards.backlog(READY_MAX)));
        }
        let Some((_, backlog)) = &self.backlog else { return Vec::new() };
        let there = self.yards.open_cores();
        let pools = self.pools.iter_mut();
        pools.flat_map(|pool| pool.step(now_seconds, &self.yards, backlog, there)).collect()
    }
}

pub fn run(file: &Path, options: &Simulate) -> Result<ExitCode> {
    let farm = settings::parse(file)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut yards = Vec::new();
    for (name, table) in &farm.yards {
        let set = table.set(folder, options.unknown).map_err(|error| Error {
            message: format!("failed to read the yard {name}: {}", error.message),
            ..error
        })?;
        if set.graph.is_empty() {
            return Err(Error::usage(format!("nothing to simulate: the yard {name} has nothing to build")));
        }
        yards.push(Taken { name, table, set });
    }
    let all: Vec<&Taken<'_>> = yards.iter().collect();
    let (graph, played) = play(&farm, &all, options, true)?;
    // How long each would take if there were no others.
    let alone =
        all.iter().map(|yard| Ok(play(&farm, &[*yard], options, false)?.1.simulated.makespan_seconds));
    let alone = alone.collect::<Result<Vec<f64>>>()?;
    if let Some(path) = &options.trace {
        write(path, &shown::trace(&graph, &played.simulated))?;
    }
    let shown = show::Shown::of(&all, &alone, &played);
    match options.json {
        true => print(&format!("{:#}\n", shown.as_json())),
        false => print(&shown.as_text()),
    }
}

/// Simulates these yards of the farm, from the begin of each run, or all from the beginning.
fn play(
    farm: &FarmFile,
    yards: &[&Taken<'_>],
    options: &Simulate,
    has_begins: bool,
) -> Result<(Graph, Played)> {
    let mut conditions: Conditions = delays(options)?;
    let mut machines = Vec::new();
    add_machines(&farm.machines, options.memory.map(|size| size.0), &mut machines, &mut conditions)?;
    let mut pools = Vec::new();
    for (name, table) in &farm.pools {
        let first = machines.len() as u32;
        let memory_bytes = table.memory.map(|size| size.0);
        let machine = Machine { speed: table.speed, memory_bytes, ..Machine::of_cores(table.cores) };
        machines.extend((0..table.most).map(|_| machine));
        conditions.absent.extend((first..first + table.most).map(MachineId));
        pools.push(PoolPilots::new(name, table, first..first + table.most)?);
    }
    let (mut graph, mut works, mut policies) = (Graph::new(), Vec::new(), Vec::new());
    for yard in yards {
        let own = &yard.set.graph;
        let first = graph.len() as u32;
        for package in own.packages() {
            graph.add(&format!("{}/{}", yard.name, own.name(package)));
        }
        for package in own.packages() {
            for dependency in own.dependencies(package) {
                let of_all = |package: PackageId| PackageId(package.0 + first);
                graph.depend(of_all(package), of_all(*dependency));
            }
        }
        let scheduler =
            Scheduler::new(own.clone(), yard.set.works.clone(), machines.clone(), Limits::default());
        let scheduler = scheduler.map_err(|error| {
            let mut refused = Error::usage(format!("the yard {} cannot be scheduled", yard.name));
            refused.causes.push(error.to_string());
            refused
        })?;
        let begin_seconds = if has_begins { yard.table.begin_seconds } else { 0.0 };
        policies.push(YardPolicy { scheduler, entitlement: yard.table.entitlement(), begin_seconds });
        works.extend(yard.set.works.iter().cloned());
    }
    let works: Vec<Work> = if options.noise > 0.0 { noisy(&works, options.noise, 1) } else { works };
    let graph = Arc::new(graph);
    let yards = Yards::new(policies, &machines);
    let mut farm = SimulatedFarm { yards, pools, backlog: None };
    let simulated = simulate_farm(&conditions, &graph, &works, &machines, &mut farm)
        .context(Kind::Internal, "simulate the farm")?;
    let SimulatedFarm { yards, pools, .. } = farm;
    let together = yards.together().clone();
    Ok((Arc::unwrap_or_clone(graph), Played { simulated, together, pools }))
}
