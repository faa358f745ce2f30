//! The store of one machine: [`Sqlite`] keeps what [`Store`](kilnyard_store::Store) promises in one SQLite file.
//!
//! A crate of its own, so that nothing that only needs the contract compiles SQLite: a Cargo feature would not do,
//! since Cargo unites the features of all crates that are built together.
//!
//! Every decision is one transaction that is flushed before it returns; readers in other processes see the last whole
//! decision (write-ahead log). What only a file has is here and not in the contract: opening, checking, backing up and
//! restoring.
//!
//! Known downside: a decision costs a flush of the disk, some milliseconds; there are a few of them for each build.

mod sqlite;

pub use sqlite::{Sqlite, check_file, files};
