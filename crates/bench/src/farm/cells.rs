//! The yard's set built by this machine as one, two and four cells: workers with processors of their own, as domains of a
//! large machine. Roots are on the disk, in memory and on block devices; with KVM, builds also have virtual machines with the
//! cores of their cell.
//!
//! Waits for the kernel's locks are counted by perf for the whole machine, where this user may do so (the tracepoint
//! `lock:contention_begin`, from Linux 5.19 on).
//!
//! Known downsides: `serve` and `build` are not confined; with fewer processors than cells, cells share processors; and the
//! times of workers include their start and end.

use super::real::{Place, Subject, processors};
use crate::Trial;
use crate::child::children_user_and_system_seconds;
use crate::error::{Context, Kind, Result};
use crate::figures::{Machine, Report, Series, Summary, Unit, ratios};
use crate::roots::StoredAdvice;
use crate::roots::chart::{Bar, Chart, Group, draw};
use crate::yard::Yard;
use kilnyard_root::{Backend, FileSystem, Roots, Scratch, Server, block};
use kilnyard_worker::{Accelerator, accelerator_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The numbers of cells.
const CELLS: [usize; 3] = [1, 2, 4];
const NAMES: [&str; 4] = ["one", "two", "three", "four"];
/// How roots are made: as `kilnyard worker --roots` has it, and in tables.
const ROOTS: [(&str, &str); 3] = [("overlay", "disk"), ("memory", "memory"), ("block", "block device")];
/// Builds in virtual machines, whose roots are on the disk.
const MACHINES: (&str, &str) = ("vm", "virtual machines");
/// A way is recommended if it takes at most this part of the time of one cell with roots on the disk.
const WORTH: f64 = 0.95;

/// A way to divide the machine.
struct Way {
    cells: usize,
    /// One of [`ROOTS`], or that of [`MACHINES`].
    roots: &'static str,
    label: String,
    wall: Vec<f64>,
    user: Vec<f64>,
    system: Vec<f64>,
    waits: Vec<f64>,
}

/// Measures the ways in turn, round by round. With `is_emulated`, virtual machines are measured even if their instructions are
/// emulated here.
pub fn measure(
    yard: &Yard,
    trial: &Trial<'_>,
    machine: &Machine,
    svg: Option<&Path>,
    is_emulated: bool,
) -> Result<Report> {
    let all = processors()?;
    let subject = Subject::prepare(yard, trial)?;
    let mut notes =
        vec![format!("{} packages; wall time is from the first to the last build", subject.packages.len())];
    let lack = block::missing_requirement(Server::Kilnyard, FileSystem::Ext4);
    notes.extend(lack.as_ref().map(|lack| format!("skipped: roots on block devices: {lack}")));
    let roots = ROOTS.into_iter().filter(|(way, _)| *way != "block" || lack.is_none());
    let has_machines = match accelerator_of(&subject.own.folder) {
        Ok(accelerator) if is_emulated || accelerator == Accelerator::Kvm => true,
        Ok(_) => {
            notes.push(
                "skipped: virtual machines: KVM does not work here; --emulated measures them".to_owned(),
            );
            false
        }
        Err(error) => {
            notes.push(format!("skipped: virtual machines: {error}"));
            false
        }
    };
    let roots = roots.chain(has_machines.then_some(MACHINES));
    let way = |(roots, name): (&'static str, &str), cells: usize| Way {
        cells,
        roots,
        label: format!(
            "{cells} cell{}, {}{name}",
            if cells == 1 { "" } else { "s" },
            if roots == MACHINES.0 { "" } else { "roots: " }
        ),
        wall: Vec::new(),
        user: Vec::new(),
        system: Vec::new(),
        waits: Vec::new(),
    };
    let mut ways: Vec<Way> = roots.flat_map(|roots| CELLS.map(|cells| way(roots, cells))).collect();
    for way in &ways {
        trial.say(format_args!("a first run makes layers and images, and is not counted: {}", way.label));
        way.run(&subject, &all)?;
    }
    let has_waits = Waits::start(&subject.own.folder).is_ok();
    if !has_waits {
        notes.push(
            "waits for locks of the kernel cannot be counted: perf is missing, or not allowed".to_owned(),
        );
    }
    for round in 1..=trial.pairs {
        for way in &mut ways {
            trial.say(format_args!("round {round} of {}: {}", trial.pairs, way.label));
            let before = children_user_and_system_seconds();
            let waits = if has_waits { Waits::start(&subject.own.folder).ok() } else { None };
            let seconds = way.run(&subject, &all)?;
            let waits = waits.and_then(Waits::end);
            let after = children_user_and_system_seconds();
            way.wall.push(seconds);
            way.user.push(after.0 - before.0);
            way.system.push(after.1 - before.1);
            way.waits.extend(waits);
        }
    }
    if let Some(path) = svg {
        let text = draw(&chart(&ways, machine));
        fs_err::write(path, text).context(Kind::Machine, "write the chart")?;
    }
    let found = best(&ways);
    if let Ok((way, ratio)) = &found {
        StoredAdvice {
            roots: way.roots(yard.config.roots),
            reason: format!(
                "{} took {:.2} of the time of one cell with roots on the disk",
                way.label, ratio.median
            ),
            package: format!("{} packages", subject.packages.len()),
            cells: way.cells,
            machine_cores: way.is_in_machines().then(|| cores_of(way.cells, &all)),
            is_beyond_noise: true,
        }
        .keep(yard)?;
    }
    notes.push(recommendation(&found));
    Ok(report(&subject.packages, &ways, notes))
}

impl Way {
    /// Builds the set once, and returns the seconds from the first build to the last.
    fn run(&self, subject: &Subject, all: &[usize]) -> Result<f64> {
        let is_in_machines = self.is_in_machines();
        subject.in_machines(is_in_machines.then(|| cores_of(self.cells, all)))?;
        let roots = if is_in_machines { ROOTS[0].0 } else { self.roots };
        Ok(subject.by(&places(self.cells, all, roots))?.makespan_seconds)
    }

    fn is_in_machines(&self) -> bool {
        self.roots == MACHINES.0
    }

    /// The same as the table `[root]` has it.
    fn roots(&self, usual: Roots) -> Roots {
        // Machines have roots on the disk.
        let (backend, scratch) = match self.roots {
            "memory" => (Backend::Overlay, Scratch::Memory),
            "block" => (Backend::Block, Scratch::Disk),
            _ => (Backend::Overlay, Scratch::Disk),
        };
        Roots { backend, scratch, ..usual }
    }
}

/// Cells with the same number of processors each; they share some if there are too few.
fn places(cells: usize, all: &[usize], roots: &'static str) -> Vec<Place> {
    let own = cores_of(cells, all) as usize;
    let of = |cell: usize| (0..own).map(|number| all[(cell * own + number) % all.len()]).collect();
    (0..cells).map(|cell| Place { name: NAMES[cell], processors: of(cell), roots }).collect()
}

/// The processors of each cell.
fn cores_of(cells: usize, all: &[usize]) -> u32 {
    (all.len() / cells).max(1) as u32
}

fn report(packages: &[String], ways: &[Way], notes: Vec<String>) -> Report {
    let mut series = Vec::new();
    for way in ways {
        let key = format!("{}_{}", way.roots, way.cells);
        let mut add = |what: &str, name: &str, unit, values: &[f64]| {
            if !values.is_empty() {
                series.push(Series::new(
                    format!("{key}_{what}"),
                    format!("{}: {name}", way.label),
                    unit,
                    values.to_vec(),
                ));
            }
        };
        add("wall_seconds", "wall", Unit::Seconds, &way.wall);
        add("user_seconds", "user", Unit::Seconds, &way.user);
        add("system_seconds", "system", Unit::Seconds, &way.system);
        add("waits_per_second", "waits for locks", Unit::PerSecond, &rates(&way.waits, &way.wall));
    }
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(packages));
    Report {
        name: "cells",
        series,
        facts,
        notes,
        target: "a table; a recommendation only beyond noise".to_owned(),
        is_met: None,
    }
}

