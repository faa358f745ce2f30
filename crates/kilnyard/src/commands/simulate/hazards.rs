//! Builds that stall their machines: the run with lanes for them, and without.

use super::SimulatedSet;
use super::play::{Played, play};
use crate::cli::Simulate;
use crate::error::{Error, Result};
use crate::words::{count, duration};
use kilnyard_ecosystem::NamePattern;
use kilnyard_model::graph::PackageId;
use kilnyard_schedule::{Conditions, Machine, Simulated, Stalling};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The run without lanes.
pub struct Stalled {
    traps: HashMap<PackageId, f64>,
    played: Played,
}

/// Simulates the run in which builds that stall their machines run as all others. Afterwards, the set has a lane for each of
/// them: a virtual machine of one core, which stalls no other. `None` without such builds.
pub fn without_lanes(
    set: &mut SimulatedSet,
    machines: &[Machine],
    conditions: &Conditions,
    options: &Simulate,
) -> Result<Option<Stalled>> {
    let mut traps = HashMap::new();
    for text in &options.hazard {
        let wrong = |why: &str| {
            Error::usage(format!("--hazard {text} {why}"))
                .hint("--hazard \'chromium*=1e6\': a pattern and traps a second")
        };
        let (pattern, number) = text.rsplit_once('=').ok_or_else(|| wrong("is not PATTERN=TRAPS"))?;
        let number: f64 = number.parse().map_err(|_| wrong("has no number of traps"))?;
        if !(number.is_finite() && number >= 0.0) {
            return Err(wrong("has no number of traps"));
        }
        let pattern =
            NamePattern::parse(pattern).map_err(|reason| wrong(&format!("has a pattern that {reason}")))?;
        let matching = set.graph.packages().filter(|id| pattern.matches(set.graph.name(*id)));
        let before = traps.len();
        traps.extend(matching.map(|id| (id, number)));
        if traps.len() == before {
            return Err(wrong("matches no package that is not matched already"));
        }
    }
    if traps.is_empty() {
        return Ok(None);
    }
    let conditions = Conditions { traps: traps.clone(), ..conditions.clone() };
    let played = play(set, machines, &conditions, options)?;
    for id in traps.keys() {
        set.works[id.index()].jobs_max = Some(1);
    }
    Ok(Some(Stalled { traps, played }))
}

impl Stalled {
    /// The mean time at which the other packages are there.
    fn others_seconds(&self, simulated: &Simulated) -> f64 {
        let others = simulated.builds.iter().filter(|built| !self.traps.contains_key(&built.package));
        let ends: Vec<f64> = others.map(|built| built.end_seconds).collect();
        ends.iter().sum::<f64>() / ends.len().max(1) as f64
    }
}

pub fn as_json(stalled: Option<&Stalled>, with_lanes: &Played) -> Value {
    let Some(stalled) = stalled else { return Value::Null };
    let fitted = Stalling::default();
    let (predicted, measured) = fitted.prediction();
    json!({
        "packages": stalled.traps.len(),
        "makespan_seconds_without_lanes": stalled.played.makespan_seconds,
        "mean_end_of_others_seconds_without_lanes": stalled.others_seconds(&stalled.played.first),
        "mean_end_of_others_seconds": stalled.others_seconds(&with_lanes.first),
        "model": {
            "alone_hours": fitted.alone_hours,
            "doubling_hours": fitted.doubling_hours,
            "predicted_on_one_core_seconds": predicted,
            "measured_on_one_core_seconds": measured,
        },
    })
}

pub fn as_text(stalled: Option<&Stalled>, with_lanes: &Played) -> String {
    let Some(stalled) = stalled else { return String::new() };
    let (predicted, measured) = Stalling::default().prediction();
    let verb = if stalled.traps.len() == 1 { "stalls" } else { "stall" };
    format!(
        "{} {verb} machines by emulated instructions: above, in virtual machines of one core; without them, the run takes {}\n\
         on average, another package is there after {}; without them, after {}\n\
         the model: everything takes longer with each doubling of the cores, as measured on 8 and 64; for one core it predicts {}, \
         and {} was measured, in a virtual machine ({:+.0} %)\n",
        count(stalled.traps.len() as u64, "package"),
        duration(stalled.played.makespan_seconds),
        duration(stalled.others_seconds(&with_lanes.first)),
        duration(stalled.others_seconds(&stalled.played.first)),
        duration(predicted),
        duration(measured),
        (predicted / measured - 1.0) * 100.0,
    )
}
