//! Writes rows. Each function is one transaction.

use super::Postgres;
use super::batch::{self, Batch, Changed, Ended, EventRow};
use super::lead::NO_TIMELINE;
use super::link::{Failed, Link, Statement, reals, sql, texts};
use super::partition;
use kilnyard_model::result::FailureKind;
use kilnyard_store::Provenance;
use kilnyard_store::{
    BuildRow, Current, EVENT_RUNS_MAX, Note, Number, PackageRow, Plan, Record, Request, RequestKind, RunRow,
    RunState, StoreError,
};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};
use tokio_postgres::Row;

/// How long the leader tries to write a decision, over as many connections as that takes.
const WRITE_PATIENCE: Duration = Duration::from_secs(300);
/// How long other writers try.
const OTHERS_PATIENCE: Duration = Duration::from_secs(20);
/// The level of zstd for statements, which are mostly digits of hashes.
const COMPRESSION: i32 = 3;

/// Why nothing was written.
pub(super) enum Refused {
    Database(Failed),
    /// A number or attempt was used before.
    Used(String),
    /// A value cannot be encoded, or a stored one cannot be decoded.
    Value(&'static str, String),
    /// Another process is the leader, with this epoch.
    Fenced(Number),
    /// Another server has taken the place of the one that this process became the leader in.
    Replaced,
}

impl From<Failed> for Refused {
    fn from(failed: Failed) -> Refused {
        Refused::Database(failed)
    }
}

impl From<tokio_postgres::Error> for Refused {
    fn from(error: tokio_postgres::Error) -> Refused {
        Refused::Database(error.into())
    }
}

fn text_of(value: &impl serde::Serialize) -> Result<String, Refused> {
    serde_json::to_string(value).map_err(|error| Refused::Value("a value", error.to_string()))
}

fn value_of(value: &impl serde::Serialize) -> Result<Value, Refused> {
    serde_json::to_value(value).map_err(|error| Refused::Value("a value", error.to_string()))
}

impl Postgres {
    fn refused(&self, refused: Refused) -> StoreError {
        match refused {
            Refused::Database(failed) => match failed.violated() {
                Some("build_attempt") => StoreError::Used {
                    store: self.address.to_string(),
                    what: format!("an attempt of these builds: {failed}"),
                },
                _ => self.wrap(failed),
            },
            Refused::Used(what) => StoreError::Used { store: self.address.to_string(), what },
            Refused::Value(what, reason) => self.unreadable(what, reason),
            Refused::Replaced => StoreError::Replaced { store: self.address.to_string() },
            Refused::Fenced(latest) => {
                StoreError::Fenced { store: self.address.to_string(), own: self.epoch, latest }
            }
        }
    }

    /// Writes as the leader, all or nothing, and once: if the answer to the commit is lost, the next connection tells
    /// whether the transaction was committed.
    pub(super) fn write<T>(
        &mut self,
        write: impl Fn(&Writer) -> Result<T, Refused>,
    ) -> Result<T, StoreError> {
        self.batches += 1;
        // Epochs are used once, and by one store each.
        let batch = format!("{}-{}", self.epoch, self.batches);
        let end = Instant::now() + WRITE_PATIENCE;
        let mut unanswered = None;
        loop {
            let outcome = self.over(|link| Ok(self.try_to_write(link, &batch, &write, &mut unanswered)));
            match outcome.unwrap_or_else(|failed| Err(Refused::Database(failed))) {
                Ok(written) => return Ok(written),
                Err(Refused::Database(failed)) if failed.is_of_connection() && Instant::now() < end => {
                    *self.link.borrow_mut() = None;
                }
                Err(refused) => return Err(self.refused(refused)),
            }
        }
    }

