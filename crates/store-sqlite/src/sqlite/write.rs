//! Writes rows. Each function is one transaction.

use super::{Sqlite, database};
use kilnyard_model::result::{FailureKind, StageResult};
use kilnyard_store::Provenance;
use kilnyard_store::{
    BuildRow, Current, EVENT_RUNS_MAX, EVENT_VERSION, Measurement, Note, Number, PackageRow, Plan, PlanRow,
    Record, Request, RequestKind, RunRow, RunState, StoreError,
};
use rusqlite::{Connection, OptionalExtension, Result, ToSql, Transaction, TransactionBehavior, params};
use serde_json::{Value, json};
use std::path::Path;

fn begin(connection: &mut Connection) -> Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// The level of zstd for statements, which are mostly digits of hashes.
const COMPRESSION: i32 = 3;

fn text_of(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn value_of(value: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Why nothing was written.
pub(super) enum Refused {
    Database(rusqlite::Error),
    /// A number or attempt was used before.
    Used(String),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Refused {
        Refused::Database(error)
    }
}

impl Sqlite {
    /// Writes as the leader, all or nothing.
    pub(super) fn write<T>(
        &mut self,
        write: impl FnOnce(&Writer) -> Result<T, Refused>,
    ) -> Result<T, StoreError> {
        let (path, scope, own) = (&self.path, self.number, self.epoch);
        let wrap = |error| database(path, error);
        let transaction = begin(&mut self.connection).map_err(wrap)?;
        check_epoch(&transaction, path, own)?;
        let written = match write(&Writer { transaction: &transaction, scope, epoch: own }) {
            Ok(written) => written,
            Err(Refused::Database(error)) => return Err(wrap(error)),
            Err(Refused::Used(what)) => {
                return Err(StoreError::Used { store: path.display().to_string(), what });
            }
        };
        transaction.commit().map_err(wrap)?;
        Ok(written)
    }

    /// Fails if another connection has led since this one.
    pub(super) fn check_epoch(&self) -> Result<(), StoreError> {
        check_epoch(&self.connection, &self.path, self.epoch)
    }
}

fn check_epoch(connection: &Connection, path: &Path, own: Number) -> Result<(), StoreError> {
    let latest: Result<i64> = connection.query_row("SELECT epoch FROM store", [], |row| row.get(0));
    let latest = latest.map_err(|error| database(path, error))? as Number;
    match own != 0 && own == latest {
        true => Ok(()),
        false => Err(StoreError::Fenced { store: path.display().to_string(), own, latest }),
    }
}

/// The transaction of a decision.
pub(super) struct Writer<'a> {
    transaction: &'a Transaction<'a>,
    scope: i64,
    epoch: Number,
}

/// The rows that an event is about, in addition to its scope.
#[derive(Default)]
struct About<'a> {
    run: Option<Number>,
    package: Option<&'a str>,
    build: Option<Number>,
    /// The position of a stage in its build.
    place: Option<i64>,
}

