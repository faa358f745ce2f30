//! `kilnyard simulate`: simulates a run, with the scheduler of real runs or with the policy of another builder.

mod draw;
mod farm;
mod graph;
mod hazards;
mod history;
mod inputs;
mod own;
mod play;
mod show;

use super::print;
use crate::cli::{PolicyName, Simulate};
use crate::error::{Context, Error, Kind, Result};
use crate::input;
use crate::yard::Yard;
use kilnyard_model::graph::Graph;
use kilnyard_schedule::{Conditions, Machine, MachineId, Work};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// The maximum number of machines; more are a typing error.
const MACHINES_MAX: u32 = 10_000;
/// The maximum number of cores of a machine; more are a typing error.
const CORES_MAX: u32 = 100_000;

/// The packages to simulate, with their build times.
struct SimulatedSet {
    graph: Arc<Graph>,
    works: Vec<Work>,
}

pub fn run(yard: impl FnOnce() -> Result<Yard>, options: &Simulate) -> Result<ExitCode> {
    if !(options.noise.is_finite() && options.noise >= 0.0) {
        return Err(Error::usage(format!("--noise {} is not a standard deviation", options.noise)));
    }
    if !(options.unknown.is_finite() && options.unknown >= 0.0) {
        return Err(Error::usage(format!("--unknown {} is not a time", options.unknown)));
    }
    if options.blind && options.rate.is_none() && options.kept.is_none() {
        return Err(Error::usage("--blind needs something that the scheduler could know: --rate or --kept"));
    }
    if let Some(share) = options.kept.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
        return Err(Error::usage(format!(
            "--kept {share} is not a share of the build times, above 0 and up to 1"
        )));
    }
    if let Some(file) = &options.farm {
        return farm::run(file, options);
    }
    let (machines, mut conditions) = machines(options)?;
    let mut set = match (&options.graph, &options.history) {
        (Some(graph), Some(history)) => recorded(graph, history, options.unknown)?,
        _ => own::set(&yard()?, options.unknown)?,
    };
    if set.graph.is_empty() {
        return Err(Error::usage("nothing to simulate: there is nothing to build"));
    }
    for work in &mut set.works {
        work.kept_share = options.kept;
    }
    conditions.inputs = inputs::of(&set.graph, options);
    let stalled = hazards::without_lanes(&mut set, &machines, &conditions, options)?;
    let mut played = play::play(&set, &machines, &conditions, options)?;
    if let Some(inputs) = conditions.inputs.as_mut().filter(|_| options.warm) {
        inputs.warm = inputs.after(&played.first.builds);
        played = play::play(&set, &machines, &conditions, options)?;
    }
    if let Some(path) = &options.trace {
        write(path, &show::trace(&set.graph, &played.first))?;
    }
    if let Some(path) = &options.svg {
        write(path, &draw::draw(&set.graph, &played, &machines))?;
    }
    match options.json {
        true => {
            let mut value = show::as_json(&set, &played, &machines, options);
            value["hazards"] = hazards::as_json(stalled.as_ref(), &played);
            print(&format!("{value:#}\n"))
        }
        false => {
            let text = show::as_text(&set, &played, &machines, options);
            print(&(text + &hazards::as_text(stalled.as_ref(), &played)))
        }
    }
}

/// A set of a file with its dependencies, and one with its build times.
fn recorded(graph: &Path, history: &Path, unknown_seconds: f64) -> Result<SimulatedSet> {
    let parsed = graph::parse(&read(graph)?, graph)?;
    let works = history::parse(&read(history)?, history)?.works(&parsed, unknown_seconds);
    Ok(SimulatedSet { graph: Arc::new(parsed), works })
}

/// The delays that the options describe.
fn delays(options: &Simulate) -> Result<Conditions> {
    let seconds = |name: &str, value: f64| match value.is_finite() && value >= 0.0 {
        true => Ok(value),
        false => Err(Error::usage(format!("--{name} {value} is not a time in seconds"))),
    };
    Ok(Conditions {
        delay_seconds: seconds("delay", options.delay)?,
        transfer_seconds: seconds("transfer", options.transfer)?,
        ..Conditions::default()
    })
}