    /// Tries to write. `unanswered` has the result of a commit whose answer was lost.
    fn try_to_write<T>(
        &self,
        link: &Link,
        batch: &str,
        write: &impl Fn(&Writer) -> Result<T, Refused>,
        unanswered: &mut Option<T>,
    ) -> Result<T, Refused> {
        let head = begin(link, self.timeline_of(link)?)?;
        let is_here = head.batch == batch && head.timeline == self.timeline;
        let written = match unanswered.take().filter(|_| is_here) {
            Some(written) => Ok(Some(written)),
            None if self.epoch == 0 || head.epoch > self.epoch => Err(Refused::Fenced(head.epoch)),
            // The other server may lack this leader's latest records, and even its lead.
            None if head.epoch != self.epoch || head.timeline != self.timeline => Err(Refused::Replaced),
            None => Ok(None),
        };
        let written = match written {
            Ok(None) => self.written(link, batch, head, write),
            Ok(Some(written)) => {
                link.batch("ROLLBACK")?;
                return Ok(written);
            }
            Err(refused) => Err(refused),
        };
        match written {
            Ok(written) => match link.batch("COMMIT") {
                Ok(()) => Ok(written),
                Err(failed) => {
                    *unanswered = Some(written);
                    Err(failed.into())
                }
            },
            Err(refused) => {
                // If this fails too, the connection is not used again.
                if let (Err(failed), false) = (link.batch("ROLLBACK"), is_of_connection(&refused)) {
                    return Err(failed.into());
                }
                Err(refused)
            }
        }
    }

    fn written<T>(
        &self,
        link: &Link,
        batch: &str,
        head: Head,
        write: &impl Fn(&Writer) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let before = head.counters.events;
        let writer = Writer::new(link, self.number, head);
        let written = write(&writer)?;
        writer.collected()?;
        let Counters { builds, runs, events } = writer.counters.get();
        writer.add(sql!(
            "UPDATE kilnyard.store
             SET builds = $1, runs = $2, events = $3, batch = $4, renewed = clock_timestamp()",
            builds,
            runs,
            events,
            batch
        ));
        if events > before {
            writer.add(self.notify());
        }
        writer.flush()?;
        Ok(written)
    }