impl Writer<'_> {
    pub(super) fn begin_run(&self, run: &RunRow, packages: &[PackageRow]) -> Result<Number, Refused> {
        self.execute(
            "INSERT INTO run (started, ended, state, plan_digest, cores, slots, expected, bound, forced, commits,
               scope)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                run.started_seconds,
                run.ended_seconds,
                run.state.as_str(),
                run.plan_digest,
                run.cores,
                run.slots,
                run.expected_seconds,
                run.bound_seconds,
                run.forced.as_ref().map(text_of).transpose()?,
                text_of(&run.commits)?,
                self.scope
            ],
        )?;
        let number = self.transaction.last_insert_rowid() as Number;
        self.insert_packages(number, packages)?;
        let body = json!({ "is_resumed": false });
        self.event(
            "run-began",
            About { run: Some(number), ..About::default() },
            run.started_seconds,
            Some(&body),
        )?;
        Ok(number)
    }

    /// Adds packages to a run that it lacks.
    fn insert_packages(&self, run: Number, packages: &[PackageRow]) -> Result<(), Refused> {
        let mut insert = self.transaction.prepare_cached(
            "INSERT INTO run_package (run, name, version, state, reason, blamed, estimate, rank, why)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (run, name) DO NOTHING",
        )?;
        for row in packages {
            insert.execute(params![
                run as i64,
                row.name,
                row.version,
                row.state.as_str(),
                row.reason.to_string(),
                row.blamed,
                row.estimate_seconds,
                row.rank_seconds,
                text_of(&row.reason)?
            ])?;
        }
        Ok(())
    }

    pub(super) fn record(&self, record: &Record) -> Result<(), Refused> {
        match record {
            Record::Package { run, name, state, reason, blamed, at_seconds } => {
                self.execute(
                    "UPDATE run_package SET state = ?3, reason = ?4, blamed = ?5, why = ?6
                     WHERE run = ?1 AND name = ?2",
                    params![*run as i64, name, state.as_str(), reason.to_string(), blamed, text_of(reason)?],
                )?;
                let body = json!({ "state": state, "reason": value_of(reason)?, "blamed": blamed });
                let about = About { run: Some(*run), package: Some(name), ..About::default() };
                self.event("package", about, *at_seconds, Some(&body))?;
            }
            Record::PackageAdded { run, row } => {
                self.insert_packages(*run, std::slice::from_ref(row))?;
            }
            Record::BuildBegan(build) => self.build_began(build)?,
            Record::StageEnded { build, at_seconds, stage } => {
                let place: i64 = self
                    .transaction
                    .prepare_cached("SELECT count(*) FROM stage WHERE build = ?1")?
                    .query_row([*build as i64], |row| row.get(0))?;
                self.execute(
                    "INSERT INTO stage (build, position, result) VALUES (?1, ?2, ?3)",
                    params![*build as i64, place, text_of(stage)?],
                )?;
                let about = About { build: Some(*build), place: Some(place), ..About::default() };
                self.event("stage-ended", about, *at_seconds, None)?;
            }
            Record::BuildEnded { build, at_seconds, outcome, failure, is_reproducible } => {
                let is_out_of_memory =
                    failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Memory);
                let failure = failure.as_ref().map(text_of).transpose()?;
                self.execute(
                    "UPDATE build SET ended = ?2, outcome = ?3, failure = ?4, reproducible = ?5
                     WHERE number = ?1",
                    params![*build as i64, at_seconds, outcome.as_str(), failure, is_reproducible],
                )?;
                let about = About { build: Some(*build), ..About::default() };
                self.event("build-ended", about, *at_seconds, None)?;
                let is_good = outcome.is_good();
                if is_good || is_out_of_memory {
                    self.measured(*build, is_out_of_memory)?;
                }
                if is_good {
                    self.execute(
                        "INSERT OR REPLACE INTO duration (scope, package, wall, cpu)
                         SELECT ?3, package, ?2 - started,
                                (SELECT coalesce(sum(result ->> '$.cpu_seconds'), 0)
                                 FROM stage WHERE stage.build = build.number)
                         FROM build WHERE number = ?1",
                        params![*build as i64, at_seconds, self.scope],
                    )?;
                }
            }
            Record::Outputs(current) => self.outputs(current)?,
            Record::Provenance(provenance) => self.provenance(provenance)?,
            Record::KeyConfirmed { package, key } => self.execute(
                "UPDATE current SET key = ?3, key_lines = ?4 WHERE scope = ?1 AND package = ?2",
                params![self.scope, package, key.digest, key.lines.join("\n")],
            )?,
            Record::Run { run, state, at_seconds } => self.run(*run, *state, *at_seconds)?,
            Record::Note(note) => self.note(note)?,
        }
        Ok(())
    }

    fn note(&self, note: &Note) -> Result<()> {
        let Some((kind, body)) = note.parts() else { return Ok(()) };
        let about = About { run: note.run, build: note.build, ..About::default() };
        self.event(kind, about, note.at_seconds, Some(&body))
    }

    fn execute(&self, sql: &str, values: &[&dyn ToSql]) -> Result<()> {
        self.transaction.prepare_cached(sql)?.execute(values).map(|_| ())
    }

    /// Adds an event about the other rows that this transaction writes.
    fn event(&self, kind: &str, about: About, at_seconds: f64, body: Option<&Value>) -> Result<()> {
        self.execute(
            "INSERT INTO event (epoch, type, version, scope, run, package, build, place, at, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                self.epoch as i64,
                kind,
                EVENT_VERSION,
                self.scope,
                about.run.map(|run| run as i64),
                about.package,
                about.build.map(|build| build as i64),
                about.place,
                at_seconds,
                body.map(Value::to_string)
            ],
        )
    }

    fn run(&self, run: Number, state: RunState, at_seconds: f64) -> Result<()> {
        let is_over = state != RunState::Running;
        self.execute(
            "UPDATE run SET state = ?2, ended = ?3 WHERE number = ?1",
            params![run as i64, state.as_str(), is_over.then_some(at_seconds)],
        )?;
        let about = About { run: Some(run), ..About::default() };
        if !is_over {
            return self.event("run-began", about, at_seconds, Some(&json!({ "is_resumed": true })));
        }
        self.event("run-ended", about, at_seconds, Some(&json!({ "state": state.as_str() })))?;
        // Old events are removed at the end of a run, so that its start is not delayed.
        self.execute(
            "DELETE FROM event WHERE seq < (
               SELECT min(seq) FROM event WHERE type = 'run-began' AND run > (SELECT max(number) FROM run) - ?1
             )",
            params![EVENT_RUNS_MAX as i64],
        )
    }

    /// Adds the measurement of a build to those of the package's earlier builds.
    fn measured(&self, build: Number, is_out_of_memory: bool) -> Result<()> {
        let mut select =
            self.transaction.prepare_cached("SELECT result FROM stage WHERE build = ?1 ORDER BY position")?;
        let stages = select.query_map([build as i64], |row| {
            let text = row.get_ref(0)?.as_str()?;
            serde_json::from_str(text).map_err(unreadable)
        })?;
        let stages = stages.collect::<Result<Vec<StageResult>>>()?;
        let (package, cores): (String, u32) = self.transaction.query_row(
            "SELECT package, cores FROM build WHERE number = ?1",
            [build as i64],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut kept = self
            .transaction
            .prepare_cached("SELECT builds FROM measured WHERE scope = ?1 AND package = ?2")?;
        let kept = kept.query_row(params![self.scope, package], |row| row.get::<_, String>(0)).optional()?;
        let mut builds: Vec<Measurement> = match kept {
            Some(text) => serde_json::from_str(&text).map_err(unreadable)?,
            None => Vec::new(),
        };
        Measurement::of(&stages, cores, is_out_of_memory).add_to(&mut builds);
        self.execute(
            "INSERT OR REPLACE INTO measured (scope, package, builds) VALUES (?1, ?2, ?3)",
            params![self.scope, package, text_of(&builds)?],
        )
    }

    fn build_began(&self, build: &BuildRow) -> Result<(), Refused> {
        let number = build.number as i64;
        // Numbers only increase, so that none is used again, even if its row was removed.
        let is_free = self
            .transaction
            .prepare_cached("UPDATE store SET builds = ?1 WHERE builds < ?1")?
            .execute([number])?
            == 1;
        if !is_free {
            return Err(Refused::Used(format!("build {number} or a later one")));
        }
        let attempt = build.attempt.map(|attempt| attempt.to_string());
        let is_used: bool = self
            .transaction
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM build WHERE attempt = ?1)")?
            .query_row([&attempt], |row| row.get(0))?;
        if let (true, Some(attempt)) = (is_used, &attempt) {
            return Err(Refused::Used(format!("attempt {attempt}")));
        }
        self.execute(
            "INSERT INTO build (number, run, package, version, slot, key, started, outcome, attempt, worker,
                                cores, scope, kernel, cpu)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![
                number,
                build.run as i64,
                build.package,
                build.version,
                build.slot,
                build.key,
                build.started_seconds,
                build.outcome.as_str(),
                attempt,
                build.worker,
                build.cores,
                self.scope,
                build.host.as_ref().map(|host| &host.kernel),
                build.host.as_ref().map(|host| &host.cpu)
            ],
        )?;
        let about = About { build: Some(build.number), ..About::default() };
        Ok(self.event("build-began", about, build.started_seconds, None)?)
    }

    fn provenance(&self, provenance: &Provenance) -> Result<()> {
        let Provenance { package, build, worker, pool, signed } = provenance;
        let statement = zstd::encode_all(signed.statement.as_bytes(), COMPRESSION)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        self.execute(
            "INSERT OR REPLACE INTO provenance
               (scope, package, build, worker, pool, key, signature, statement)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                self.scope,
                package,
                *build as i64,
                worker,
                pool,
                signed.key,
                signed.signature,
                statement
            ],
        )
    }

    fn outputs(&self, current: &Current) -> Result<()> {
        self.execute(
            "DELETE FROM provenance WHERE scope = ?1 AND package = ?2",
            params![self.scope, current.package],
        )?;
        self.execute(
            "INSERT OR REPLACE INTO current (scope, package, build, recipe_version, revision, key, key_lines)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                self.scope,
                current.package,
                current.build as i64,
                current.recipe_version,
                current.revision,
                current.key.digest,
                current.key.lines.join("\n")
            ],
        )?;
        self.execute(
            "DELETE FROM output WHERE scope = ?1 AND package = ?2",
            params![self.scope, current.package],
        )?;
        for output in &current.outputs {
            self.execute(
                "INSERT INTO output (scope, package, name, output) VALUES (?1, ?2, ?3, ?4)",
                params![self.scope, current.package, output.name, text_of(output)?],
            )?;
        }
        Ok(())
    }
}

