//! What a farm costs on one machine: the yard's set built by `kilnyard build` alone, and by `serve`, `build --elsewhere` and
//! one worker process, in turn.

use super::real::{Place, Subject, Taken};
use crate::Trial;
use crate::error::Result;
use crate::figures::{Report, Series, Unit, ratios};
use crate::yard::Yard;
use serde_json::{Map, json};

/// The target for the CPU time of a farm of one worker, compared with that of a build alone.
const RATIO_MAX: f64 = 1.03;

/// Measures pairs of runs of the yard's set.
pub fn measure(yard: &Yard, trial: &Trial<'_>) -> Result<Report> {
    let subject = Subject::prepare(yard, trial)?;
    let places = [Place { name: "worker", processors: Vec::new(), roots: "overlay" }];
    trial.say("a first run of the worker makes its layers; it is not counted");
    subject.by(&places)?;
    let (mut alone, mut farm) = (Vec::new(), Vec::new());
    for pair in 1..=trial.pairs {
        // Alternate between first and last, so that other load affects both.
        if pair % 2 == 1 {
            alone.push(subject.alone()?);
        }
        farm.push(subject.by(&places)?);
        if pair % 2 == 0 {
            alone.push(subject.alone()?);
        }
        trial.say(format_args!("pair {pair} of {} measured", trial.pairs));
    }
    Ok(report(&subject, &alone, &farm))
}

fn report(subject: &Subject, alone: &[Taken], farm: &[Taken]) -> Report {
    let walls = |all: &[Taken]| all.iter().map(|taken| taken.wall_seconds).collect::<Vec<f64>>();
    let cpus = |all: &[Taken]| all.iter().map(|taken| taken.cpu_seconds).collect::<Vec<f64>>();
    let seconds = |key: &str, label: &str, values| Series::new(key, label, Unit::Seconds, values);
    let cpu_ratio = ratios(&cpus(farm), &cpus(alone));
    let cpu_ratio = Series::new("cpu_ratio", "CPU, farm / alone", Unit::Ratio, cpu_ratio);
    let wall_ratio = ratios(&walls(farm), &walls(alone));
    let wall_ratio = Series::new("wall_ratio", "wall, farm / alone", Unit::Ratio, wall_ratio);
    let is_met = Some(cpu_ratio.median() <= RATIO_MAX);
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(subject.packages));
    Report {
        name: "farm-cost",
        series: vec![
            seconds("alone_wall_seconds", "kilnyard build, wall", walls(alone)),
            seconds("farm_wall_seconds", "serve, a worker and build --elsewhere, wall", walls(farm)),
            seconds("alone_cpu_seconds", "kilnyard build, CPU", cpus(alone)),
            seconds("farm_cpu_seconds", "serve, a worker and build --elsewhere, CPU", cpus(farm)),
            wall_ratio,
            cpu_ratio,
        ],
        facts,
        notes: vec![format!("{} packages, with warm layers on both sides", subject.packages.len())],
        target: format!("at most {RATIO_MAX} of the CPU time of a build alone"),
        is_met,
    }
}
