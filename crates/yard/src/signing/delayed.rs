//! Publications that wait for a signer that is away: a note in the yard, for `status` and for `serve`, which publishes when it is back.

use crate::error::{Context, Kind, Result};
use crate::files::write_whole;
use crate::words::now_seconds;
use crate::yard::Yard;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;

/// The file of the note.
const NOTE: &str = "state/unpublished.json";

/// A publication that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delayed {
    /// Since when, in seconds since 1970.
    pub since_seconds: f64,
    /// Why the signer is away.
    pub reason: String,
}

/// Notes why a publication waits, or that none does.
pub(crate) fn note(yard: &Yard, reason: Option<&str>) -> Result<()> {
    let (path, failed) = (yard.path(NOTE), "note that the publication waits");
    let Some(reason) = reason else {
        return match fs_err::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context(Kind::Machine, failed),
            _ => Ok(()),
        };
    };
    let since_seconds = delayed(yard).map_or_else(now_seconds, |delayed| delayed.since_seconds);
    let text = serde_json::to_vec(&Delayed { since_seconds, reason: reason.to_owned() });
    write_whole(&path, &text.or_internal(failed)?)
}

/// The publication that waits, if one does.
pub fn delayed(yard: &Yard) -> Option<Delayed> {
    serde_json::from_slice(&fs_err::read(yard.path(NOTE)).ok()?).ok()
}