fn unreadable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
}

pub(super) fn import_durations(
    connection: &mut Connection,
    scope: i64,
    durations: &[(String, f64, f64)],
) -> Result<()> {
    let transaction = begin(connection)?;
    {
        let mut insert = transaction.prepare_cached(
            "INSERT OR REPLACE INTO imported_duration (scope, package, wall, cpu) VALUES (?1, ?2, ?3, ?4)",
        )?;
        for (package, wall_seconds, cpu_seconds) in durations {
            insert.execute(params![scope, package, wall_seconds, cpu_seconds])?;
        }
    }
    transaction.commit()
}

pub(super) fn request(
    connection: &mut Connection,
    scope: i64,
    (kind, package, author): (RequestKind, &str, &str),
    at_seconds: f64,
) -> Result<()> {
    let transaction = begin(connection)?;
    transaction.execute(
        "INSERT INTO request (kind, package, at, scope) VALUES (?1, ?2, ?3, ?4)",
        params![kind.as_str(), package, at_seconds, scope],
    )?;
    // A process that leaves a request is not the leader, so the event gets the current epoch.
    let epoch: i64 = transaction.query_row("SELECT epoch FROM store", [], |row| row.get(0))?;
    let writer = Writer { transaction: &transaction, scope, epoch: epoch as Number };
    let about = About { package: Some(package), ..About::default() };
    writer.event(
        "requested",
        about,
        at_seconds,
        Some(&json!({ "request": kind.as_str(), "author": author })),
    )?;
    transaction.commit()
}

