//! Opens a store: the file, its format, and its scope.
//!
//! Formats only change forward. A step first adds tables and columns; those that it replaces stay until a later step
//! removes them. `oldest_writer` records which programs may still write: a program may write a store of a later format
//! than its own, as long as nothing that it needs was removed.

use super::{Sqlite, database};
use kilnyard_model::identity::{FarmId, Scope, YardId};
use kilnyard_model::target::Target;
use kilnyard_store::StoreError;
use rusqlite::TransactionBehavior::Immediate;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::path::Path;
use std::time::{Duration, Instant};

/// Each step migrates a store from the previous format to the next; the first one creates a store. Never change a
/// released step: stores that it made exist.
pub(super) const STEPS: [&str; 9] = [
    include_str!("schema.sql"),
    include_str!("imported.sql"),
    include_str!("measured.sql"),
    include_str!("remarks.sql"),
    include_str!("forced.sql"),
    include_str!("farm.sql"),
    include_str!("host.sql"),
    include_str!("provenance.sql"),
    include_str!("commits.sql"),
];
/// The format that this version writes.
pub(super) const FORMAT: i64 = STEPS.len() as i64;
/// The first format that records which programs may write it.
const HAS_OLDEST_WRITER: i64 = 6;
/// How long a writer waits for another process's decision.
const BUSY_WAIT: Duration = Duration::from_secs(20);
/// The pause between two tries where SQLite does not wait itself.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// A scope without rows, for reading a store that does not have the target yet.
const NO_SCOPE: i64 = 0;

impl Sqlite {
    /// Opens or creates the store of a yard that builds for this target. A store of an earlier format is migrated; if
    /// that format has no targets, all its rows become rows of this target.
    pub fn open(path: &Path, target: &Target) -> Result<Sqlite, StoreError> {
        let mut connection = Connection::open(path).map_err(|e| database(path, e))?;
        let began = Instant::now();
        let (number, scope) = loop {
            match prepare(&mut connection, path, target) {
                // Another process is creating the same store. SQLite does not wait itself for a change of the journal
                // mode.
                Err(StoreError::Busy { .. }) if began.elapsed() < BUSY_WAIT => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                other => break other?,
            }
        };
        Ok(Sqlite { connection, path: path.to_owned(), number, scope, epoch: 0 })
    }

    /// Opens a store that is read-only here, such as one on a file system mounted read-only. Fails if the last writer
    /// left a write-ahead log, since SQLite would have to write to recover it.
    pub fn open_to_read(path: &Path, target: &Target) -> Result<Sqlite, StoreError> {
        let mut journal = path.as_os_str().to_owned();
        journal.push("-wal");
        let is_settled = std::fs::metadata(&journal).map_or(true, |metadata| metadata.len() == 0);
        // SQLite reads an immutable file without locks and ignores the write-ahead log, so this requires an empty one.
        let text: String = path
            .to_string_lossy()
            .chars()
            .map(|c| match c {
                '%' | '?' | '#' => format!("%{:02x}", c as u32),
                c => c.to_string(),
            })
            .collect();
        let immutable = if is_settled { "&immutable=1" } else { "" };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(format!("file:{text}?mode=ro{immutable}"), flags)
            .map_err(|e| database(path, e))?;
        let found = check_format(&connection, path)?;
        if found < FORMAT {
            return Err(StoreError::TooOld { store: path.display().to_string(), found, known: FORMAT });
        }
        keep_statements(&connection).map_err(|e| database(path, e))?;
        let scope = scope(&connection, path, target)?;
        let number = scope_number(&connection, &scope).map_err(|e| database(path, e))?.unwrap_or(NO_SCOPE);
        Ok(Sqlite { connection, path: path.to_owned(), number, scope, epoch: 0 })
    }
}

/// How many prepared statements are cached.
const STATEMENTS_MAX: usize = 64;

/// Keeps prepared statements. Without the stability guarantee, SQLite compiles many again whenever a parameter changes,
/// in case another plan is better for the new value.
fn keep_statements(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Migrates the store to this program's format. Returns the scope with its number.
fn prepare(connection: &mut Connection, path: &Path, target: &Target) -> Result<(i64, Scope), StoreError> {
    let wrap = |error| database(path, error);
    connection.busy_timeout(BUSY_WAIT).map_err(wrap)?;
    keep_statements(connection).map_err(wrap)?;
    // A decision must survive a power loss once it is acted on.
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;")
        .map_err(wrap)?;
    // Readers do not wait for writers.
    if check_format(connection, path)? >= FORMAT {
        let scope = scope(connection, path, target)?;
        if let Some(number) = scope_number(connection, &scope).map_err(wrap)? {
            return Ok((number, scope));
        }
    }
    let transaction = connection.transaction_with_behavior(Immediate).map_err(wrap)?;
    let found = check_format(&transaction, path)?;
    for step in usize::try_from(found).ok().and_then(|done| STEPS.get(done..)).unwrap_or_default() {
        transaction.execute_batch(step).map_err(wrap)?;
    }
    if found < FORMAT {
        transaction.pragma_update(None, "user_version", FORMAT).map_err(wrap)?;
    }
    let scope = scope(&transaction, path, target)?;
    let number = match scope_number(&transaction, &scope).map_err(wrap)? {
        Some(number) => number,
        None => {
            let values = params![scope.farm.to_string(), scope.yard.to_string(), scope.target.to_string()];
            transaction
                .execute("INSERT INTO scope (farm, yard, target) VALUES (?1, ?2, ?3)", values)
                .map_err(wrap)?;
            transaction.last_insert_rowid()
        }
    };
    transaction.commit().map_err(wrap)?;
    Ok((number, scope))
}

/// The store's format. Fails if this program may not write it.
pub(super) fn check_format(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let wrap = |error| database(path, error);
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(wrap)?;
    if found < HAS_OLDEST_WRITER {
        return Ok(found);
    }
    let oldest: i64 =
        connection.query_row("SELECT oldest_writer FROM store", [], |row| row.get(0)).map_err(wrap)?;
    match oldest > FORMAT {
        true => Err(StoreError::TooNew { store: path.display().to_string(), found, oldest, known: FORMAT }),
        false => Ok(found),
    }
}

fn scope(connection: &Connection, path: &Path, target: &Target) -> Result<Scope, StoreError> {
    let (farm, yard) = connection
        .query_row("SELECT farm, yard FROM store", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })
        .map_err(|error| database(path, error))?;
    let unreadable = |error: kilnyard_model::random_id::NotAnId| StoreError::Unreadable {
        store: path.display().to_string(),
        what: "an id",
        reason: error.to_string(),
    };
    Ok(Scope {
        farm: FarmId::parse(&farm).map_err(unreadable)?,
        yard: YardId::parse(&yard).map_err(unreadable)?,
        target: target.clone(),
    })
}

fn scope_number(connection: &Connection, scope: &Scope) -> rusqlite::Result<Option<i64>> {
    let values = params![scope.farm.to_string(), scope.yard.to_string(), scope.target.to_string()];
    connection
        .query_row("SELECT number FROM scope WHERE farm = ?1 AND yard = ?2 AND target = ?3", values, |row| {
            row.get(0)
        })
        .optional()
}