fn rates(counts: &[f64], seconds: &[f64]) -> Vec<f64> {
    counts.iter().zip(seconds).map(|(count, seconds)| count / seconds.max(f64::MIN_POSITIVE)).collect()
}

/// The way that is faster than one cell with roots on the disk in every round, beyond noise; else the fastest of the others, if there
/// are any.
fn best(ways: &[Way]) -> std::result::Result<(&Way, Summary), Option<(&Way, Summary)>> {
    let Some((plain, others)) = ways.split_first() else { return Err(None) };
    let compared = others.iter().filter_map(|way| Some((way, Summary::of(&ratios(&way.wall, &plain.wall))?)));
    let best = compared.min_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
    match best {
        Some((way, ratio)) if plain.wall.len() >= 3 && ratio.median <= WORTH && ratio.max < 1.0 => {
            Ok((way, ratio))
        }
        other => Err(other),
    }
}

fn recommendation(found: &std::result::Result<(&Way, Summary), Option<(&Way, Summary)>>) -> String {
    match found {
        Ok((way, ratio)) => format!(
            "recommended: {}, at {:.2} of the time of one cell with roots on the disk; kilnyard tune writes it",
            way.label, ratio.median
        ),
        Err(Some((way, ratio))) => format!(
            "no recommendation: the fastest other way is {}, at {:.2} ({:.2} to {:.2}) of the time of one cell with roots on \
             the disk; it takes three rounds, all of them faster, and at most {WORTH} in the middle",
            way.label, ratio.median, ratio.min, ratio.max
        ),
        Err(None) => "no recommendation: nothing to compare".to_owned(),
    }
}

