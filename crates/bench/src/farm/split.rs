//! Two workers of one core each, compared with one of two cores: what is measured, and what `kilnyard simulate` says of it.
//!
//! The workers are processes of this machine, each confined to processors of its own, so that both sides have the same two.
//! One of the two workers is also the one with two cores. Before the measurement, each builds the set once, so that it has
//! all layers.
//!
//! Known downside: `serve` and `build` are not confined, and share the processors of the workers if there are no others.

use super::real::{Place, Subject, Taken, processors};
use crate::Trial;
use crate::child::this_program;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit, ratios};
use crate::yard::Yard;
use serde_json::{Map, Value, json};

/// The target for the measured ratio, divided by the simulated one.
const QUOTIENT_MAX: f64 = 1.05;

/// Measures pairs of runs of the yard's set.
pub fn measure(yard: &Yard, trial: &Trial<'_>) -> Result<Report> {
    let all = processors()?;
    let [one, two, ..] = all[..] else {
        return Err(Error::new(
            Kind::Machine,
            "this process may use one processor only; the benchmark needs two",
        ));
    };
    let place =
        |name, processors: &[usize]| Place { name, processors: processors.to_vec(), roots: "overlay" };
    let whole = [place("one", &[one, two])];
    let halves = [place("one", &[one]), place("two", &[two])];
    let subject = Subject::prepare(yard, trial)?;
    trial.say("a first run of each worker makes its layers; it is not counted");
    subject.by(&whole)?;
    subject.by(&[place("two", &[one, two])])?;
    let (mut of_one, mut of_two) = (Vec::new(), Vec::new());
    for pair in 1..=trial.pairs {
        // Alternate between first and last, so that other load affects both.
        if pair % 2 == 1 {
            of_one.push(subject.by(&whole)?);
        }
        of_two.push(subject.by(&halves)?);
        if pair % 2 == 0 {
            of_one.push(subject.by(&whole)?);
        }
        trial.say(format_args!("pair {pair} of {} measured", trial.pairs));
    }
    let simulated = [simulated_seconds(&subject, "1x2")?, simulated_seconds(&subject, "2x1")?];
    Ok(report(&subject, &of_one, &of_two, simulated))
}

/// What `kilnyard simulate` says of these machines, with the times of the runs before.
fn simulated_seconds(subject: &Subject, machines: &str) -> Result<f64> {
    let failed = "simulate the set";
    let mut command = this_program(&subject.own.folder, &["simulate", "--json", "--machines", machines]);
    let output = command.output().context(Kind::Machine, failed)?;
    if !output.status.success() {
        let mut error = Error::new(Kind::Internal, format!("failed to {failed}"));
        error.causes.push(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        return Err(error);
    }
    let value: Value = serde_json::from_slice(&output.stdout).or_internal(failed)?;
    let seconds = value["makespan_seconds"].as_f64();
    seconds.ok_or_else(|| Error::new(Kind::Internal, "kilnyard simulate does not say how long the run takes"))
}

fn report(subject: &Subject, of_one: &[Taken], of_two: &[Taken], [one, two]: [f64; 2]) -> Report {
    let seconds = |all: &[Taken]| all.iter().map(|taken| taken.makespan_seconds).collect::<Vec<f64>>();
    let measured = ratios(&seconds(of_two), &seconds(of_one));
    let simulated = two / one;
    let quotient: Vec<f64> = measured.iter().map(|ratio| ratio / simulated).collect();
    let quotient = Series::new("quotient", "measured / simulated", Unit::Ratio, quotient);
    let is_met = Some(quotient.median() <= QUOTIENT_MAX);
    let series = |key: &str, label: &str, unit, values| Series::new(key, label, unit, values);
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(subject.packages));
    Report {
        name: "farm-split",
        series: vec![
            series("whole_seconds", "one worker of two cores", Unit::Seconds, seconds(of_one)),
            series("halves_seconds", "two workers of one core each", Unit::Seconds, seconds(of_two)),
            series("measured_ratio", "two / one, measured", Unit::Ratio, measured),
            series("simulated_whole_seconds", "one worker, simulated", Unit::Seconds, vec![one]),
            series("simulated_halves_seconds", "two workers, simulated", Unit::Seconds, vec![two]),
            series("simulated_ratio", "two / one, simulated", Unit::Ratio, vec![simulated]),
            quotient,
        ],
        facts,
        notes: vec![format!(
            "{} packages, with warm layers; times are from the first to the last build",
            subject.packages.len()
        )],
        target: format!("at most {QUOTIENT_MAX} of what simulate says"),
        is_met,
    }
}
