//! Errors of a store, independent of its database.

use crate::{Holder, Number};

/// The error of the database or the system.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation of a store failed. `store` names the store in messages: a path, or an address without a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full. Nothing was written; the same call may work later.
    #[error("the store {store}: {source}")]
    Full {
        /// The path or address of the store.
        store: String,
        /// The error of the database or the system.
        source: Cause,
    },
    /// The store is read-only here.
    #[error("the store {store}: {source}")]
    ReadOnly {
        /// The path or address of the store.
        store: String,
        /// The error of the database or the system.
        source: Cause,
    },
    /// Another process locked the store for longer than a writer waits. The same call may work later.
    #[error("the store {store}: {source}")]
    Busy {
        /// The path or address of the store.
        store: String,
        /// The error of the database or the system.
        source: Cause,
    },
    /// The store is damaged, and must be restored from a backup.
    #[error("the store {store} is damaged: {reason}")]
    Damaged {
        /// The path or address of the store.
        store: String,
        /// The problem, as a clause.
        reason: String,
    },
    /// Data in the store cannot be decoded, so the store must be restored from a backup.
    #[error("the store {store} contains {what} that cannot be read: {reason}")]
    Unreadable {
        /// The path or address of the store.
        store: String,
        /// The kind of data, with an article.
        what: &'static str,
        /// The problem, as a clause.
        reason: String,
    },
    /// A newer version of Kilnyard wrote the store, in a format that this version must not write.
    #[error(
        "the store {store} has format {found}, which requires a program of format {oldest} or later; this version of \
         Kilnyard supports formats up to {known}"
    )]
    TooNew {
        /// The path or address of the store.
        store: String,
        /// The format of the store.
        found: i64,
        /// The oldest format whose programs may write the store.
        oldest: i64,
        /// The latest format that this version supports.
        known: i64,
    },
    /// An older version of Kilnyard wrote the store, which cannot be migrated here because it is read-only.
    #[error(
        "the store {store} has format {found}; run a command that may write it first, to migrate it to format {known}"
    )]
    TooOld {
        /// The path or address of the store.
        store: String,
        /// The format of the store.
        found: i64,
        /// The format that this version reads.
        known: i64,
    },
    /// Another process has become the leader, or this one has never been it. Nothing was written.
    #[error(
        "another process is the leader of the store {store}: its epoch is {latest}, and that of this process is {own}"
    )]
    Fenced {
        /// The path or address of the store.
        store: String,
        /// The epoch of this connection; 0 if it has never been the leader.
        own: Number,
        /// The latest epoch.
        latest: Number,
    },
    /// Another process leads, and is alive.
    #[error("{holder} leads the store {store}: it was there {silent_seconds:.0} s ago")]
    Led {
        /// The path or address of the store.
        store: String,
        /// The leader.
        holder: Holder,
        /// The number of seconds since it was last there.
        silent_seconds: f64,
    },
    /// A copy of the store has taken its place, such as a replica of a database. Its latest writes may be missing there.
    /// Nothing was written. The leader has to lead again, and to read its state.
    #[error("a copy of the store {store} has taken its place, and may lack its latest records")]
    Replaced {
        /// The path or address of the store.
        store: String,
    },
    /// A build has a number or a random id that was used before. Nothing was written.
    #[error("the store {store} already has {what}")]
    Used {
        /// The path or address of the store.
        store: String,
        /// The build number or attempt that was used before.
        what: String,
    },
    /// Any other error of the database or the system.
    #[error("the store {store}: {source}")]
    Other {
        /// The path or address of the store.
        store: String,
        /// The error of the database or the system.
        source: Cause,
    },
}

impl StoreError {
    /// Whether the store is read-only here.
    pub fn is_read_only(&self) -> bool {
        matches!(self, StoreError::ReadOnly { .. })
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, StoreError::Full { .. })
    }

    /// Whether the store must be restored from a backup.
    pub fn is_damaged(&self) -> bool {
        matches!(self, StoreError::Damaged { .. } | StoreError::Unreadable { .. })
    }
}
