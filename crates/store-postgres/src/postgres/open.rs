//! Opens a store: the database, its format, and its scope.

use super::Postgres;
use super::link::{Failed, Link, sql};
use crate::Address;
use kilnyard_model::identity::{FarmId, Scope, YardId};
use kilnyard_model::target::{Target, TargetError};
use kilnyard_store::StoreError;
use std::cell::{Cell, RefCell};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

/// Each step migrates a store from the previous format to the next; the first one creates a store. Never change a
/// released step: stores that it made exist.
const STEPS: [&str; 4] = [
    include_str!("schema.sql"),
    include_str!("leader.sql"),
    include_str!("events.sql"),
    include_str!("commits.sql"),
];
/// The format that this version writes.
const FORMAT: i64 = STEPS.len() as i64;
/// The target of a store without one.
const NO_TARGET: &str = "none/none/none/none";
/// The oldest server that is supported: PostgreSQL 15.
const SERVER_MIN: i64 = 150_000;
/// The process that creates or migrates a store in a database has this lock until its transaction ends. The letters of the
/// name.
const LOCK: i64 = 0x6b69_6c6e;

/// The row of the store, as far as it decides whether this program can use it.
struct Found {
    format: i64,
    oldest_writer: i64,
    farm: String,
    yard: String,
}

impl Postgres {
    /// Opens the store of a yard that builds for this target. It is created if the database has none, and migrated if it
    /// has an earlier format.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if the database cannot be reached for a while; [`StoreError::TooNew`] if a later version of
    /// this program has migrated it.
    pub fn open(address: &Address, target: &Target) -> Result<Postgres, StoreError> {
        Postgres::open_of(address, Some(target))
    }

    /// Removes the store with all records, and everything else that is in its schema.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if the database cannot be reached for a while.
    pub fn remove(address: &Address) -> Result<(), StoreError> {
        let wrap = |failed: Failed| failed.of(address);
        Link::open(address).map_err(wrap)?.remove_schema().map_err(wrap)
    }

    /// Opens the store without a target: it has no rows.
    pub(super) fn open_without_rows(address: &Address) -> Result<Postgres, StoreError> {
        Postgres::open_of(address, None)
    }

    fn open_of(address: &Address, target: Option<&Target>) -> Result<Postgres, StoreError> {
        let wrap = |failed: Failed| failed.of(address);
        let other =
            |message: String| StoreError::Other { store: address.to_string(), source: message.into() };
        let link = Link::open(address).map_err(wrap)?;
        let server = link.one(sql!("SELECT current_setting('server_version_num')::int8")).map_err(wrap)?;
        let server: i64 = server.first().map_or(0, |row| row.get(0));
        if server < SERVER_MIN {
            let version = server / 10_000;
            return Err(other(format!("it is PostgreSQL {version}; version 15 or later is required")));
        }
        let found = match found(&link).map_err(wrap)? {
            Some(found) if found.format >= FORMAT => found,
            _ => migrate(&link).map_err(wrap)?.ok_or_else(|| other("its row is missing".to_owned()))?,
        };
        if found.oldest_writer > FORMAT {
            let (store, oldest) = (address.to_string(), found.oldest_writer);
            return Err(StoreError::TooNew { store, found: found.format, oldest, known: FORMAT });
        }
        let unreadable = |error: kilnyard_model::random_id::NotAnId| StoreError::Unreadable {
            store: address.to_string(),
            what: "an id",
            reason: error.to_string(),
        };
        let scope = Scope {
            farm: FarmId::parse(&found.farm).map_err(unreadable)?,
            yard: YardId::parse(&found.yard).map_err(unreadable)?,
            target: match target {
                Some(target) => target.clone(),
                None => NO_TARGET.parse().map_err(|error: TargetError| other(error.to_string()))?,
            },
        };
        let number = match target {
            Some(target) => number_of(&link, &found, target).map_err(wrap)?,
            None => Some(0),
        };
        let number = number.ok_or_else(|| other("its scope is missing".to_owned()))?;
        let (link, is_in_snapshot) = (RefCell::new(Some(link)), Cell::new(false));
        Ok(Postgres {
            address: address.clone(),
            link,
            number,
            scope,
            epoch: 0,
            batches: 0,
            is_in_snapshot,
            timeline: 0,
            timeline_sql: Cell::new(None),
            waiting: RefCell::default(),
        })
    }
}

/// The row of the store; none if there is no store yet.
fn found(link: &Link) -> Result<Option<Found>, Failed> {
    let rows = link.one(sql!("SELECT format, oldest_writer, farm, yard FROM kilnyard.store"));
    let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    match rows {
        Err(Failed::Database(error)) if error.code().is_some_and(|code| missing.contains(code)) => Ok(None),
        rows => Ok(rows?.first().map(|row: &Row| Found {
            format: row.get(0),
            oldest_writer: row.get(1),
            farm: row.get(2),
            yard: row.get(3),
        })),
    }
}

/// Creates the store, or migrates it to this program's format.
fn migrate(link: &Link) -> Result<Option<Found>, Failed> {
    link.batch("BEGIN")?;
    let migrated = migrate_in_transaction(link);
    link.batch(if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    migrated
}

fn migrate_in_transaction(link: &Link) -> Result<Option<Found>, Failed> {
    link.one(sql!("SELECT pg_advisory_xact_lock($1)", LOCK))?;
    // Another process may have done it. A statement that fails would end the transaction.
    let exists = link.one(sql!(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'store')",
        link.schema_name()
    ))?;
    let exists = exists.first().is_some_and(|row| row.get(0));
    let before = if exists { found(link)?.map_or(0, |found| found.format) } else { 0 };
    for step in usize::try_from(before).ok().and_then(|done| STEPS.get(done..)).unwrap_or_default() {
        link.batch(step)?;
    }
    let first = "INSERT INTO kilnyard.store
                   (only_row, farm, yard, format, oldest_writer, epoch, builds, runs, events, batch)
                 SELECT 1, replace(gen_random_uuid()::text, '-', ''), replace(gen_random_uuid()::text, '-', ''),
                        $1, 1, 0, 0, 0, 0, ''
                 WHERE NOT EXISTS (SELECT 1 FROM kilnyard.store)";
    link.one(sql!(first, FORMAT))?;
    link.one(sql!("UPDATE kilnyard.store SET format = $1 WHERE format < $1", FORMAT))?;
    found(link)
}

/// The number of the scope, which is added if it is new.
fn number_of(link: &Link, found: &Found, target: &Target) -> Result<Option<i64>, Failed> {
    let target = target.to_string();
    let add = "INSERT INTO kilnyard.scope (farm, yard, target) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    let find = "SELECT number FROM kilnyard.scope WHERE farm = $1 AND yard = $2 AND target = $3";
    let known = link.one(sql!(find, &found.farm, &found.yard, &target))?;
    if let Some(row) = known.first() {
        return Ok(Some(row.get(0)));
    }
    link.one(sql!(add, &found.farm, &found.yard, &target))?;
    Ok(link.one(sql!(find, &found.farm, &found.yard, &target))?.first().map(|row| row.get(0)))
}
