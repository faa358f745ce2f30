//! Checks the whole release, compared with libsolv's `installcheck` if that is installed.

use super::convert::{self, Converted};
use crate::Trial;
use crate::child::{self, Usage};
use crate::error::{Context, Kind, Result};
use crate::figures::{Report, Series, Unit, ratios};
use crate::scratch::Scratch;
use crate::yard::Yard;
use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_family::debian::scan::Index;
use kilnyard_family::debian::{Debian, TITLE};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Maximum number of differing sources named.
const NAMED_MAX: usize = 20;

/// The targets.
const CPU_RATIO_MAX: f64 = 0.5;
const MEMORY_BYTES_MAX: f64 = 300e6;

/// The query for `installcheck`: the binary packages and the sources of a release, which is its usual use, or
/// only the sources.
#[derive(Clone, Copy, Debug)]
enum Asked {
    All,
    Sources,
}

/// The input of `installcheck`.
struct Peer {
    architecture: String,
    converted: Converted,
    sources: PathBuf,
    packages: Vec<PathBuf>,
}

#[derive(Default)]
struct Side {
    usages: Vec<Usage>,
    unbuildable: BTreeSet<String>,
}

/// Runs the benchmark in a scanned yard of Debian.
pub fn measure(yard: &Yard, trial: &Trial<'_>) -> Result<Report> {
    let pairs = trial.pairs;
    let scratch = Scratch::within(trial.temporary, None)?;
    let peer = if is_installed() { Some(Peer::prepare(yard, &scratch)?) } else { None };
    let (mut ours, mut theirs, mut sources_alone) = (Side::default(), Side::default(), Side::default());
    let mut checked = Value::Null;
    let output = scratch.path("verdicts");
    for pair in 1..=pairs {
        let command = child::this_program(&yard.folder, &["check", "--json"]);
        ours.usages.push(child::measure(command, Some(&output), &[0])?);
        let text = fs_err::read_to_string(&output).or_internal("read the verdicts")?;
        let value: Value = serde_json::from_str(&text).or_internal("read the verdicts")?;
        let unbuildable = value["unbuildable"].as_array().into_iter().flatten();
        ours.unbuildable = unbuildable.filter_map(|one| one["package"].as_str()).map(str::to_owned).collect();
        checked = value["checked"].clone();
        if let Some(peer) = &peer {
            // The exit code is 1 if any package cannot be installed.
            theirs.usages.push(child::measure(peer.command(Asked::All), Some(&output), &[0, 1])?);
            let usage = child::measure(peer.command(Asked::Sources), Some(&output), &[0, 1])?;
            sources_alone.usages.push(usage);
            let text = fs_err::read(&output).or_internal("read the verdicts of installcheck")?;
            theirs.unbuildable = peer.converted.unbuildable(&String::from_utf8_lossy(&text));
        }
        trial.say(format_args!("pair {pair} of {pairs} measured"));
    }
    Ok(make_report(&ours, peer.as_ref().map(|peer| (peer, &theirs, &sources_alone)), checked))
}

