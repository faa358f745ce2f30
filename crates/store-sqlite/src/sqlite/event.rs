//! Reads events. Data that other rows keep permanently is not stored twice: it is read from them.

use super::Sqlite;
use super::read::attempt;
use kilnyard_model::result::BuildOutcome;
use kilnyard_store::{Event, EventKind, Ids, Number, StoreError};
use rusqlite::{Params, Row};
use serde_json::{Value, json};

/// An event with the rows that it reports: its run, its build, its stage.
macro_rules! events {
    ($which:literal) => {
        concat!(
            "
    SELECT event.seq, event.epoch, event.type, event.version, event.at, event.body,
           scope.target, coalesce(event.run, build.run), coalesce(event.package, build.package), event.build,
           build.attempt, build.worker, build.version, build.slot, build.key, build.outcome, build.failure,
           build.reproducible, stage.result, run.cores, run.slots, run.expected
    FROM event
    JOIN scope ON scope.number = event.scope
    LEFT JOIN build ON build.number = event.build
    LEFT JOIN stage ON stage.build = event.build AND stage.position = event.place
    LEFT JOIN run ON run.number = event.run
    ",
            $which
        )
    };
}
const EVENTS: &str = events!("WHERE event.seq > ?1 ORDER BY event.seq LIMIT ?2");
const REQUESTS: &str =
    events!("WHERE event.type = 'requested' AND event.scope = ?1 ORDER BY event.seq DESC LIMIT ?2");

impl Sqlite {
    pub(super) fn read_events(&self, seq: Number, count_max: usize) -> Result<Vec<Event>, StoreError> {
        // SQLite's numbers are signed, and none of them is that large.
        let (seq, count_max) = (i64::try_from(seq).unwrap_or(i64::MAX), count_max.min(i64::MAX as usize));
        self.events(EVENTS, (seq, count_max as i64))
    }

    pub(super) fn read_requests(&self, count_max: usize) -> Result<Vec<Event>, StoreError> {
        self.events(REQUESTS, (self.number, count_max.min(i64::MAX as usize) as i64))
    }

    fn events(&self, sql: &str, params: impl Params) -> Result<Vec<Event>, StoreError> {
        let rows = self.rows(sql, params, |row| {
            let target: String = row.get(6)?;
            let kind = kind(row)?;
            Ok((
                target,
                Event {
                    epoch: row.get::<_, i64>(1)? as Number,
                    seq: row.get::<_, i64>(0)? as Number,
                    version: row.get(3)?,
                    ids: Ids {
                        farm: self.scope.farm,
                        yard: self.scope.yard,
                        target: self.scope.target.clone(),
                        run: row.get::<_, Option<i64>>(7)?.map(|run| run as Number),
                        package: row.get(8)?,
                        build: row.get::<_, Option<i64>>(9)?.map(|build| build as Number),
                        attempt: attempt(row.get_ref(10)?),
                        worker: row.get(11)?,
                    },
                    at: row.get(4)?,
                    kind,
                },
            ))
        })?;
        let own = self.scope.target.to_string();
        rows.into_iter()
            .map(|(target, mut event)| {
                if target != own {
                    event.ids.target = target.parse().map_err(|error| self.unreadable("a target", error))?;
                }
                Ok(event)
            })
            .collect()
    }
}

/// Decodes an event's body. A kind that a later version added or changed gives [`EventKind::Unknown`].
fn kind(row: &Row) -> rusqlite::Result<EventKind> {
    let kind: String = row.get(2)?;
    let parse = |text: Option<String>| text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let body = match kind.as_str() {
        "run-began" => {
            let own = parse(row.get(5)?).unwrap_or_default();
            json!({
                "is_resumed": own["is_resumed"],
                "cores": row.get::<_, Option<u32>>(19)?,
                "slots": row.get::<_, Option<u32>>(20)?,
                "expected_seconds": row.get::<_, Option<f64>>(21)?,
            })
        }
        "build-began" => json!({
            "version": row.get::<_, Option<String>>(12)?,
            "slot": row.get::<_, Option<u32>>(13)?,
            "key": row.get::<_, Option<String>>(14)?,
        }),
        "stage-ended" => json!({ "slot": row.get::<_, Option<u32>>(13)?, "result": parse(row.get(18)?) }),
        "build-ended" => json!({
            "version": row.get::<_, Option<String>>(12)?,
            "slot": row.get::<_, Option<u32>>(13)?,
            "outcome": row.get::<_, Option<String>>(15)?.map(|text| BuildOutcome::parse(&text)),
            "failure": parse(row.get(16)?),
            "is_reproducible": row.get::<_, Option<bool>>(17)?,
        }),
        _ => parse(row.get(5)?).unwrap_or_default(),
    };
    Ok(serde_json::from_value(json!({ "type": kind, "body": body })).unwrap_or(EventKind::Unknown))
}