    /// Writes without being the leader. If the answer to the commit is lost, it is written again, which must change nothing.
    fn write_too<T>(&self, write: impl Fn(&Writer) -> Result<T, Refused>) -> Result<T, StoreError> {
        let end = Instant::now() + OTHERS_PATIENCE;
        let attempt = |link: &Link| {
            let head = begin(link, NO_TIMELINE)?;
            let before = head.counters.events;
            let writer = Writer::new(link, self.number, head);
            let written = write(&writer).and_then(|written| {
                writer.collected()?;
                let events = writer.counters.get().events;
                if events > before {
                    writer.add(sql!("UPDATE kilnyard.store SET events = $1", events));
                    writer.add(self.notify());
                }
                writer.flush()?;
                Ok(written)
            });
            link.batch(if written.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
            written
        };
        loop {
            let outcome = self.over(|link| Ok(attempt(link)));
            match outcome.unwrap_or_else(|failed| Err(Refused::Database(failed))) {
                Err(Refused::Database(failed)) if failed.is_of_connection() && Instant::now() < end => {
                    *self.link.borrow_mut() = None;
                }
                outcome => return outcome.map_err(|refused| self.refused(refused)),
            }
        }
    }

    pub(super) fn write_durations(&self, durations: &[(String, f64, f64)]) -> Result<(), StoreError> {
        // A statement must not write a row twice: the last one counts.
        let last: std::collections::BTreeMap<&String, (f64, f64)> =
            durations.iter().map(|(package, wall, cpu)| (package, (*wall, *cpu))).collect();
        let statement = sql!(
            "INSERT INTO kilnyard.imported_duration (scope, package, wall, cpu)
             SELECT $1, * FROM unnest($2, $3, $4)
             ON CONFLICT (scope, package) DO UPDATE SET wall = excluded.wall, cpu = excluded.cpu",
            self.number,
            texts(&last.keys().collect::<Vec<_>>(), |package| Some((**package).clone())),
            reals(&last.values().collect::<Vec<_>>(), |times| times.0),
            reals(&last.values().collect::<Vec<_>>(), |times| times.1),
        );
        self.write_too(|writer| {
            writer.add(statement.clone());
            Ok(())
        })
    }

    pub(super) fn write_request(
        &self,
        (kind, package, author): (RequestKind, &str, &str),
        at_seconds: f64,
    ) -> Result<(), StoreError> {
        self.write_too(|writer| {
            writer.add(sql!(
                "INSERT INTO kilnyard.request (scope, kind, package, at) VALUES ($1, $2, $3, $4)",
                self.number,
                kind.as_str(),
                package,
                at_seconds
            ));
            // A process that leaves a request is not the leader, so the event gets the current epoch.
            let about = About { package: Some(package), ..About::default() };
            writer.event(
                "requested",
                about,
                at_seconds,
                Some(&json!({ "request": kind.as_str(), "author": author })),
            );
            Ok(())
        })
    }

    pub(super) fn write_note(&self, note: &Note) -> Result<(), StoreError> {
        self.write_too(|writer| {
            writer.note(note);
            Ok(())
        })
    }

    pub(super) fn remove_requests(&self) -> Result<Vec<Request>, StoreError> {
        // This is called many times a second, mostly without a request. Then nothing is written, so it works on a full disk.
        let select = "SELECT number FROM kilnyard.request WHERE scope = $1 LIMIT 1";
        if self.rows(sql!(select, self.number))?.is_empty() {
            return Ok(Vec::new());
        }
        // One statement is a transaction. Of two takers, the second waits for the first, and finds nothing. If the answer is
        // lost, so are the requests: their users see that nothing happened.
        let delete =
            "WITH taken AS (DELETE FROM kilnyard.request WHERE scope = $1 RETURNING number, kind, package)
                      SELECT kind, package FROM taken ORDER BY number";
        let rows = self.rows(sql!(delete, self.number))?;
        let request = |row: &Row| {
            let (kind, package) = (self.get::<String>(row, 0)?, self.get::<String>(row, 1)?);
            Ok(RequestKind::parse(&kind).map(|kind| Request { kind, package }))
        };
        rows.iter().filter_map(|row| request(row).transpose()).collect()
    }

    pub(super) fn write_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        let scope = self.number;
        let reasons = plan.packages.iter().map(|row| text_of(&row.package.reason));
        let reasons: Vec<String> =
            reasons.collect::<Result<_, Refused>>().map_err(|refused| self.refused(refused))?;
        let of =
            |text: fn(&PackageRow) -> Option<String>| texts(&plan.packages, move |row| text(&row.package));
        let statements = [
            sql!("DELETE FROM kilnyard.plan WHERE scope = $1", scope),
            sql!("DELETE FROM kilnyard.plan_package WHERE scope = $1", scope),
            sql!(
                "INSERT INTO kilnyard.plan (scope, digest, made, expected, bound, cuts, path, remarks)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                scope,
                &plan.digest,
                plan.made_seconds,
                plan.expected_seconds,
                plan.bound_seconds,
                plan.cuts.join("\n"),
                plan.path.join(" "),
                plan.remarks.join("\n"),
            ),
            sql!(
                "INSERT INTO kilnyard.plan_package
                   (scope, name, version, state, reason, blamed, estimate, rank, dependencies, why)
                 SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10)",
                scope,
                of(|row| Some(row.name.clone())),
                of(|row| Some(row.version.clone())),
                of(|row| Some(row.state.as_str().to_owned())),
                of(|row| Some(row.reason.to_string())),
                of(|row| row.blamed.clone()),
                reals(&plan.packages, |row| row.package.estimate_seconds),
                reals(&plan.packages, |row| row.package.rank_seconds),
                texts(&plan.packages, |row| Some(row.dependencies.join(" "))),
                texts(&reasons, |reason| Some(reason.clone())),
            ),
        ];
        self.write_too(|writer| {
            statements.iter().for_each(|statement| writer.add(statement.clone()));
            Ok(())
        })
    }
}

fn is_of_connection(refused: &Refused) -> bool {
    matches!(refused, Refused::Database(failed) if failed.is_of_connection())
}

/// The row of the store, locked until the transaction ends.
struct Head {
    epoch: Number,
    /// That of the server now.
    timeline: i64,
    batch: String,
    counters: Counters,
}

