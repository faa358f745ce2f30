//! The CPU time that an author's tries have used within the last day. What a try used before it was removed still counts.

use super::super::open;
use crate::error::{Context, Kind, Result};
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use kilnyard_yard::tries::{self, Try};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A day, in seconds.
const DAY: f64 = 86_400.0;
/// An hour, in seconds.
const HOUR: f64 = 3600.0;

/// What a removed try had used.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Removed {
    /// The try: its name, and when it was made, in seconds since 1970.
    name: String,
    made_seconds: f64,
    author: String,
    /// When it was removed, in seconds since 1970.
    at_seconds: f64,
    /// The core-hours of the day before.
    core_hours: f64,
}

fn note(yard: &Yard) -> PathBuf {
    yard.home.join("state/tries-used.json")
}

/// What removed tries used.
fn removed(yard: &Yard, since_seconds: f64) -> Result<Vec<Removed>> {
    let path = note(yard);
    let failed = || format!("read {}, which has what removed tries used", path.display());
    let text = match fs_err::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.context(Kind::Machine, failed())?,
    };
    let mut all: Vec<Removed> = serde_json::from_slice(&text).context(Kind::Machine, failed())?;
    all.retain(|removed| removed.at_seconds >= since_seconds);
    Ok(all)
}

/// The core-hours of builds of all targets of a yard that began and ended at these times or later.
fn of_builds(yard: &Yard, began_from: f64, ended_from: f64) -> Result<f64> {
    let targets = yard.targets()?;
    let used = targets
        .iter()
        .map(|target| target.store()?.cpu_seconds_of(began_from, ended_from).map_err(store_error));
    Ok(used.sum::<Result<f64>>()? / HOUR)
}

/// The core-hours that a yard's builds have used within the last day.
///
/// # Errors
/// Its records cannot be read.
pub fn within_a_day(yard: &Yard) -> Result<f64> {
    of_builds(yard, 0.0, now_seconds() - DAY)
}

/// The core-hours of a try within the last day: a try begins with the records of its yard, which are not its own. One that is
/// being made or removed has no records.
fn of_try(known: &Try) -> Result<f64> {
    let is_there = |folder: &Path| folder.join("state/kilnyard.db").exists();
    let tried = open(&known.folder)?;
    match tried.targets()?.iter().all(|target| is_there(&target.folder)) {
        true => of_builds(&tried, known.note.made_seconds, now_seconds() - DAY),
        false => Ok(0.0),
    }
}

/// The core-hours that an author's tries have used within the last day.
///
/// # Errors
/// The tries cannot be listed, or the records of one cannot be read.
pub fn by(yard: &Yard, author: &str) -> Result<f64> {
    let own = tries::all(yard)?.into_iter().filter(|known| known.note.author == author);
    let there = own.map(|known| of_try(&known)).sum::<Result<f64>>()?;
    let gone = removed(yard, now_seconds() - DAY)?.into_iter().filter(|removed| removed.author == author);
    Ok(there + gone.map(|removed| removed.core_hours).sum::<f64>())
}

/// Notes what a try has used, before it is removed.
///
/// # Errors
/// The note cannot be written.
pub fn keep(yard: &Yard, known: &Try) -> Result<()> {
    // A try that cannot be read can be removed all the same.
    let core_hours = of_try(known).unwrap_or_else(|error| {
        say!("warning: what the try {} has used is unknown: {}", known.name, error.one_line());
        0.0
    });
    if core_hours <= 0.0 {
        return Ok(());
    }
    let failed = "note what the try has used";
    // Several may be removed at once.
    let lock =
        fs_err::File::create(yard.home.join("state/tries-used.lock")).context(Kind::Machine, failed)?;
    lock.into_parts().0.lock().context(Kind::Machine, failed)?;
    let mut all = removed(yard, now_seconds() - DAY)?;
    let (name, made_seconds) = (known.name.clone(), known.note.made_seconds);
    // A removal that was killed is repeated.
    all.retain(|other| (&other.name, other.made_seconds) != (&name, made_seconds));
    let author = known.note.author.clone();
    all.push(Removed { name, made_seconds, author, at_seconds: now_seconds(), core_hours });
    let text = serde_json::to_string(&all).or_internal(failed)?;
    kilnyard_farm::write_private(&note(yard), &text).context(Kind::Machine, failed)
}