fn chart(ways: &[Way], machine: &Machine) -> Chart {
    let median = |values: &[f64]| Summary::of(values).map_or(0.0, |summary| summary.median);
    let bar = |way: &Way, parts: Vec<f64>| Bar { label: way.label.clone(), parts };
    let wall = ways.iter().map(|way| bar(way, vec![0.0, 0.0, median(&way.wall)])).collect();
    let cpu = ways.iter().map(|way| bar(way, vec![median(&way.user), median(&way.system), 0.0])).collect();
    Chart {
        title: "One machine as one, two and four cells".to_owned(),
        remark: machine.as_text(),
        axis: "seconds".to_owned(),
        parts: ["user", "system", "wall"].map(str::to_owned).into(),
        groups: vec![
            Group { heading: "from the first to the last build".to_owned(), bars: wall },
            Group { heading: "CPU time of all processes".to_owned(), bars: cpu },
        ],
    }
}

/// perf, which counts waits for locks until it is asked to end.
struct Waits {
    perf: Child,
    output: std::path::PathBuf,
}

impl Waits {
    fn start(folder: &Path) -> std::io::Result<Waits> {
        let output = folder.join("logs/waits");
        let mut command = Command::new("perf");
        command.args([
            "stat",
            "--all-cpus",
            "--event",
            "lock:contention_begin",
            "--field-separator",
            ",",
            "--output",
        ]);
        // Without a command, it counts until SIGINT.
        command.arg(&output);
        let mut perf = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        // One that may not count ends at once.
        std::thread::sleep(std::time::Duration::from_millis(200));
        match perf.try_wait()? {
            None => Ok(Waits { perf, output }),
            Some(status) => Err(std::io::Error::other(format!("perf ended with {status}"))),
        }
    }

    /// The number of waits.
    fn end(mut self) -> Option<f64> {
        kill_process(Pid::from_child(&self.perf), Signal::INT).ok()?;
        self.perf.wait().ok()?;
        let text = fs_err::read_to_string(&self.output).ok()?;
        let line = text.lines().find(|line| line.contains("lock:contention_begin"))?;
        line.split(',').next()?.trim().parse().ok()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.perf), Signal::INT);
        let _ = self.perf.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_divided_and_shared_if_there_are_too_few() {
        let divided = |cells, all: &[usize]| {
            let places = places(cells, all, "overlay");
            places.into_iter().map(|place| place.processors).collect::<Vec<_>>()
        };
        assert_eq!(divided(2, &[0, 1, 4, 5]), [[0, 1], [4, 5]]);
        assert_eq!(divided(4, &[2, 3]), [[2], [3], [2], [3]]);
        assert_eq!(divided(1, &[2, 3]), [[2, 3]]);
    }

    #[test]
    fn only_what_is_beyond_noise_is_recommended() {
        let way = |label: &str, wall: &[f64]| Way {
            cells: 1,
            roots: "overlay",
            label: label.to_owned(),
            wall: wall.to_vec(),
            user: Vec::new(),
            system: Vec::new(),
            waits: Vec::new(),
        };
        let plain = || way("plain", &[10.0, 10.0, 10.0]);
        let ways = [plain(), way("slow", &[11.0; 3]), way("fast", &[9.0, 8.0, 9.5])];
        let text = recommendation(&best(&ways));
        assert!(text.starts_with("recommended: fast, at 0.90 of the time"), "{text}");
        for ways in [[plain(), way("noisy", &[8.0, 8.0, 10.5])], [way("plain", &[10.0]), way("fast", &[5.0])]]
        {
            let text = recommendation(&best(&ways));
            assert!(text.starts_with("no recommendation: the fastest"), "{text}");
        }
    }
}
