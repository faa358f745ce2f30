//! How many pilots are worth having, and why work fits none.
//!
//! A pilot that is started now works only after its start-up time, and can shorten the run only if there is then work that
//! does not wait for the longest path. So the number is the smaller of two:
//!
//! - *Width*: the pilots that are filled by what runs and what could start now, each build with its cores and memory. More
//!   would be empty today.
//! - *Worth*: with the remaining work `W` in core-seconds, the longest path `P` and the start-up time `S`, the machines that are
//!   there do `S` times their cores before a new pilot works. What is left must keep every new pilot busy until the path ends,
//!   `P - S`, and for at least `cost` times its start-up: a pilot that works for less was not worth its start.
//!   More cores than `(W - cores * S) / max(P - S, cost * S)` only wait for the path, or cost more than they give.
//!
//! If there is work that fits, the number is at least one, since without a pilot it would never be done. At the end, it is kept
//! between least and most.
//!
//! Known downside: the width is that of this moment. A graph that gets wider soon is noticed when it does, one start-up time
//! late; the worth says nothing about when work becomes ready.

use std::collections::BTreeSet;

/// The most entries of ready or running work that are packed; work beyond is taken as the average of these.
const PACKED_MAX: usize = 5_000;

/// What a build or another piece of work needs from a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The cores that it can use; it can do with fewer.
    pub cores: u32,
    /// The memory that it cannot do without, in bytes.
    pub memory_bytes: u64,
    /// The disk space that it cannot do without, in bytes.
    pub disk_bytes: u64,
    /// Words that its machine must have, such as an architecture, a role or a label.
    pub labels: BTreeSet<String>,
}

/// What a machine has: the pilots of a pool, or a worker that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The pool or worker, for messages.
    pub name: String,
    /// Its cores.
    pub cores: u32,
    /// Its memory for builds, in bytes.
    pub memory_bytes: u64,
    /// Its disk space for builds, in bytes.
    pub disk_bytes: u64,
    /// Its words.
    pub labels: BTreeSet<String>,
}

impl Machine {
    /// What it lacks for this work, in words; empty if the work fits.
    fn lacks(&self, need: &Need) -> Vec<String> {
        let mut lacks = Vec::new();
        for (what, needed, has) in [
            ("memory", need.memory_bytes, self.memory_bytes),
            ("disk space", need.disk_bytes, self.disk_bytes),
        ] {
            if needed > has {
                lacks.push(format!("needs {} of {what}; {} has {}", size(needed), self.name, size(has)));
            }
        }
        let missing: Vec<&str> = need.labels.difference(&self.labels).map(String::as_str).collect();
        if !missing.is_empty() {
            lacks.push(format!("needs {}; {} has {}", missing.join(", "), self.name, labels(&self.labels)));
        }
        lacks
    }
}

fn labels(labels: &BTreeSet<String>) -> String {
    match labels.is_empty() {
        true => "no labels".to_owned(),
        false => labels.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}

fn size(bytes: u64) -> String {
    let gib = bytes as f64 / (1_u64 << 30) as f64;
    match bytes.is_multiple_of(1 << 30) || gib >= 100.0 {
        true => format!("{gib:.0} GiB"),
        false => format!("{gib:.1} GiB"),
    }
}

/// Why work fits none of the machines: what the nearest one lacks, such as `needs 64 GiB of memory; lab has 32 GiB`. None if
/// it fits one. The nearest one lacks the fewest things; among those that lack memory or disk space, the largest is nearest.
pub fn nearest_miss(need: &Need, machines: &[Machine]) -> Option<String> {
    let misses = machines.iter().map(|machine| (machine, machine.lacks(need)));
    let misses: Vec<(&Machine, Vec<String>)> = misses.collect();
    if misses.iter().any(|(_, lacks)| lacks.is_empty()) {
        return None;
    }
    let nearest = misses.into_iter().min_by_key(|(machine, lacks)| {
        let gap = need.memory_bytes.saturating_sub(machine.memory_bytes);
        (lacks.len(), gap, need.disk_bytes.saturating_sub(machine.disk_bytes))
    });
    Some(match nearest {
        Some((_, lacks)) => lacks.join("; "),
        None => "there are no workers and no pools".to_owned(),
    })
}

/// The work of all runs that a pool takes part in, and what it costs to take part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// What runs on the pool's pilots, and what could start now on a pilot of it.
    pub work: Vec<Need>,
    /// The remaining work of the runs that the pool can do, in core-seconds, including what cannot start yet. Zero if it is not
    /// known: then the longest path limits nothing.
    pub work_core_seconds: f64,
    /// The longest path of remaining build times, in seconds.
    pub path_seconds: f64,
    /// The cores of other machines that work on the same, at present.
    pub other_cores: u32,
    /// The cores of the pool's connected workers.
    pub there_cores: u32,
    /// The time from a start until the worker takes builds, in seconds.
    pub startup_seconds: f64,
    /// How many times its start-up time a pilot must work to be worth it: 0 for machines that are free, more for those that
    /// are paid.
    pub cost: f64,
}

