//! Why a store could not do what was asked, in terms that every store has.

use crate::Number;

/// What the database or the system reported.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The store could not do what was asked. `store` names it for people: a path, or an address without a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room. Nothing was written; the same call may work later.
    #[error("the store {store}: {source}")]
    Full {
        /// Which store.
        store: String,
        /// What was reported.
        source: Cause,
    },
    /// The store can be read here and not written.
    #[error("the store {store}: {source}")]
    ReadOnly {
        /// Which store.
        store: String,
        /// What was reported.
        source: Cause,
    },
    /// Another process kept the store locked for longer than a writer waits. The same call may work later.
    #[error("the store {store}: {source}")]
    Busy {
        /// Which store.
        store: String,
        /// What was reported.
        source: Cause,
    },
    /// The store is damaged: only a backup in its place helps.
    #[error("the store {store} is damaged: {reason}")]
    Damaged {
        /// Which store.
        store: String,
        /// What was found.
        reason: String,
    },
    /// Something in the store cannot be read: only a backup in its place helps.
    #[error("the store {store} holds {what} that cannot be read: {reason}")]
    Unreadable {
        /// Which store.
        store: String,
        /// Its kind, with an article.
        what: &'static str,
        /// What was found.
        reason: String,
    },
    /// A newer version of Kilnyard wrote the store, in a way that this one must not write.
    #[error(
        "the store {store} is of format {found}, which programs of format {oldest} and later may write, and this version of \
         Kilnyard knows {known} at most"
    )]
    TooNew {
        /// Which store.
        store: String,
        /// Its format.
        found: i64,
        /// The oldest format whose programs may write it.
        oldest: i64,
        /// The latest format that this version knows.
        known: i64,
    },
    /// An older version of Kilnyard wrote the store, and it cannot be migrated where it cannot be written.
    #[error(
        "the store {store} is of format {found}, and a command that may write it must bring it to format {known} first"
    )]
    TooOld {
        /// Which store.
        store: String,
        /// Its format.
        found: i64,
        /// The format that this version reads.
        known: i64,
    },
    /// Another process has taken the lead, or this one never did: nothing was written.
    #[error(
        "the store {store} is led by another process: its lead is number {latest}, and that of this one {own}"
    )]
    Fenced {
        /// Which store.
        store: String,
        /// The number of this connection's lead; 0 where it never had one.
        own: Number,
        /// The number of the latest lead.
        latest: Number,
    },
    /// A build has a number or a random id that was used before: nothing was written.
    #[error("the store {store} has had {what} before")]
    Used {
        /// Which store.
        store: String,
        /// What was used.
        what: String,
    },
    /// Anything else.
    #[error("the store {store}: {source}")]
    Other {
        /// Which store.
        store: String,
        /// What was reported.
        source: Cause,
    },
}

impl StoreError {
    /// Whether the store can be read here and not written.
    pub fn is_read_only(&self) -> bool {
        matches!(self, StoreError::ReadOnly { .. })
    }

    /// Whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, StoreError::Full { .. })
    }

    /// Whether what the store holds cannot be read any more: only a backup in its place helps.
    pub fn is_damaged(&self) -> bool {
        matches!(self, StoreError::Damaged { .. } | StoreError::Unreadable { .. })
    }
}
