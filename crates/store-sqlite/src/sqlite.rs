//! An open store.

mod backup;
mod copy;
mod event;
mod open;
mod read;
mod write;

pub use backup::{check_file, files};

use kilnyard_model::identity::Scope;
use kilnyard_model::result::PackageState;
use kilnyard_store::Provenance;
use kilnyard_store::{
    BuildRow, Current, Event, Holder, LastBuild, Leader, Leadership, Measurement, Note, Number, OutputRow,
    PackageRow, Plan, PlanRow, PlanRowSeen, Record, Request, RequestKind, RunRow, Store, StoreError,
};
use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval at which the number of the latest event is read while a process waits for another one. SQLite does not report
/// the commits of other processes.
const EVENTS_POLL: Duration = Duration::from_millis(50);

/// A store in one SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    /// The number of `scope` in this file; all rows read and written have it.
    number: i64,
    scope: Scope,
    /// The epoch of this connection; 0 if it has never been the leader.
    epoch: Number,
}

impl Sqlite {
    fn wrap(&self, error: rusqlite::Error) -> StoreError {
        database(&self.path, error)
    }

    fn unreadable(&self, what: &'static str, reason: impl ToString) -> StoreError {
        StoreError::Unreadable { store: self.path.display().to_string(), what, reason: reason.to_string() }
    }
}

/// Converts an error of SQLite to one of the contract.
fn database(path: &Path, source: rusqlite::Error) -> StoreError {
    let store = path.display().to_string();
    let Some(code) = source.sqlite_error_code() else {
        return StoreError::Other { store, source: Box::new(source) };
    };
    let reason = source.to_string();
    let source = Box::new(source);
    match code {
        // SQLite reports a full disk only if the kernel reported it for the write itself.
        ErrorCode::DiskFull => StoreError::Full { store, source },
        ErrorCode::ReadOnly | ErrorCode::CannotOpen => StoreError::ReadOnly { store, source },
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { store, source },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Damaged { store, reason },
        _ => StoreError::Other { store, source },
    }
}

impl Store for Sqlite {
    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn lead(&mut self, _holder: &Holder) -> Result<Leadership, StoreError> {
        let sql = "UPDATE store SET epoch = epoch + 1 RETURNING epoch, builds + 1";
        let lead = self.connection.query_row(sql, [], |row| {
            Ok(Leadership {
                epoch: row.get::<_, i64>(0)? as Number,
                next_build: row.get::<_, i64>(1)? as Number,
            })
        });
        let lead = lead.map_err(|e| self.wrap(e))?;
        self.epoch = lead.epoch;
        Ok(lead)
    }

    fn renew(&mut self) -> Result<(), StoreError> {
        self.check_epoch()
    }

    fn leave(&mut self) -> Result<(), StoreError> {
        self.check_epoch()?;
        self.epoch = 0;
        Ok(())
    }

    fn leader(&self) -> Result<Option<Leader>, StoreError> {
        Ok(None)
    }

    fn begin_run(&mut self, run: &RunRow, packages: &[PackageRow]) -> Result<Number, StoreError> {
        self.write(|writer| writer.begin_run(run, packages))
    }

    fn record(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.write(|writer| records.iter().try_for_each(|record| writer.record(record)))
    }

    fn runs(&self) -> Result<Vec<RunRow>, StoreError> {
        self.read_runs(None)
    }

    fn last_run(&self) -> Result<Option<RunRow>, StoreError> {
        Ok(self.read_runs(Some(1))?.pop())
    }

    fn packages(&self, run: Number) -> Result<Vec<PackageRow>, StoreError> {
        self.read_packages(run, None)
    }

    fn package(&self, run: Number, name: &str) -> Result<Option<PackageRow>, StoreError> {
        Ok(self.read_packages(run, Some(name))?.pop())
    }

    fn packages_in_state(&self, run: Number, state: PackageState) -> Result<Vec<PackageRow>, StoreError> {
        self.read_packages_in_state(run, state)
    }

    fn counts(&self, run: Number) -> Result<Vec<(PackageState, u64)>, StoreError> {
        self.read_counts(run)
    }

    fn builds_of(&self, name: &str, count_max: usize) -> Result<Vec<BuildRow>, StoreError> {
        self.read_builds(
            "scope = ?1 AND package = ?2 ORDER BY number DESC LIMIT ?3",
            (self.number, name, count_max as i64),
        )
    }

    fn builds_in(&self, run: Number) -> Result<Vec<BuildRow>, StoreError> {
        self.read_builds("run = ?1 ORDER BY number", (run as i64,))
    }

    fn builds_open(&self, run: Number) -> Result<Vec<BuildRow>, StoreError> {
        self.read_builds("run = ?1 AND ended IS NULL ORDER BY slot", (run as i64,))
    }

