//! Decides which directories a rescan has to query again, if nothing changed and if a few Makefiles changed.

use super::Part;
use super::synthetic::SyntheticTree;
use crate::Trial;
use crate::check_interrupt;
use crate::error::{Context, Kind, Result};
use crate::figures::{Series, Unit};
use crate::scratch::Scratch;
use crate::words;
use kilnyard_ecosystem::pkgsrc::ScanSettings;
use kilnyard_ecosystem::pkgsrc::kept::{Current, Journal, KeptScan};
use serde_json::{Map, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Instant, SystemTime};

/// Number of changed directories.
const CHANGED: usize = 20;
/// Maximum wall time of the decision.
const WALL_SECONDS_MAX: f64 = 2.0;
/// Stands for the facts other than the tree that answers depend on, which do not matter here.
const FACTS: &str = "benchmark";

pub fn measure(scratch: &Scratch, tree: &SyntheticTree, trial: &Trial<'_>) -> Result<Part> {
    let pairs = trial.pairs;
    let kept = scratch.path("kept");
    let failed = "store the answers of the scan";
    // Accept all files as old enough: they already exist.
    let began_nanoseconds = i128::MAX;
    let (places, none, nothing) = (tree.places(), ScanSettings::default(), Current::default());
    let mut journal = Journal::begin(&kept, &places, FACTS, &none, &nothing, began_nanoseconds)
        .context(Kind::Machine, failed)?;
    for (location, stanzas) in &tree.answers {
        journal.add(location, stanzas).context(Kind::Machine, failed)?;
    }
    drop(journal);
    // If a directory does not list the files that it reads, its answer cannot be reused, and it is queried each
    // time.
    let silent: BTreeSet<&String> =
        tree.answers.keys().filter(|location| !tree.listing.contains(*location)).collect();
    let each = (tree.unshared.len() / CHANGED).max(1);
    let changed: Vec<&String> = tree.unshared.iter().step_by(each).take(CHANGED).collect();
    let with_changed: BTreeSet<&String> = silent.iter().chain(&changed).copied().collect();
    let (mut unchanged_wall, mut changed_wall) = (Vec::new(), Vec::new());
    let mut is_correct = true;
    let mut asked_counts = (0, 0);
    for pair in 1..=pairs {
        check_interrupt()?;
        let (seconds, asked) = decide(&kept, tree)?;
        unchanged_wall.push(seconds);
        asked_counts.0 = asked.len();
        is_correct &= asked == silent;
        let times = change(tree, &changed)?;
        let (seconds, asked) = decide(&kept, tree)?;
        changed_wall.push(seconds);
        asked_counts.1 = asked.len();
        is_correct &= asked == with_changed;
        change_back(tree, &changed, &times)?;
        trial.say(format_args!("rescan: pair {pair} of {pairs} measured"));
    }
    let series = vec![
        Series::new(
            "rescan_unchanged_wall_seconds",
            "rescan, nothing changed, wall",
            Unit::Seconds,
            unchanged_wall,
        ),
        Series::new(
            "rescan_changed_wall_seconds",
            format!("rescan, {} changed, wall", changed.len()),
            Unit::Seconds,
            changed_wall,
        ),
    ];
    let mut facts = Map::new();
    facts.insert("directories".to_owned(), json!(tree.answers.len()));
    facts.insert("silent_directories".to_owned(), json!(silent.len()));
    facts.insert("files".to_owned(), json!(tree.files));
    facts.insert("changed".to_owned(), json!(changed.len()));
    facts.insert("asked_unchanged".to_owned(), json!(asked_counts.0));
    facts.insert("asked_changed".to_owned(), json!(asked_counts.1));
    facts.insert("is_correct".to_owned(), json!(is_correct));
    let notes = vec![format!(
        "{} directories, {}: {} to query if unchanged, {} after {} Makefiles changed: {}",
        tree.answers.len(),
        words::count(tree.files as u64, "file"),
        asked_counts.0,
        asked_counts.1,
        changed.len(),
        if is_correct { "the right ones" } else { "NOT the right ones" },
    )];
    let is_fast = series.iter().all(|series| series.median() <= WALL_SECONDS_MAX);
    let target = format!("only changed directories, decided in at most {WALL_SECONDS_MAX} s of wall time");
    Ok(Part { name: "rescan", series, facts, notes, target, is_met: Some(is_correct && is_fast) })
}

/// Returns the time of the decision and the directories that a rescan would query.
fn decide<'a>(kept: &Path, tree: &'a SyntheticTree) -> Result<(f64, BTreeSet<&'a String>)> {
    let places = tree.places();
    let started = Instant::now();
    let kept = KeptScan::read(kept, FACTS).context(Kind::Machine, "read the stored answers")?;
    let current = kept.current(&places, &ScanSettings::default());
    let seconds = started.elapsed().as_secs_f64();
    Ok((seconds, tree.answers.keys().filter(|location| !current.stanzas.contains_key(*location)).collect()))
}

/// Changes the Makefiles of these directories. Returns their previous modification times.
fn change(tree: &SyntheticTree, locations: &[&String]) -> Result<Vec<SystemTime>> {
    let failed = "change a Makefile";
    let one = |location: &&String| {
        let path = tree.folder.join(location).join("Makefile");
        let time = fs_err::metadata(&path).and_then(|metadata| metadata.modified());
        fs_err::write(&path, "# changed\n").and(time).context(Kind::Machine, failed)
    };
    locations.iter().map(one).collect()
}

/// Restores the Makefiles and their modification times.
fn change_back(tree: &SyntheticTree, locations: &[&String], times: &[SystemTime]) -> Result<()> {
    let failed = "change a Makefile back";
    for (location, time) in locations.iter().zip(times) {
        let path = tree.folder.join(location).join("Makefile");
        let file = std::fs::File::create(&path).context(Kind::Machine, failed)?;
        file.set_modified(*time).context(Kind::Machine, failed)?;
    }
    Ok(())
}