/// Adds these groups of machines, such as `4x16`, and their joins and losses.
fn add_machines(
    groups: &[String],
    memory_bytes: Option<u64>,
    machines: &mut Vec<Machine>,
    conditions: &mut Conditions,
) -> Result<()> {
    for group in groups {
        let wrong = || {
            Error::usage(format!("--machines {group} is not a number of machines and their cores"))
                .hint(
                    "--machines 4x16, or with a speed relative to the recorded one: 4x16,2x64@1.5; 1x16+600 joins after 600 s, and \
                     1x16-600 is lost then",
                )
        };
        let change = group.find(['+', '-']).map(|at| group.split_at(at));
        let (group, change) = change.map_or((group.as_str(), None), |(group, change)| (group, Some(change)));
        let change_seconds: f64 =
            change.map_or(Ok(0.0), |change| change[1..].parse()).map_err(|_| wrong())?;
        let (count, rest) = group.split_once('x').ok_or_else(wrong)?;
        let (cores, speed) = rest.split_once('@').unwrap_or((rest, "1"));
        let count: u32 = count.trim().parse().map_err(|_| wrong())?;
        let cores: u32 = cores.trim().parse().map_err(|_| wrong())?;
        let speed: f64 = speed.trim().parse().map_err(|_| wrong())?;
        let is_machine = (1..=MACHINES_MAX).contains(&count)
            && (1..=CORES_MAX).contains(&cores)
            && speed.is_finite()
            && speed > 0.0;
        if !(is_machine && change_seconds.is_finite() && change_seconds >= 0.0) {
            return Err(wrong());
        }
        let ids = (machines.len() as u32..machines.len() as u32 + count).map(MachineId);
        let changes = ids.map(|machine| (machine, change_seconds));
        match change {
            Some(change) if change.starts_with('+') => conditions.joins.extend(changes),
            Some(_) => conditions.losses.extend(changes),
            None => {}
        }
        machines.extend((0..count).map(|_| Machine { speed, memory_bytes, ..Machine::of_cores(cores) }));
    }
    Ok(())
}

/// The machines given by the options, and the conditions between them.
fn machines(options: &Simulate) -> Result<(Vec<Machine>, Conditions)> {
    let memory_bytes = options.memory.map(|size| size.0);
    let (mut machines, mut conditions) = (Vec::new(), delays(options)?);
    add_machines(&options.machines, memory_bytes, &mut machines, &mut conditions)?;
    if machines.is_empty() {
        let here = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let cores = options.cores.unwrap_or_else(here);
        if !(1..=CORES_MAX).contains(&cores) {
            return Err(Error::usage(format!("--cores {cores}: a machine has 1 to {CORES_MAX} cores")));
        }
        machines.push(Machine { memory_bytes, ..Machine::of_cores(cores) });
    }
    let changes = conditions.joins.len() + conditions.losses.len();
    if changes > 0 && options.policy != PolicyName::Rank {
        return Err(Error::usage("other builders' rules do not know machines that join or are lost")
            .hint("--policy rank"));
    }
    if options.blind && options.policy != PolicyName::Rank {
        return Err(Error::usage(
            "other builders' rules do not know what machines have, with or without --blind",
        )
        .hint("--policy rank"));
    }
    if changes == machines.len() {
        return Err(Error::usage("no machine is there from the beginning to the end"));
    }
    Ok((machines, conditions))
}

/// The text of a file, decompressed if necessary.
fn read(path: &Path) -> Result<String> {
    let bytes = input::read(path).context(Kind::Usage, format!("read {}", path.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::usage(format!("{} is not UTF-8 in line {line}", path.display()))
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    let what = format!("write {}", path.display());
    let mut file = fs_err::File::create(path).context(Kind::Machine, &what)?;
    file.write_all(text.as_bytes()).context(Kind::Machine, &what)
}
