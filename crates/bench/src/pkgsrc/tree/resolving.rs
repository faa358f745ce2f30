//! Reads a scan, resolves it and writes it out, compared with bob.

use super::Part;
use crate::Trial;
use crate::child::{self, Usage};
use crate::error::{Context, Result};
use crate::figures::{Series, Unit, ratios};
use crate::scratch::Scratch;
use serde_json::{Map, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// The targets.
const CPU_RATIO_MAX: f64 = 1.0 / 3.0;
const MEMORY_BYTES_MAX: f64 = 250e6;

/// The other resolver.
const PEER: &str = "bob";

pub fn measure(scratch: &Scratch, scan: &Path, trial: &Trial<'_>) -> Result<Part> {
    let pairs = trial.pairs;
    let (ours_path, theirs_path) = (scratch.path("ours"), scratch.path("theirs"));
    let has_peer = is_installed();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut is_same = true;
    for pair in 1..=pairs {
        // Remove the files before measuring, so that neither has to truncate those of the previous pair.
        remove(&[&ours_path, &theirs_path]);
        let mut command = child::this_program_alone(&["resolve", "--ecosystem", "pkgsrc", "--pbulk-rules"]);
        command.arg("--import").arg(scan).arg("--export").arg(&ours_path).stderr(Stdio::null());
        ours.push(child::measure(command, None, &[0])?);
        if has_peer {
            let mut command = Command::new(PEER);
            command.args(["util", "presolve"]).arg(scan).stderr(Stdio::null());
            theirs.push(child::measure(command, Some(&theirs_path), &[0])?);
            let read = |path: &Path| fs_err::read(path).or_internal("compare the resolved sets");
            is_same &= read(&ours_path)? == read(&theirs_path)?;
        }
        trial.say(format_args!("resolving: pair {pair} of {pairs} measured"));
    }
    remove(&[&ours_path, &theirs_path]);
    Ok(make_report(&ours, has_peer.then_some((&theirs, is_same))))
}

/// Removes files that may exist. The folder is removed at the end in any case.
fn remove(paths: &[&Path]) {
    for path in paths {
        let _ = fs_err::remove_file(path);
    }
}

fn make_report(ours: &[Usage], peer: Option<(&Vec<Usage>, bool)>) -> Part {
    let cpu = |usages: &[Usage]| usages.iter().map(|usage| usage.cpu_seconds).collect::<Vec<_>>();
    let of = |who: &str, key: &str, usages: &[Usage]| {
        let wall = usages.iter().map(|usage| usage.wall_seconds).collect();
        let memory = usages.iter().map(|usage| usage.memory_peak_bytes as f64).collect();
        [
            Series::new(format!("{key}cpu_seconds"), format!("{who}, CPU"), Unit::Seconds, cpu(usages)),
            Series::new(format!("{key}wall_seconds"), format!("{who}, wall"), Unit::Seconds, wall),
            Series::new(
                format!("{key}memory_peak_bytes"),
                format!("{who}, peak memory"),
                Unit::Bytes,
                memory,
            ),
        ]
    };
    let mut series = Vec::from(of("kilnyard resolve", "resolve_", ours));
    let is_small = ours.iter().all(|usage| usage.memory_peak_bytes as f64 <= MEMORY_BYTES_MAX);
    let mut part = Part {
        name: "resolve",
        series: Vec::new(),
        facts: Map::new(),
        notes: Vec::new(),
        target: format!(
            "the same output as bob, at most {CPU_RATIO_MAX:.3} of its CPU time on the same file, at most {:.0} MB",
            MEMORY_BYTES_MAX / 1e6
        ),
        // Too much memory misses the target regardless of others.
        is_met: (!is_small).then_some(false),
    };
    match peer {
        Some((theirs, is_same)) => {
            let ratio = ratios(&cpu(ours), &cpu(theirs));
            let ratio = Series::new("resolve_cpu_ratio", "CPU, kilnyard / bob", Unit::Ratio, ratio);
            part.is_met = Some(is_small && is_same && ratio.median() <= CPU_RATIO_MAX);
            part.facts.insert("is_same_as_bob".to_owned(), json!(is_same));
            part.notes.push(match is_same {
                true => "bob's output is identical".to_owned(),
                false => "bob's output differs".to_owned(),
            });
            series.extend(of("bob util presolve", "resolve_bob_", theirs));
            series.push(ratio);
        }
        None => part.notes.push("bob is not in PATH, so there is no comparison".to_owned()),
    }
    Part { series, ..part }
}

/// Whether bob is installed. Other programs have the same name, so this checks for the subcommand.
fn is_installed() -> bool {
    let mut command = Command::new(PEER);
    command.args(["util", "presolve", "--help"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
