//! The partitions of the table of events: one for each run.
//!
//! A run begins with the next multiple of [`SPAN`], so that the events from its beginning to that of the next run have a
//! range of numbers, and a partition, of their own. `event_12` has the numbers from 12 spans to 13 spans. `event_0` has what
//! was written before the first run, and what a store of an earlier format had. The numbers are the key of the table:
//! they are unique in all partitions, and readers that follow events scan the index of the last one only.
//!
//! No lock of a reader delays a run. A partition is attached, which readers and writers do not wait for. Dropping one waits
//! for all transactions that read events, so it is tried for [`DROP_WAIT_MS`]: if a reader takes longer, the rows are
//! deleted, and the empty partition is dropped at the end of a later run. All of this is in the transaction of the
//! decision, so a crash leaves no half of it.
//!
//! Known downside: numbers have large gaps, one for each run.

use super::link::{Failed, Link, sql};
use kilnyard_store::Number;
use tokio_postgres::error::SqlState;

/// The numbers of a partition. No run has as many events: a run of a whole archive has about 200,000. Readers in JavaScript
/// can represent the numbers of nine million runs.
pub(super) const SPAN: Number = 1_000_000_000;
/// The most partitions of a store, whose table has to be planned with all of them. There are this many only if readers have
/// prevented for this many runs that old ones are dropped, or no run has ended; then a run shares that of the run before it.
pub(super) const PARTITIONS_MAX: usize = 100;
/// How long the start of a run waits for another process that changes the table. Readers and writers do not delay it.
const ATTACH_WAIT_MS: u32 = 1000;
/// How long the end of a run waits for readers of events. Others wait for as long.
const DROP_WAIT_MS: u32 = 200;

/// The partition of an event.
pub(super) fn place_of(seq: Number) -> Number {
    seq / SPAN
}

/// The places of all partitions, ascending.
pub(super) fn places(link: &Link) -> Result<Vec<Number>, Failed> {
    let rows = link.one(sql!(
        "SELECT child.relname::text
         FROM pg_catalog.pg_inherits
         JOIN pg_catalog.pg_class AS child ON child.oid = inhrelid
         JOIN pg_catalog.pg_class AS parent ON parent.oid = inhparent
         JOIN pg_catalog.pg_namespace ON pg_namespace.oid = parent.relnamespace
         WHERE nspname = $1 AND parent.relname = 'event'",
        link.schema_name()
    ))?;
    let mut places = Vec::with_capacity(rows.len());
    for row in &rows {
        // A partition of another name is a user's, and stays.
        let name: &str = row.try_get(0)?;
        places.extend(name.strip_prefix("event_").and_then(|place| place.parse::<Number>().ok()));
    }
    places.sort_unstable();
    Ok(places)
}

/// The statements that make a partition.
fn attach(place: Number) -> String {
    let (first, after) = (place * SPAN, (place + 1) * SPAN);
    // `CREATE TABLE … PARTITION OF` would wait for all readers.
    format!(
        "CREATE TABLE kilnyard.event_{place} (LIKE kilnyard.event INCLUDING ALL);
         ALTER TABLE kilnyard.event ATTACH PARTITION kilnyard.event_{place} FOR VALUES FROM ({first}) TO ({after})"
    )
}

/// Makes the partition of a run that begins after the event `last`, in the current transaction. Returns the number before
/// its first event.
pub(super) fn begin(link: &Link, last: Number) -> Result<Number, Failed> {
    let place = place_of(last) + 1;
    if places(link)?.len() >= PARTITIONS_MAX {
        return Ok(last);
    }
    let is_made = attempt(link, ATTACH_WAIT_MS, &attach(place))?;
    Ok(if is_made { place * SPAN - 1 } else { last })
}

/// Makes a partition for the events of another store, unless it exists.
pub(super) fn ensure(link: &Link, place: Number) -> Result<(), Failed> {
    match places(link)?.contains(&place) {
        true => Ok(()),
        false => link.batch(&attach(place)),
    }
}

/// Removes all events before `first`, in the current transaction.
pub(super) fn remove_before(link: &Link, first: Number) -> Result<(), Failed> {
    let places = places(link)?;
    let old = places.iter().filter(|place| **place > 0 && **place < place_of(first));
    let names: Vec<String> = old.map(|place| format!("kilnyard.event_{place}")).collect();
    if !names.is_empty() {
        attempt(link, DROP_WAIT_MS, &format!("DROP TABLE {}", names.join(", ")))?;
    }
    link.one(sql!("DELETE FROM kilnyard.event WHERE seq < $1", first)).map(drop)
}

/// Performs statements that change the table of events, if the locks that they need are free soon, and the user may. The
/// rest of the transaction does not depend on them.
fn attempt(link: &Link, wait_ms: u32, statements: &str) -> Result<bool, Failed> {
    let outcome = link.batch(&format!(
        "SAVEPOINT partition;
         SET LOCAL lock_timeout = {wait_ms};
         {statements};
         SET LOCAL lock_timeout TO DEFAULT;
         RELEASE SAVEPOINT partition"
    ));
    match outcome {
        Ok(()) => Ok(true),
        Err(failed) if failed.code().is_some_and(|code| IS_FOR_LATER.contains(code)) => {
            link.batch("ROLLBACK TO SAVEPOINT partition; RELEASE SAVEPOINT partition")?;
            Ok(false)
        }
        Err(failed) => Err(failed),
    }
}

/// The errors of a table that other transactions use, that another user made, and that a view of a user depends on.
const IS_FOR_LATER: [SqlState; 3] =
    [SqlState::LOCK_NOT_AVAILABLE, SqlState::INSUFFICIENT_PRIVILEGE, SqlState::DEPENDENT_OBJECTS_STILL_EXIST];