/// How many pilots are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Between least and most.
    pub count: u32,
    /// Why, for the user.
    pub reason: String,
}

/// How many pilots like this one are worth having: see the module documentation.
pub fn wanted(demand: &Demand, pilot: &Machine, least: u32, most: u32) -> Wanted {
    let fitting: Vec<&Need> = demand.work.iter().filter(|need| pilot.lacks(need).is_empty()).collect();
    let width = width(&fitting, pilot);
    let worth = worth(demand, pilot);
    let builds = match fitting.len() {
        1 => "1 build".to_owned(),
        count => format!("{count} builds"),
    };
    let (count, reason) = match (fitting.is_empty(), worth) {
        (true, _) if demand.work.is_empty() => (0, "nothing could start".to_owned()),
        (true, _) => (0, "nothing that could start fits".to_owned()),
        (false, Some(worth)) if worth < width => {
            let path_seconds = positive(demand.path_seconds).round();
            let reason = format!(
                "the longest path takes {path_seconds} s, and the work beyond it is worth {worth}, not {width}"
            );
            (worth, reason)
        }
        (false, _) => (width, format!("{builds} could run, and fill {width}")),
    };
    match (count < least, count > most) {
        (_, true) => Wanted { count: most, reason: format!("{reason}; most is {most}") },
        (true, false) => Wanted { count: least.min(most), reason: format!("{reason}; least is {least}") },
        (false, false) => Wanted { count, reason },
    }
}

/// The pilots that the work fills, by first fit in descending order of memory.
fn width(work: &[&Need], pilot: &Machine) -> u32 {
    let mut sorted: Vec<&Need> = work.to_vec();
    sorted.sort_by_key(|need| std::cmp::Reverse((need.memory_bytes, need.cores)));
    // Evenly spaced ones of too many, so that their mixture stays.
    let step = sorted.len().div_ceil(PACKED_MAX).max(1);
    let mut pilots: Vec<(u32, u64)> = Vec::new();
    // The first pilot that may have room for a core: those before are full.
    let mut open = 0;
    for need in sorted.into_iter().step_by(step) {
        let (cores, memory_bytes) = (need.cores.clamp(1, pilot.cores.max(1)), need.memory_bytes);
        let fits = |pilot: &(u32, u64)| pilot.0 >= cores && pilot.1 >= memory_bytes;
        match pilots[open..].iter().position(fits) {
            Some(at) => {
                let free = &mut pilots[open + at];
                (free.0, free.1) = (free.0 - cores, free.1 - memory_bytes);
            }
            None => {
                pilots.push((pilot.cores.max(1) - cores, pilot.memory_bytes.saturating_sub(memory_bytes)))
            }
        }
        while pilots.get(open).is_some_and(|pilot| pilot.0 == 0) {
            open += 1;
        }
    }
    u32::try_from(pilots.len().saturating_mul(step)).unwrap_or(u32::MAX)
}

/// The pilots beyond which another one is not worth its start; none if the remaining work is not known.
fn worth(demand: &Demand, pilot: &Machine) -> Option<u32> {
    let work = positive(demand.work_core_seconds);
    if work == 0.0 {
        return None;
    }
    let startup_seconds = positive(demand.startup_seconds);
    let others = f64::from(demand.other_cores);
    let there = f64::from(demand.there_cores);
    let done_meanwhile = (others + there) * startup_seconds;
    let shortest_seconds = (positive(demand.path_seconds) - startup_seconds)
        .max(positive(demand.cost) * startup_seconds)
        .max(1.0);
    let useful_cores = (work - done_meanwhile).max(0.0) / shortest_seconds;
    let of_pool = (useful_cores - others).max(0.0) / f64::from(pilot.cores.max(1));
    // What is there need not be started: it is worth keeping while it shortens the run at all.
    let kept_cores = work / positive(demand.path_seconds).max(1.0) - others;
    let kept = (kept_cores.clamp(0.0, there) / f64::from(pilot.cores.max(1))).ceil();
    Some((of_pool.ceil().max(kept) as u32).max(1))
}

/// Estimates come from records and configuration: not a number counts as zero.
fn positive(number: f64) -> f64 {
    if number.is_finite() { number.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests;
