//! Reads events. Data that other rows keep permanently is not stored twice: it is read from them.

use super::Postgres;
use super::link::sql;
use super::read::attempt;
use kilnyard_model::result::BuildOutcome;
use kilnyard_store::{Event, EventKind, Ids, Number, StoreError};
use serde_json::{Value, json};
use tokio_postgres::Row;

/// An event with the rows that it reports: its run, its build, its stage.
macro_rules! events {
    ($which:literal) => {
        concat!(
            "
    SELECT event.seq, event.epoch, event.type, event.version, event.at, event.body,
           scope.target, coalesce(event.run, build.run), coalesce(event.package, build.package), event.build,
           build.attempt, build.worker, build.version, build.slot, build.key, build.outcome, build.failure,
           build.reproducible, stage.result, run.cores, run.slots, run.expected
    FROM kilnyard.event
    JOIN kilnyard.scope ON scope.number = event.scope
    LEFT JOIN kilnyard.build ON build.number = event.build
    LEFT JOIN kilnyard.stage ON stage.build = event.build AND stage.position = event.place
    LEFT JOIN kilnyard.run ON run.number = event.run
    ",
            $which
        )
    };
}
const EVENTS: &str = events!("WHERE event.seq > $1 ORDER BY event.seq LIMIT $2");
const REQUESTS: &str =
    events!("WHERE event.type = 'requested' AND event.scope = $1 ORDER BY event.seq DESC LIMIT $2");

impl Postgres {
    pub(super) fn read_events(&self, seq: Number, count_max: usize) -> Result<Vec<Event>, StoreError> {
        let rows = self.rows(sql!(EVENTS, seq, count_max as u64))?;
        rows.iter().map(|row| self.event(row)).collect()
    }

    pub(super) fn read_requests(&self, count_max: usize) -> Result<Vec<Event>, StoreError> {
        let rows = self.rows(sql!(REQUESTS, self.number, count_max as u64))?;
        rows.iter().map(|row| self.event(row)).collect()
    }

    fn event(&self, row: &Row) -> Result<Event, StoreError> {
        let optional = |column: usize| {
            self.get::<Option<i64>>(row, column).map(|number| number.map(|number| number as Number))
        };
        let target: &str = self.get(row, 6)?;
        let version: i64 = self.get(row, 3)?;
        Ok(Event {
            epoch: self.number_at(row, 1)?,
            seq: self.number_at(row, 0)?,
            version: u32::try_from(version).unwrap_or(u32::MAX),
            ids: Ids {
                farm: self.scope.farm,
                yard: self.scope.yard,
                target: target.parse().map_err(|error| self.unreadable("a target", error))?,
                run: optional(7)?,
                package: self.get(row, 8)?,
                build: optional(9)?,
                attempt: attempt(self.get(row, 10)?),
                worker: self.get(row, 11)?,
            },
            at: self.get(row, 4)?,
            kind: self.kind(row)?,
        })
    }

    /// Decodes an event's body. A kind that a later version added or changed gives [`EventKind::Unknown`].
    fn kind(&self, row: &Row) -> Result<EventKind, StoreError> {
        let text = |column: usize| self.get::<Option<&str>>(row, column);
        let number = |column: usize| self.get::<Option<i64>>(row, column);
        let parse = |text: Option<&str>| text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let kind: &str = self.get(row, 2)?;
        let body = match kind {
            "run-began" => {
                let own = parse(text(5)?).unwrap_or_default();
                json!({
                    "is_resumed": own["is_resumed"],
                    "cores": number(19)?,
                    "slots": number(20)?,
                    "expected_seconds": self.get::<Option<f64>>(row, 21)?,
                })
            }
            "build-began" => json!({ "version": text(12)?, "slot": number(13)?, "key": text(14)? }),
            "stage-ended" => json!({ "slot": number(13)?, "result": parse(text(18)?) }),
            "build-ended" => json!({
                "version": text(12)?,
                "slot": number(13)?,
                "outcome": text(15)?.map(BuildOutcome::parse),
                "failure": parse(text(16)?),
                "is_reproducible": self.get::<Option<bool>>(row, 17)?,
            }),
            _ => parse(text(5)?).unwrap_or_default(),
        };
        Ok(serde_json::from_value(json!({ "type": kind, "body": body })).unwrap_or(EventKind::Unknown))
    }
}