pub(super) fn note(connection: &mut Connection, scope: i64, note: &Note) -> Result<()> {
    let transaction = begin(connection)?;
    let epoch: i64 = transaction.query_row("SELECT epoch FROM store", [], |row| row.get(0))?;
    Writer { transaction: &transaction, scope, epoch: epoch as Number }.note(note)?;
    transaction.commit()
}

pub(super) fn take_requests(connection: &mut Connection, scope: i64) -> Result<Vec<Request>> {
    // This is called many times a second, mostly without a request. Then nothing is written, so it works on a full
    // disk.
    let sql = "SELECT EXISTS (SELECT 1 FROM request WHERE scope = ?1)";
    let is_any: bool = connection.query_row(sql, [scope], |row| row.get(0))?;
    if !is_any {
        return Ok(Vec::new());
    }
    let transaction = begin(connection)?;
    let requests = {
        let mut select = transaction
            .prepare_cached("SELECT kind, package FROM request WHERE scope = ?1 ORDER BY number")?;
        let rows = select.query_map([scope], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
        rows.filter_map(|row| match row {
            Ok((kind, package)) => RequestKind::parse(&kind).map(|kind| Ok(Request { kind, package })),
            Err(error) => Some(Err(error)),
        })
        .collect::<Result<Vec<_>>>()?
    };
    transaction.execute("DELETE FROM request WHERE scope = ?1", [scope])?;
    transaction.commit()?;
    Ok(requests)
}

pub(super) fn save_plan(connection: &mut Connection, scope: i64, plan: &Plan) -> Result<()> {
    let transaction = begin(connection)?;
    transaction.execute("DELETE FROM plan WHERE scope = ?1", [scope])?;
    transaction.execute("DELETE FROM plan_package WHERE scope = ?1", [scope])?;
    transaction.execute(
        "INSERT INTO plan (digest, made, expected, bound, cuts, path, remarks, scope)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            plan.digest,
            plan.made_seconds,
            plan.expected_seconds,
            plan.bound_seconds,
            plan.cuts.join("\n"),
            plan.path.join(" "),
            plan.remarks.join("\n"),
            scope
        ],
    )?;
    {
        let mut insert = transaction.prepare_cached(
            "INSERT INTO plan_package (name, version, state, reason, blamed, estimate, rank, dependencies, why, scope)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        for PlanRow { package: row, dependencies } in &plan.packages {
            insert.execute(params![
                row.name,
                row.version,
                row.state.as_str(),
                row.reason.to_string(),
                row.blamed,
                row.estimate_seconds,
                row.rank_seconds,
                dependencies.join(" "),
                text_of(&row.reason)?,
                scope
            ])?;
        }
    }
    transaction.commit()
}