fn make_report(ours: &Side, peer: Option<(&Peer, &Side, &Side)>, checked: Value) -> Report {
    let cpu = |side: &Side| side.usages.iter().map(|u| u.cpu_seconds).collect::<Vec<_>>();
    let wall = |side: &Side| side.usages.iter().map(|u| u.wall_seconds).collect::<Vec<_>>();
    let memory = |side: &Side| side.usages.iter().map(|u| u.memory_peak_bytes as f64).collect::<Vec<_>>();
    let mut series = vec![
        Series::new("cpu_seconds", "kilnyard check, CPU", Unit::Seconds, cpu(ours)),
        Series::new("wall_seconds", "kilnyard check, wall", Unit::Seconds, wall(ours)),
        Series::new("memory_peak_bytes", "kilnyard check, peak memory", Unit::Bytes, memory(ours)),
    ];
    let mut facts = Map::new();
    facts.insert("checked".to_owned(), checked.clone());
    facts.insert("unbuildable".to_owned(), json!(ours.unbuildable));
    let mut notes = vec![format!("{checked} sources checked, {} cannot be built", ours.unbuildable.len())];
    let target = format!(
        "the same verdicts as installcheck, at most {CPU_RATIO_MAX} of its CPU time on the same files, at most 300 MB"
    );
    let mut report = Report {
        name: "check",
        series: Vec::new(),
        facts: Map::new(),
        notes: Vec::new(),
        target,
        is_met: None,
    };
    if let Some((peer, theirs, sources_alone)) = peer {
        let ratio = Series::new(
            "cpu_ratio",
            "CPU, kilnyard / installcheck",
            Unit::Ratio,
            ratios(&cpu(ours), &cpu(theirs)),
        );
        let ratio_of_sources = Series::new(
            "cpu_ratio_sources_alone",
            "CPU, kilnyard / installcheck of only the sources",
            Unit::Ratio,
            ratios(&cpu(ours), &cpu(sources_alone)),
        );
        let is_small = memory(ours).into_iter().all(|bytes| bytes <= MEMORY_BYTES_MAX);
        let only_ours: Vec<&String> = ours.unbuildable.difference(&theirs.unbuildable).collect();
        let only_theirs: Vec<&String> = theirs.unbuildable.difference(&ours.unbuildable).collect();
        let is_same = only_ours.is_empty() && only_theirs.is_empty();
        let is_same_number = checked == json!(peer.converted.len());
        notes.push(match is_same {
            true => {
                format!("installcheck has the same verdicts on the same {} sources", peer.converted.len())
            }
            false => "the verdicts differ".to_owned(),
        });
        for (who, names) in [("kilnyard", &only_ours), ("installcheck", &only_theirs)] {
            let named: Vec<&str> = names.iter().take(NAMED_MAX).map(|name| name.as_str()).collect();
            if !named.is_empty() {
                notes.push(format!("only {who} rejects {}: {}", names.len(), named.join(", ")));
            }
        }
        facts.insert("only_kilnyard".to_owned(), json!(only_ours));
        facts.insert("only_installcheck".to_owned(), json!(only_theirs));
        report.is_met = Some(is_same && is_same_number && is_small && ratio.median() <= CPU_RATIO_MAX);
        series.extend([
            Series::new("installcheck_cpu_seconds", "installcheck, CPU", Unit::Seconds, cpu(theirs)),
            Series::new("installcheck_wall_seconds", "installcheck, wall", Unit::Seconds, wall(theirs)),
            Series::new(
                "installcheck_memory_peak_bytes",
                "installcheck, peak memory",
                Unit::Bytes,
                memory(theirs),
            ),
            ratio,
            ratio_of_sources,
        ]);
    } else {
        notes.push(
            "installcheck is not installed, so there is no comparison: apt-get install libsolv-tools"
                .to_owned(),
        );
    }
    Report { series, facts, notes, ..report }
}

fn is_installed() -> bool {
    let mut command = Command::new("installcheck");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

impl Peer {
    /// Writes the input files. `installcheck` detects their format by the word `Packages` in the name.
    fn prepare(yard: &Yard, scratch: &Scratch) -> Result<Peer> {
        let failed = "write the index for installcheck";
        let texts = Index::open(yard)?.texts(yard)?;
        let mut packages = Vec::new();
        for (number, text) in texts.packages.iter().enumerate() {
            let path = scratch.path(&format!("{number}-Packages"));
            fs_err::write(&path, text).context(Kind::Machine, failed)?;
            packages.push(path);
        }
        let mut sources = Sources::default();
        for text in texts.sources {
            sources.add(text.into()).context(Kind::Machine, failed)?;
        }
        let debian: &Debian = yard.config.family.require(TITLE)?;
        let context = debian.settings().context();
        let converted = convert::convert(&sources, &context, Parts::All);
        let path = scratch.path("sources-Packages");
        fs_err::write(&path, &converted.text).context(Kind::Machine, failed)?;
        Ok(Peer { architecture: context.architecture, converted, sources: path, packages })
    }

    fn command(&self, asked: Asked) -> Command {
        let mut command = Command::new("installcheck");
        command.arg(&self.architecture).arg(&self.sources);
        if let Asked::Sources = asked {
            command.arg("--nocheck");
        }
        command.args(&self.packages);
        command
    }
}
