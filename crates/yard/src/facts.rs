//! Build data for programs and people: every answer is made here, whether a command prints it, the API sends it, or a
//! page shows it.
//!
//! - [`picture`]: all rows of a run in memory, which follow the events of the store.
//! - [`status`]: a run now; [`outlook`]: what waits, for what, and when it starts; [`live`]: what only the process of the
//!   run knows.
//! - [`failures`], [`compare`], [`why`], [`packages`], [`search`], [`logs`]: results and their reasons.
//! - [`edges`], [`impact`]: what depends on what.
//! - [`measure`]: times of many runs. [`export`]: results in the formats of other programs.
//!
//! Invariant: answers come from the store and the yard's files alone. They change nothing, need no lock, and can be asked for
//! during a run.

pub mod compare;
pub mod edges;
pub mod export;
pub mod failures;
pub mod impact;
pub mod live;
pub mod logs;
pub mod measure;
pub mod outlook;
pub mod packages;
pub mod picture;
pub mod search;
pub mod status;
pub mod why;