    fn last_builds(&self) -> Result<Vec<LastBuild>, StoreError> {
        self.read_last_builds()
    }

    fn current(&self, name: &str) -> Result<Option<Current>, StoreError> {
        Ok(self.read_current(Some(name))?.pop())
    }

    fn all_current(&self) -> Result<Vec<Current>, StoreError> {
        self.read_current(None)
    }

    fn durations(&self) -> Result<Vec<(String, f64, f64)>, StoreError> {
        self.read_durations()
    }

    fn measured(&self) -> Result<Vec<(String, Vec<Measurement>)>, StoreError> {
        self.read_measured()
    }

    fn import_durations(&mut self, durations: &[(String, f64, f64)]) -> Result<(), StoreError> {
        let outcome = write::import_durations(&mut self.connection, self.number, durations);
        outcome.map_err(|e| self.wrap(e))
    }

    fn made_by(&self, worker: &str) -> Result<Vec<(String, Number)>, StoreError> {
        self.read_made_by(worker)
    }

    fn cpu_seconds_of(&self, began_from: f64, ended_from: f64) -> Result<f64, StoreError> {
        self.read_cpu_seconds(began_from, ended_from)
    }

    fn pools(&self) -> Result<Vec<(String, String, String)>, StoreError> {
        self.read_pools()
    }

    fn provenance(&self, package: &str) -> Result<Option<Provenance>, StoreError> {
        self.read_provenance(package)
    }

    fn next_build(&self) -> Result<Number, StoreError> {
        let sql = "SELECT builds + 1 FROM store";
        let number: i64 = self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.wrap(e))?;
        Ok(number as Number)
    }

    fn request(
        &mut self,
        kind: RequestKind,
        package: &str,
        author: &str,
        at_seconds: f64,
    ) -> Result<(), StoreError> {
        let outcome = write::request(&mut self.connection, self.number, (kind, package, author), at_seconds);
        outcome.map_err(|e| self.wrap(e))
    }

    fn note(&mut self, note: &Note) -> Result<(), StoreError> {
        write::note(&mut self.connection, self.number, note).map_err(|e| self.wrap(e))
    }

    fn take_requests(&mut self) -> Result<Vec<Request>, StoreError> {
        let outcome = write::take_requests(&mut self.connection, self.number);
        outcome.map_err(|e| self.wrap(e))
    }

    fn save_plan(&mut self, plan: &Plan) -> Result<(), StoreError> {
        let outcome = write::save_plan(&mut self.connection, self.number, plan);
        outcome.map_err(|e| self.wrap(e))
    }

    fn plan(&self) -> Result<Option<Plan>, StoreError> {
        self.read_plan()
    }

    fn plan_head(&self) -> Result<Option<Plan>, StoreError> {
        self.read_plan_head()
    }

    fn each_planned(&self, each: &mut dyn FnMut(PlanRowSeen) -> bool) -> Result<(), StoreError> {
        self.read_each_planned(each)
    }

    fn planned(&self, name: &str) -> Result<Option<PlanRow>, StoreError> {
        Ok(self.read_plan_packages(Some(name))?.pop())
    }

    fn outputs(&self) -> Result<Vec<OutputRow>, StoreError> {
        self.read_outputs(None)
    }

    fn events_since(&self, seq: Number, count_max: usize) -> Result<Vec<Event>, StoreError> {
        self.read_events(seq, count_max)
    }

    fn requests_made(&self, count_max: usize) -> Result<Vec<Event>, StoreError> {
        self.read_requests(count_max)
    }

    fn wait_for_events(&self, after: Number, at_most: Duration) -> Result<(), StoreError> {
        let began = Instant::now();
        while self.last_event()? <= after {
            let left = at_most.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(EVENTS_POLL));
        }
        Ok(())
    }

    fn last_event(&self) -> Result<Number, StoreError> {
        // This table has the number even if all events were removed.
        let sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)";
        let seq: i64 = self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.wrap(e))?;
        Ok(seq as Number)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.check_pages()
    }

    fn read_at_once(&self, read: &mut dyn FnMut(&dyn Store)) -> Result<(), StoreError> {
        let _snapshot = self.snapshot()?;
        read(self);
        Ok(())
    }
}

impl Sqlite {
    /// Until this is dropped, what is read does not change. Dropping a transaction that only read ends it.
    fn snapshot(&self) -> Result<rusqlite::Transaction<'_>, StoreError> {
        let transaction = self.connection.unchecked_transaction().map_err(|e| self.wrap(e))?;
        // SQLite takes the snapshot at the first read of a transaction.
        self.connection.query_row("SELECT 1 FROM sqlite_schema", [], |_| Ok(())).map_err(|e| self.wrap(e))?;
        Ok(transaction)
    }
}

#[cfg(test)]
mod tests;
