//! The output of a simulation: for people, for programs, and as a trace.

use super::SimulatedSet;
use super::play::Played;
use crate::cli::Simulate;
use crate::words;
use kilnyard_model::graph::Graph;
use kilnyard_schedule::{Machine, Simulated};
use serde_json::{Value, json};
use std::fmt::Write;

/// The number of intervals of the utilisation.
const STRETCHES: usize = 20;

/// The maximum number of packages of the path in the text output.
const PATH_SHOWN_MAX: usize = 40;

/// The share of busy cores in each interval.
pub fn utilisation(simulated: &Simulated, machines: &[Machine], stretches: usize) -> Vec<f64> {
    let cores: f64 = machines.iter().map(|machine| f64::from(machine.cores)).sum();
    let length = simulated.makespan_seconds / stretches as f64;
    let mut shares = vec![0.0; stretches];
    let ends = simulated.busy.iter().skip(1).map(|busy| busy.at_seconds);
    let ends = ends.chain([simulated.makespan_seconds]);
    for (busy, end) in simulated.busy.iter().zip(ends) {
        let (mut from, mut stretch) = (busy.at_seconds, (busy.at_seconds / length) as usize);
        while from < end && length > 0.0 {
            stretch = stretch.min(stretches - 1);
            let stretch_end = if stretch + 1 == stretches { end } else { length * (stretch + 1) as f64 };
            let to = stretch_end.min(end).max(from);
            shares[stretch] += busy.cores * (to - from) / (length * cores);
            (from, stretch) = (to, stretch + 1);
        }
    }
    shares
}

/// The share of busy cores over the whole run.
fn mean_utilisation(simulated: &Simulated, machines: &[Machine]) -> f64 {
    utilisation(simulated, machines, 1)[0]
}

pub fn as_json(set: &SimulatedSet, played: &Played, machines: &[Machine], options: &Simulate) -> Value {
    let cores: u32 = machines.iter().map(|machine| machine.cores).sum();
    let path: Vec<&str> = played.bound.path.iter().map(|id| set.graph.name(*id)).collect();
    json!({
        "makespan_seconds": played.makespan_seconds,
        "bound_seconds": played.bound_seconds,
        "bound_path_seconds": played.bound.path_seconds,
        "bound_work_seconds": played.bound.work_seconds,
        "bound_window_seconds": played.bound.window_seconds,
        "ratio": played.ratio,
        "ratios": played.ratios,
        "path": path,
        "policy": options.policy.as_str(),
        "workers": played.workers,
        "cores": cores,
        "machines": machines.len(),
        "packages": set.graph.len(),
        "events": played.first.events,
        "events_per_second": played.events_per_second,
        "simulated_in_seconds": played.simulated_in.as_secs_f64(),
        "utilisation": utilisation(&played.first, machines, STRETCHES),
        "mean_utilisation": mean_utilisation(&played.first, machines),
        "memory_peak_bytes": played.memory_peak_bytes,
        "jobs_per_core_max": played.first.jobs_per_core_max,
        "builds_lost": played.first.lost,
        "delay_seconds": options.delay,
        "transfer_seconds": options.transfer,
        "kept_share": options.kept,
        "builds_with_kept_work": played.with_kept,
        "transferred_bytes": played.first.transferred_bytes,
    })
}