/// The highest numbers that were used.
#[derive(Clone, Copy)]
struct Counters {
    builds: Number,
    runs: Number,
    events: Number,
}

/// Begins a transaction that writes, and waits for those of others.
fn begin(link: &Link, timeline: &str) -> Result<Head, Refused> {
    let head =
        format!("SELECT epoch, batch, builds, runs, events, {timeline} FROM kilnyard.store FOR UPDATE");
    let rows = link.all(&[sql!("BEGIN"), sql!(head)])?;
    let row = rows.last().and_then(|rows| rows.first());
    let row = row.ok_or_else(|| Refused::Value("a store", "its row is missing".to_owned()))?;
    let number = |column| row.try_get::<_, i64>(column).map(|number| number as Number);
    let counters = Counters { builds: number(2)?, runs: number(3)?, events: number(4)? };
    Ok(Head { epoch: number(0)?, timeline: row.try_get(5)?, batch: row.try_get(1)?, counters })
}

/// The transaction of a decision. Its statements are collected, and sent together.
pub(super) struct Writer<'a> {
    link: &'a Link,
    scope: i64,
    epoch: Number,
    counters: Cell<Counters>,
    statements: RefCell<Vec<Statement>>,
    batch: RefCell<Batch>,
}

/// The rows that an event is about, in addition to its scope.
#[derive(Default)]
struct About<'a> {
    run: Option<Number>,
    package: Option<&'a str>,
    build: Option<Number>,
}

