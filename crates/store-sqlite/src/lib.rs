//! The store of one machine: [`Sqlite`] implements [`Store`](kilnyard_store::Store) with one SQLite file.
//!
//! This is a separate crate, so that crates that need only the contract do not compile SQLite. A Cargo feature would
//! not suffice, since Cargo unifies the features of all crates that are built together.
//!
//! Every decision is one transaction, which is synced to the disk before the call returns. Readers in other processes
//! see the last whole decision (write-ahead log). Operations that only a file has are here and not in the contract:
//! opening, checking, backing up and restoring.
//!
//! Known downside: each decision syncs the disk, which takes a few milliseconds; a build has a few decisions.

mod sqlite;

pub use sqlite::{Sqlite, check_file, files};