pub fn as_text(set: &SimulatedSet, played: &Played, machines: &[Machine], options: &Simulate) -> String {
    let cores: u32 = machines.iter().map(|machine| machine.cores).sum();
    let mut text = String::new();
    let of_machines = match machines.len() {
        1 => String::new(),
        count => format!(" of {count} machines"),
    };
    let with_workers = played.workers.map_or_else(String::new, |workers| {
        format!(", {} at once on each machine", words::count(workers.into(), "build"))
    });
    let _ = writeln!(
        text,
        "{} on {}{of_machines}, policy {}{with_workers}",
        words::count(set.graph.len() as u64, "package"),
        words::count(cores.into(), "core"),
        options.policy.as_str(),
    );
    let mean = match played.ratios.len() {
        1 => String::new(),
        seeds => format!(" (the mean of {seeds} seeds)"),
    };
    let _ = writeln!(
        text,
        "takes {}, {:.3} times the bound of {}{mean}",
        words::duration(played.makespan_seconds),
        played.ratio,
        words::duration(played.bound_seconds),
    );
    if options.rate.is_some() {
        let bytes = words::size(played.first.transferred_bytes);
        let _ = writeln!(text, "{bytes} of inputs reach the machines that lack them");
    }
    if played.first.lost > 0 {
        let lost = words::count(played.first.lost.into(), "build");
        let _ = writeln!(text, "{lost} lost with their machines, and repeated");
    }
    if let Some(share) = options.kept {
        let _ = writeln!(
            text,
            "{} began with kept work, which leaves {:.0} % of the work",
            words::count(played.with_kept, "build"),
            share * 100.0,
        );
    }
    let _ = writeln!(
        text,
        "bound: the longest path takes {}, the work spread over all cores {}, with the run's beginning and end {}",
        words::duration(played.bound.path_seconds),
        words::duration(played.bound.work_seconds),
        words::duration(played.bound.window_seconds),
    );
    let percents: Vec<String> = utilisation(&played.first, machines, STRETCHES)
        .iter()
        .map(|share| format!("{:.0}", share * 100.0))
        .collect();
    let _ = writeln!(
        text,
        "cores busy: {:.1} %; over time: {}",
        mean_utilisation(&played.first, machines) * 100.0,
        percents.join(" ")
    );
    if played.first.jobs_per_core_max > 1.0 {
        let _ = writeln!(text, "jobs for each core: up to {:.1}", played.first.jobs_per_core_max);
    }
    if options.memory.is_some() {
        let _ = writeln!(text, "memory: up to {} on one machine", words::size(played.memory_peak_bytes));
    }
    let mut path: Vec<&str> =
        played.bound.path.iter().take(PATH_SHOWN_MAX).map(|id| set.graph.name(*id)).collect();
    let more = played.bound.path.len() - path.len();
    let and_more = format!("and {more} more");
    if more > 0 {
        path.push(&and_more);
    }
    let _ = writeln!(text, "path: {}", path.join(" -> "));
    let _ = writeln!(
        text,
        "decided {:.0} events per second; simulated in {:.2} s",
        played.events_per_second,
        played.simulated_in.as_secs_f64()
    );
    text
}

/// A line for each start and end, in chronological order. At the same moment ends come first, except for
/// a build that takes no time.
pub fn trace(graph: &Graph, simulated: &Simulated) -> String {
    // Ends are already in order. A build starts after the ends of its dependencies, and so after all ends that
    // had happened when it started.
    let mut lines: Vec<(f64, u64, String)> = Vec::new();
    for (number, built) in simulated.builds.iter().enumerate() {
        let name = graph.name(built.package);
        let start = format!("{:.6} start {name} {}", built.start_seconds, built.start_cores);
        let end = format!("{:.6} end {name} {}", built.end_seconds, built.end_cores);
        lines.push((built.start_seconds, 2 * built.ended_before as u64, start));
        lines.push((built.end_seconds, 2 * number as u64 + 1, end));
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let mut text = String::new();
    for (_, _, line) in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_schedule::Busy;

    #[test]
    fn utilisation_is_spread_over_time() {
        let busy = |at_seconds, cores| Busy { at_seconds, cores, builds: 1 };
        let simulated = Simulated {
            makespan_seconds: 10.0,
            busy: vec![busy(0.0, 4.0), busy(2.5, 2.0), busy(5.0, 0.0), busy(7.5, 4.0)],
            ..Simulated::default()
        };
        let machines = [Machine::of_cores(4)];
        assert_eq!(utilisation(&simulated, &machines, 4), [1.0, 0.5, 0.0, 1.0]);
        assert_eq!(utilisation(&simulated, &machines, 2), [0.75, 0.5]);
        assert_eq!(mean_utilisation(&simulated, &machines), 0.625);
    }

    #[test]
    fn no_stretch_is_busier_than_its_cores() {
        let busy = (0..1000).map(|n| Busy { at_seconds: f64::from(n) * 0.7, cores: 3.0, builds: 1 });
        let simulated = Simulated { makespan_seconds: 700.0, busy: busy.collect(), ..Simulated::default() };
        for stretches in [1, 7, 20, 400, 1234] {
            let shares = utilisation(&simulated, &[Machine::of_cores(3)], stretches);
            assert!(shares.iter().all(|share| (share - 1.0).abs() < 1e-6), "{stretches}: {shares:?}");
        }
    }
}
