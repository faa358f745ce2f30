//! An open store.

mod batch;
mod copy;
mod document;
mod event;
mod facts;
mod lead;
mod link;
mod open;
mod partition;
mod read;
mod wait;
mod write;

pub use document::{Document, Documents};
pub use facts::Facts;

use crate::Address;
use kilnyard_model::identity::Scope;
use kilnyard_model::result::PackageState;
use kilnyard_store::Provenance;
use kilnyard_store::{
    BuildRow, Current, Event, Holder, LastBuild, Leader, Leadership, Measurement, Note, Number, OutputRow,
    PackageRow, Plan, PlanRow, PlanRowSeen, Record, Request, RequestKind, RunRow, Store, StoreError,
};
use link::{Failed, Link, Statement, sql};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use wait::Waiting;

/// How long a call that reads is repeated over new connections.
const READ_PATIENCE: Duration = Duration::from_secs(20);

/// A store in a PostgreSQL database.
pub struct Postgres {
    address: Address,
    /// Absent after the connection broke, until the next call.
    link: RefCell<Option<Link>>,
    /// The number of `scope` in this database; all rows read and written have it.
    number: i64,
    scope: Scope,
    /// The epoch of this store; 0 if it has never been the leader.
    epoch: Number,
    /// The number of transactions that it began as the leader.
    batches: u64,
    /// Whether calls read from a snapshot, which ends with its connection.
    is_in_snapshot: Cell<bool>,
    /// The timeline of the server when this store became the leader.
    timeline: i64,
    /// The expression for the timeline of the server, once that is known.
    timeline_sql: Cell<Option<&'static str>>,
    /// What wakes it when there are events.
    waiting: RefCell<Waiting>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({}, {:?}, epoch {})", self.address, self.scope, self.epoch)
    }
}

impl Postgres {
    fn wrap(&self, failed: Failed) -> StoreError {
        failed.of(&self.address)
    }

    fn unreadable(&self, what: &'static str, reason: impl ToString) -> StoreError {
        StoreError::Unreadable { store: self.address.to_string(), what, reason: reason.to_string() }
    }

    /// Calls `use_it` with the connection, which is made anew if it broke.
    fn over<T>(&self, use_it: impl FnOnce(&Link) -> Result<T, Failed>) -> Result<T, Failed> {
        let mut link = self.link.borrow_mut();
        if link.as_ref().is_some_and(Link::is_closed) {
            *link = None;
        }
        let opened = match link.take() {
            Some(link) => link,
            None => Link::open(&self.address)?,
        };
        let outcome = use_it(&opened);
        let is_broken = outcome.as_ref().err().is_some_and(Failed::is_of_connection);
        *link = (!is_broken).then_some(opened);
        outcome
    }

    /// Calls `use_it` with the connection, and again with a new one if that breaks.
    fn repeated<T>(&self, use_it: impl Fn(&Link) -> Result<T, Failed>) -> Result<T, StoreError> {
        let end = Instant::now() + READ_PATIENCE;
        loop {
            match self.over(&use_it) {
                Err(failed)
                    if failed.is_of_connection() && !self.is_in_snapshot.get() && Instant::now() < end => {}
                outcome => return outcome.map_err(|failed| self.wrap(failed)),
            }
        }
    }

    /// The rows of statements that only read. They are sent together, and repeated if the connection breaks.
    fn rows_of_all(&self, statements: &[Statement]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.repeated(|link| link.all(statements))
    }

    fn rows(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        Ok(self.rows_of_all(&[statement])?.pop().unwrap_or_default())
    }

    /// A column of a row.
    fn get<'a, T: FromSql<'a>>(&self, row: &'a Row, column: usize) -> Result<T, StoreError> {
        row.try_get(column).map_err(|error| self.unreadable("a row", error))
    }

    fn number_at(&self, row: &Row, column: usize) -> Result<Number, StoreError> {
        Ok(self.get::<i64>(row, column)? as Number)
    }

    /// A column of the only row of the store.
    fn of_store(&self, sql: &'static str) -> Result<Number, StoreError> {
        let rows = self.rows(sql!(sql))?;
        let row = rows.first().ok_or_else(|| self.unreadable("a store", "its row is missing"))?;
        self.number_at(row, 0)
    }
}