impl Writer<'_> {
    fn new(link: &Link, scope: i64, head: Head) -> Writer<'_> {
        let counters = Cell::new(head.counters);
        let (statements, batch) = (RefCell::default(), RefCell::default());
        Writer { link, scope, epoch: head.epoch, counters, statements, batch }
    }

    fn add(&self, statement: Statement) {
        self.statements.borrow_mut().push(statement);
    }

    /// Sends the collected statements. Returns the rows of the last one.
    fn flush(&self) -> Result<Vec<Row>, Refused> {
        let statements = self.statements.take();
        Ok(self.link.all(&statements)?.pop().unwrap_or_default())
    }

    /// Adds the statements for the rows that were collected.
    fn collected(&self) -> Result<(), Refused> {
        let mut batch = self.batch.borrow_mut();
        self.statements.borrow_mut().extend(batch.statements(self.scope, self.epoch));
        if !batch.ended.is_empty() {
            self.flush()?;
            let statements = batch::measured(self.link, self.scope, &std::mem::take(&mut batch.ended))?;
            self.statements.borrow_mut().extend(statements);
        }
        Ok(())
    }

    fn count(&self, count: impl FnOnce(&mut Counters)) -> Counters {
        let mut counters = self.counters.get();
        count(&mut counters);
        self.counters.set(counters);
        counters
    }

    pub(super) fn begin_run(&self, run: &RunRow, packages: &[PackageRow]) -> Result<Number, Refused> {
        let number = self.count(|counters| counters.runs += 1).runs;
        let last = partition::begin(self.link, self.counters.get().events)?;
        self.count(|counters| counters.events = last);
        self.add(sql!(
            "INSERT INTO kilnyard.run
               (number, started, ended, state, plan_digest, cores, slots, expected, bound, forced, commits,
                scope)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            number,
            run.started_seconds,
            run.ended_seconds,
            run.state.as_str(),
            &run.plan_digest,
            run.cores,
            run.slots,
            run.expected_seconds,
            run.bound_seconds,
            run.forced.as_ref().map(text_of).transpose()?,
            text_of(&run.commits)?,
            self.scope,
        ));
        self.insert_packages(number, packages)?;
        let about = About { run: Some(number), ..About::default() };
        self.event("run-began", about, run.started_seconds, Some(&json!({ "is_resumed": false })));
        Ok(number)
    }

    /// Adds packages to a run that it lacks.
    fn insert_packages(&self, run: Number, packages: &[PackageRow]) -> Result<(), Refused> {
        let reasons: Vec<String> =
            packages.iter().map(|row| text_of(&row.reason)).collect::<Result<_, Refused>>()?;
        self.add(sql!(
            "INSERT INTO kilnyard.run_package (run, name, version, state, reason, blamed, estimate, rank, why)
             SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT (run, name) DO NOTHING",
            run,
            texts(packages, |row| Some(row.name.clone())),
            texts(packages, |row| Some(row.version.clone())),
            texts(packages, |row| Some(row.state.as_str().to_owned())),
            texts(packages, |row| Some(row.reason.to_string())),
            texts(packages, |row| row.blamed.clone()),
            reals(packages, |row| row.estimate_seconds),
            reals(packages, |row| row.rank_seconds),
            texts(&reasons, |reason| Some(reason.clone())),
        ));
        Ok(())
    }

    pub(super) fn record(&self, record: &Record) -> Result<(), Refused> {
        match record {
            Record::Package { run, name, state, reason, blamed, at_seconds } => {
                let changed = Changed {
                    state: state.as_str(),
                    reason: reason.to_string(),
                    blamed: blamed.clone(),
                    why: text_of(reason)?,
                };
                self.batch.borrow_mut().changed.insert((*run, name.clone()), changed);
                let body = json!({ "state": state, "reason": value_of(reason)?, "blamed": blamed });
                let about = About { run: Some(*run), package: Some(name), ..About::default() };
                self.event("package", about, *at_seconds, Some(&body));
            }
            Record::PackageAdded { run, row } => {
                self.insert_packages(*run, std::slice::from_ref(row))?;
            }
            Record::BuildBegan(build) => self.build_began(build)?,
            Record::StageEnded { build, at_seconds, stage } => {
                self.batch.borrow_mut().stages.push((*build, text_of(stage)?));
                self.event(
                    "stage-ended",
                    About { build: Some(*build), ..About::default() },
                    *at_seconds,
                    None,
                );
            }
            Record::BuildEnded { build, at_seconds, outcome, failure, is_reproducible } => {
                let is_out_of_memory =
                    failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Memory);
                self.add(sql!(
                    "UPDATE kilnyard.build SET ended = $2, outcome = $3, failure = $4, reproducible = $5
                     WHERE number = $1",
                    *build,
                    *at_seconds,
                    outcome.as_str(),
                    failure.as_ref().map(text_of).transpose()?,
                    *is_reproducible,
                ));
                let about = About { build: Some(*build), ..About::default() };
                self.event("build-ended", about, *at_seconds, None);
                if outcome.is_good() || is_out_of_memory {
                    let ended = Ended { build: *build, at_seconds: *at_seconds, is_out_of_memory };
                    self.batch.borrow_mut().ended.push(ended);
                }
            }
            Record::Outputs(current) => self.outputs(current)?,
            Record::Provenance(provenance) => self.provenance(provenance)?,
            Record::KeyConfirmed { package, key } => self.add(sql!(
                "UPDATE kilnyard.current SET key = $3, key_lines = $4 WHERE scope = $1 AND package = $2",
                self.scope,
                package,
                &key.digest,
                key.lines.join("\n"),
            )),
            Record::Run { run, state, at_seconds } => self.run(*run, *state, *at_seconds)?,
            Record::Note(note) => self.note(note),
        }
        Ok(())
    }

    fn note(&self, note: &Note) {
        let Some((kind, body)) = note.parts() else { return };
        let about = About { run: note.run, build: note.build, ..About::default() };
        self.event(kind, about, note.at_seconds, Some(&body));
    }

    /// Adds an event about the other rows that this transaction writes.
    fn event(&self, kind: &'static str, about: About, at_seconds: f64, body: Option<&Value>) {
        self.batch.borrow_mut().events.push(EventRow {
            seq: self.count(|counters| counters.events += 1).events,
            kind,
            run: about.run,
            package: about.package.map(str::to_owned),
            build: about.build,
            at_seconds,
            body: body.map(Value::to_string),
            is_of_stage: kind == "stage-ended",
        });
    }

    fn run(&self, run: Number, state: RunState, at_seconds: f64) -> Result<(), Refused> {
        let is_over = state != RunState::Running;
        self.add(sql!(
            "UPDATE kilnyard.run SET state = $2, ended = $3 WHERE number = $1",
            run,
            state.as_str(),
            is_over.then_some(at_seconds),
        ));
        let about = About { run: Some(run), ..About::default() };
        if !is_over {
            self.event("run-began", about, at_seconds, Some(&json!({ "is_resumed": true })));
            return Ok(());
        }
        self.event("run-ended", about, at_seconds, Some(&json!({ "state": state.as_str() })));
        // Old events are removed at the end of a run, so that its start is not delayed.
        self.collected()?;
        self.add(sql!(
            "SELECT min(seq) FROM kilnyard.event
             WHERE type = 'run-began' AND run > (SELECT max(number) FROM kilnyard.run) - $1",
            EVENT_RUNS_MAX,
        ));
        let first = match self.flush()?.first() {
            Some(row) => row.try_get::<_, Option<i64>>(0)?,
            None => None,
        };
        first.map_or(Ok(()), |first| Ok(partition::remove_before(self.link, first as Number)?))
    }

    fn build_began(&self, build: &BuildRow) -> Result<(), Refused> {
        // Numbers only increase, so that none is used again, even if its row was removed.
        if self.counters.get().builds >= build.number {
            return Err(Refused::Used(format!("build {} or a later one", build.number)));
        }
        self.count(|counters| counters.builds = build.number);
        self.add(sql!(
            "INSERT INTO kilnyard.build (number, run, package, version, slot, key, started, outcome, attempt, worker,
                                         cores, scope, kernel, cpu)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
            build.number,
            build.run,
            &build.package,
            &build.version,
            build.slot,
            &build.key,
            build.started_seconds,
            build.outcome.as_str(),
            build.attempt.map(|attempt| attempt.to_string()),
            build.worker.as_deref(),
            build.cores,
            self.scope,
            build.host.as_ref().map(|host| host.kernel.as_str()),
            build.host.as_ref().map(|host| host.cpu.as_str()),
        ));
        let about = About { build: Some(build.number), ..About::default() };
        self.event("build-began", about, build.started_seconds, None);
        Ok(())
    }

    fn provenance(&self, provenance: &Provenance) -> Result<(), Refused> {
        let Provenance { package, build, worker, pool, signed } = provenance;
        let statement = zstd::encode_all(signed.statement.as_bytes(), COMPRESSION)
            .map_err(|error| Refused::Value("a statement", error.to_string()))?;
        self.add(sql!(
            "INSERT INTO kilnyard.provenance (scope, package, build, worker, pool, key, signature, statement)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (scope, package) DO UPDATE
             SET build = excluded.build, worker = excluded.worker, pool = excluded.pool, key = excluded.key,
                 signature = excluded.signature, statement = excluded.statement",
            self.scope,
            package,
            *build,
            worker,
            pool,
            &signed.key,
            &signed.signature,
            statement,
        ));
        Ok(())
    }

    fn outputs(&self, current: &Current) -> Result<(), Refused> {
        let (scope, package) = (self.scope, &current.package);
        self.add(sql!("DELETE FROM kilnyard.provenance WHERE scope = $1 AND package = $2", scope, package));
        self.add(sql!(
            "INSERT INTO kilnyard.current (scope, package, build, recipe_version, revision, key, key_lines)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (scope, package) DO UPDATE
             SET build = excluded.build, recipe_version = excluded.recipe_version, revision = excluded.revision,
                 key = excluded.key, key_lines = excluded.key_lines",
            scope,
            package,
            current.build,
            &current.recipe_version,
            current.revision,
            &current.key.digest,
            current.key.lines.join("\n"),
        ));
        self.add(sql!("DELETE FROM kilnyard.output WHERE scope = $1 AND package = $2", scope, package));
        for output in &current.outputs {
            self.add(sql!(
                "INSERT INTO kilnyard.output (scope, package, name, output) VALUES ($1, $2, $3, $4)",
                scope,
                package,
                &output.name,
                text_of(output)?,
            ));
        }
        Ok(())
    }
}
