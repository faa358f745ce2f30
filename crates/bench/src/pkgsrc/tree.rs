//! Benchmarks with the scan of a pkgsrc tree: resolving it, compared with bob if that is installed; the time to the
//! first build; deciding what to rescan; a look-up in an index.
//!
//! Only the scan of the tree is needed: where files of the tree are required, empty ones are created.

mod first_build;
mod look_up;
mod rescan;
mod resolving;
mod synthetic;

use crate::Trial;
use crate::error::{Context, Kind, Result};
use crate::figures::{Report, Series};
use crate::scratch::Scratch;
use crate::{unpack, words};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use serde_json::{Map, Value, json};
use std::path::Path;
use synthetic::SyntheticTree;

/// The result of one part of this benchmark.
struct Part {
    /// The part's name in JSON.
    name: &'static str,
    series: Vec<Series>,
    facts: Map<String, Value>,
    notes: Vec<String>,
    target: String,
    is_met: Option<bool>,
}

/// Runs the benchmark with the scan in this file.
pub fn measure(scan: &Path, trial: &Trial<'_>) -> Result<Report> {
    let failed = format!("read {}", scan.display());
    let text = unpack::read(scan).context(Kind::Usage, &failed)?;
    let file = ScanFile::parse(&text).context(Kind::Usage, &failed)?;
    let packages = file.stanzas.len();
    let scratch = Scratch::within(trial.temporary, None)?;
    let plain = scratch.path("scan");
    fs_err::write(&plain, &text).context(Kind::Machine, "unpack the scan")?;
    let mut parts = vec![resolving::measure(&scratch, &plain, trial)?];
    trial.say(format_args!("creating the files that the scan names"));
    let tree = SyntheticTree::make(&file, scratch.path("tree"))?;
    parts.push(rescan::measure(&scratch, &tree, trial)?);
    drop(file);
    parts.push(first_build::measure(&scratch, text, &tree, trial)?);
    parts.push(look_up::measure(&scratch, trial)?);
    Ok(make_report(packages, parts))
}

fn make_report(packages: usize, parts: Vec<Part>) -> Report {
    let mut report = Report {
        name: "tree",
        series: Vec::new(),
        facts: Map::from_iter([("packages".to_owned(), json!(packages))]),
        notes: vec![format!("a scan of {}", words::count(packages as u64, "package"))],
        target: "all of these".to_owned(),
        is_met: all_met(parts.iter().map(|part| part.is_met)),
    };
    for mut part in parts {
        part.facts.insert("target".to_owned(), json!(part.target));
        part.facts.insert("is_met".to_owned(), json!(part.is_met));
        report.facts.insert(part.name.to_owned(), Value::Object(part.facts));
        report.series.extend(part.series);
        report.notes.extend(part.notes);
        let verdict = match part.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "unknown",
        };
        report.notes.push(format!("{}: {}: {verdict}", part.name, part.target));
    }
    report
}

/// Whether all targets were met. False if any was missed, otherwise unknown if any is unknown.
fn all_met(all: impl Iterator<Item = Option<bool>> + Clone) -> Option<bool> {
    if all.clone().any(|is_met| is_met == Some(false)) {
        Some(false)
    } else {
        all.collect::<Option<Vec<_>>>().map(|_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_decides_and_an_unknown_one_leaves_it_open() {
        assert_eq!(all_met([Some(true), Some(true)].into_iter()), Some(true));
        assert_eq!(all_met([Some(true), None].into_iter()), None);
        assert_eq!(all_met([None, Some(false), Some(true)].into_iter()), Some(false));
    }
}
