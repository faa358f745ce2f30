//! The store, opened.

mod backup;
mod read;
mod write;

pub use backup::{check_file, files};

use kilnyard_model::result::PackageState;
use kilnyard_store::{
    BuildRow, Current, LastBuild, Measurement, Number, OutputRow, PackageRow, Plan, PlanRow, PlanRowSeen,
    Record, Request, RequestKind, RunRow, Store, StoreError,
};
use rusqlite::TransactionBehavior::Immediate;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What makes a store of each format from one of the format before; the first makes it from nothing. A step that was
/// released never changes: stores that it made are about.
const STEPS: [&str; 6] = [
    include_str!("sqlite/schema.sql"),
    include_str!("sqlite/imported.sql"),
    include_str!("sqlite/measured.sql"),
    include_str!("sqlite/remarks.sql"),
    include_str!("sqlite/forced.sql"),
    include_str!("sqlite/farm.sql"),
];
/// The format that this version writes.
const FORMAT: i64 = STEPS.len() as i64;
/// How long a writer waits for another process's decision.
const BUSY_WAIT: Duration = Duration::from_secs(20);
/// How often it looks again where SQLite does not wait by itself.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A store in one SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
}

impl Sqlite {
    /// Opens the store, or makes it.
    pub fn open(path: &Path) -> Result<Sqlite, StoreError> {
        let connection = Connection::open(path).map_err(|e| database(path, e))?;
        let mut store = Sqlite { connection, path: path.to_owned() };
        let began = Instant::now();
        loop {
            match store.prepare() {
                // Another process makes the same store at this moment. SQLite does not wait by itself where the
                // journal's mode changes.
                Err(StoreError::Busy { .. }) if began.elapsed() < BUSY_WAIT => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                other => return other.map(|()| store),
            }
        }
    }

    /// Opens a store that cannot be written here, such as that of a file system that is mounted read-only. With a journal
    /// that was not taken over by its last writer SQLite needs to write, and it is an error.
    pub fn open_to_read(path: &Path) -> Result<Sqlite, StoreError> {
        let mut journal = path.as_os_str().to_owned();
        journal.push("-wal");
        let is_settled = std::fs::metadata(&journal).map_or(true, |metadata| metadata.len() == 0);
        // What is immutable is read without a lock, and SQLite would not see the journal.
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
        let found: i64 = connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|e| database(path, e))?;
        let (store, known) = (path.display().to_string(), FORMAT);
        match found.cmp(&FORMAT) {
            Ordering::Less => return Err(StoreError::TooOld { store, found, known }),
            Ordering::Greater => return Err(StoreError::TooNew { store, found, known }),
            Ordering::Equal => {}
        }
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Sqlite { connection, path: path.to_owned() })
    }

    fn prepare(&mut self) -> Result<(), StoreError> {
        let path = self.path.clone();
        let wrap = |error| database(&path, error);
        self.connection.busy_timeout(BUSY_WAIT).map_err(wrap)?;
        self.connection.set_prepared_statement_cache_capacity(64);
        // A decision must survive a power loss once it is acted on.
        self.connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;",
            )
            .map_err(wrap)?;
        let format = |connection: &Connection| -> rusqlite::Result<i64> {
            connection.query_row("PRAGMA user_version", [], |row| row.get(0))
        };
        // Who only reads need not wait for who writes.
        if format(&self.connection).map_err(wrap)? == FORMAT {
            return Ok(());
        }
        let transaction = self.connection.transaction_with_behavior(Immediate).map_err(wrap)?;
        let found = format(&transaction).map_err(wrap)?;
        let Some(steps) = usize::try_from(found).ok().and_then(|done| STEPS.get(done..)) else {
            return Err(StoreError::TooNew { store: path.display().to_string(), found, known: FORMAT });
        };
        for step in steps {
            transaction.execute_batch(step).map_err(wrap)?;
        }
        transaction.pragma_update(None, "user_version", FORMAT).map_err(wrap)?;
        transaction.commit().map_err(wrap)
    }

    fn wrap(&self, error: rusqlite::Error) -> StoreError {
        database(&self.path, error)
    }

    fn unreadable(&self, what: &'static str, reason: impl ToString) -> StoreError {
        StoreError::Unreadable { store: self.path.display().to_string(), what, reason: reason.to_string() }
    }
}

/// What SQLite reported, as the contract names it.
fn database(path: &Path, source: rusqlite::Error) -> StoreError {
    let store = path.display().to_string();
    let Some(code) = source.sqlite_error_code() else {
        return StoreError::Other { store, source: Box::new(source) };
    };
    let reason = source.to_string();
    let source = Box::new(source);
    match code {
        // SQLite reports a failed write as a full disk only where the kernel said so at once.
        ErrorCode::DiskFull => StoreError::Full { store, source },
        ErrorCode::ReadOnly | ErrorCode::CannotOpen => StoreError::ReadOnly { store, source },
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { store, source },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Damaged { store, reason },
        _ => StoreError::Other { store, source },
    }
}

impl Store for Sqlite {
    fn begin_run(&mut self, run: &RunRow, packages: &[PackageRow]) -> Result<Number, StoreError> {
        let outcome = write::begin_run(&mut self.connection, run, packages);
        outcome.map_err(|e| self.wrap(e))
    }

    fn record(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let outcome = write::record(&mut self.connection, records);
        outcome.map_err(|e| self.wrap(e))
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
        self.read_builds("package = ?1 ORDER BY number DESC LIMIT ?2", (name, count_max as i64))
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
        let outcome = write::import_durations(&mut self.connection, durations);
        outcome.map_err(|e| self.wrap(e))
    }

    fn next_build(&self) -> Result<Number, StoreError> {
        let sql = "SELECT coalesce(max(number), 0) + 1 FROM build";
        let number: i64 = self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.wrap(e))?;
        Ok(number as Number)
    }

    fn request(&mut self, kind: RequestKind, package: &str, at_seconds: f64) -> Result<(), StoreError> {
        let sql = "INSERT INTO request (kind, package, at) VALUES (?1, ?2, ?3)";
        let outcome = self.connection.execute(sql, (kind.as_str(), package, at_seconds));
        outcome.map(|_| ()).map_err(|e| self.wrap(e))
    }

    fn take_requests(&mut self) -> Result<Vec<Request>, StoreError> {
        let outcome = write::take_requests(&mut self.connection);
        outcome.map_err(|e| self.wrap(e))
    }

    fn save_plan(&mut self, plan: &Plan) -> Result<(), StoreError> {
        let outcome = write::save_plan(&mut self.connection, plan);
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

    fn read_at_once(&self, read: &mut dyn FnMut(&dyn Store)) -> Result<(), StoreError> {
        // A transaction that only read ends when it is dropped.
        let _transaction = self.connection.unchecked_transaction().map_err(|e| self.wrap(e))?;
        // A transaction begins with what it reads first.
        self.connection.query_row("SELECT 1 FROM sqlite_schema", [], |_| Ok(())).map_err(|e| self.wrap(e))?;
        read(self);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