impl Store for Postgres {
    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn lead(&mut self, holder: &Holder) -> Result<Leadership, StoreError> {
        self.take_lead(holder)
    }

    fn renew(&mut self) -> Result<(), StoreError> {
        self.show(false)
    }

    fn leave(&mut self) -> Result<(), StoreError> {
        self.show(true)
    }

    fn leader(&self) -> Result<Option<Leader>, StoreError> {
        self.read_leader()
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
        self.read_builds_of(name, count_max)
    }

    fn builds_in(&self, run: Number) -> Result<Vec<BuildRow>, StoreError> {
        self.read_builds_in(run, false)
    }

    fn builds_open(&self, run: Number) -> Result<Vec<BuildRow>, StoreError> {
        self.read_builds_in(run, true)
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
        self.write_durations(durations)
    }

    fn made_by(&self, worker: &str) -> Result<Vec<(String, Number)>, StoreError> {
        self.read_made_by(worker)
    }

    fn provenance(&self, package: &str) -> Result<Option<Provenance>, StoreError> {
        self.read_provenance(package)
    }

    fn cpu_seconds_of(&self, began_from: f64, ended_from: f64) -> Result<f64, StoreError> {
        self.read_cpu_seconds(began_from, ended_from)
    }

    fn pools(&self) -> Result<Vec<(String, String, String)>, StoreError> {
        self.read_pools()
    }

    fn next_build(&self) -> Result<Number, StoreError> {
        self.of_store("SELECT builds + 1 FROM kilnyard.store")
    }

    fn request(
        &mut self,
        kind: RequestKind,
        package: &str,
        author: &str,
        at_seconds: f64,
    ) -> Result<(), StoreError> {
        self.write_request((kind, package, author), at_seconds)
    }

    fn note(&mut self, note: &Note) -> Result<(), StoreError> {
        self.write_note(note)
    }

    fn take_requests(&mut self) -> Result<Vec<Request>, StoreError> {
        self.remove_requests()
    }

    fn save_plan(&mut self, plan: &Plan) -> Result<(), StoreError> {
        self.write_plan(plan)
    }

    fn plan(&self) -> Result<Option<Plan>, StoreError> {
        self.at_once_or_now(|store| store.read_plan())
    }

    fn plan_head(&self) -> Result<Option<Plan>, StoreError> {
        self.read_plan_head()
    }

    fn each_planned(&self, each: &mut dyn FnMut(PlanRowSeen) -> bool) -> Result<(), StoreError> {
        self.at_once_or_now(|store| store.read_each_planned(each))
    }

    fn planned(&self, name: &str) -> Result<Option<PlanRow>, StoreError> {
        self.read_planned(name)
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
        self.wait(after, at_most)
    }

    fn last_event(&self) -> Result<Number, StoreError> {
        self.of_store("SELECT events FROM kilnyard.store")
    }

    fn check(&self) -> Result<(), StoreError> {
        self.check_rows()
    }

    fn read_at_once(&self, read: &mut dyn FnMut(&dyn Store)) -> Result<(), StoreError> {
        self.at_once_or_now(|store| {
            read(store);
            Ok(())
        })
    }
}

impl Postgres {
    /// Calls `read` with a snapshot, unless there is one already.
    fn at_once_or_now<T>(
        &self,
        read: impl FnOnce(&Postgres) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.is_in_snapshot.get() {
            return read(self);
        }
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let end = Instant::now() + READ_PATIENCE;
        // The snapshot is taken by the first statement that reads.
        let began = || self.over(|link| link.all(&[sql!(begin), sql!("SELECT 1")]).map(drop));
        loop {
            match began() {
                Err(failed) if failed.is_of_connection() && Instant::now() < end => {}
                outcome => break outcome.map_err(|failed| self.wrap(failed))?,
            }
        }
        self.is_in_snapshot.set(true);
        let _snapshot = Snapshot(self);
        read(self)
    }
}

/// Ends a snapshot when it is dropped.
struct Snapshot<'a>(&'a Postgres);

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        self.0.is_in_snapshot.set(false);
        let mut link = self.0.link.borrow_mut();
        // A connection whose transaction cannot be ended is of no more use.
        if link.as_ref().is_some_and(|link| link.batch("ROLLBACK").is_err()) {
            *link = None;
        }
    }
}
