//! Commits of git that sources of a run are from, and those between two runs.

use crate::error::Result;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_store::{RunCommit, RunRow, Store};
use std::fmt::Write;

pub use kilnyard_schema::compare::Change;

/// How much of a commit's id is shown.
const ID_SHOWN: usize = 12;

/// One line about a change.
fn line(change: &Change) -> String {
    let id: String = change.commit.chars().take(ID_SHOWN).collect();
    let subject = change.lines.first().map_or("", String::as_str);
    format!("{id} {subject} ({}, {})", change.author, words::date(change.date_seconds))
}

/// Lines about changes, of which `most` are shown, each after `lead`.
pub fn lines(changes: &[Change], most: usize, lead: &str) -> String {
    let mut text = String::new();
    for change in changes.iter().take(most) {
        let _ = writeln!(text, "{lead}{}", line(change));
    }
    if let Some(more) = changes.len().checked_sub(most).filter(|more| *more > 0) {
        let _ = writeln!(text, "{lead}and {}", words::count(more as u64, "more commit"));
    }
    text
}

/// The run that a run's commits are compared with: the last one before it with commits.
///
/// # Errors
/// The store cannot be read.
pub fn run_before(store: &dyn Store, run: &RunRow) -> Result<Option<RunRow>> {
    let runs = store.runs().map_err(store_error)?;
    Ok(runs.into_iter().find(|other| other.number < run.number && !other.commits.is_empty()))
}

/// The commits between two runs, the newest first; those that concern one package, if it is named. What cannot be read any more is left
/// out: it explains a run, and nothing depends on it.
pub fn between(
    yard: &Yard,
    earlier: &[RunCommit],
    later: &[RunCommit],
    package: Option<&str>,
) -> Vec<Change> {
    let is_same = earlier == later || earlier.is_empty();
    let changes = (!is_same).then(|| yard.config.family.changes(yard, earlier, later, package));
    changes.and_then(Result::ok).unwrap_or_default()
}
