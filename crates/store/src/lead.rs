//! Who leads a store.

use crate::Number;
use serde::{Deserialize, Serialize};
use std::fmt;

/// For how long the leader of a store may be silent before another process can take its place, in seconds, by the clock
/// of the store.
pub const SILENT_SECONDS_MAX: f64 = 10.0;

/// How often a leader shows that it is there, in seconds. Four signs may be lost before another process can take over.
pub const RENEW_SECONDS: f64 = 2.0;

/// A process that leads a store, or can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Distinguishes the folders that processes work in, on any machine. A process takes the place of an earlier one
    /// with the same id at once: the lock of the folder ensures that the earlier one has exited.
    pub id: String,
    /// The machine and the folder, for messages.
    pub name: String,
}

impl Holder {
    /// A holder whose name is its id.
    pub fn named(name: &str) -> Holder {
        Holder { id: name.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// What a new leader gets from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The epoch. It fences all earlier ones.
    pub epoch: Number,
    /// The first unused build number. Only the leader uses numbers.
    pub next_build: Number,
}

/// The leader, as its store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Leader {
    /// Its epoch.
    pub epoch: Number,
    /// The process.
    pub holder: Holder,
    /// The number of seconds since the leader last showed that it is there, by the clock of the store.
    pub silent_seconds: f64,
    /// Whether it has given up the leadership.
    pub has_left: bool,
}

impl Leader {
    /// Whether another process can take its place.
    pub fn is_gone(&self) -> bool {
        self.has_left || self.silent_seconds > SILENT_SECONDS_MAX
    }
}
