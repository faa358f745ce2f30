//! Writing, each function one transaction.

use kilnyard_model::result::{FailureKind, StageResult};
use kilnyard_store::{
    BuildRow, Current, MEASURED_MAX, Measurement, Number, PackageRow, Plan, PlanRow, Record, Request,
    RequestKind, RunRow,
};
use rusqlite::{Connection, OptionalExtension, Result, ToSql, Transaction, TransactionBehavior, params};

fn begin(connection: &mut Connection) -> Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

pub(super) fn begin_run(
    connection: &mut Connection,
    run: &RunRow,
    packages: &[PackageRow],
) -> Result<Number> {
    let transaction = begin(connection)?;
    transaction.execute(
        "INSERT INTO run (started, ended, state, plan_digest, cores, slots, expected, bound, forced)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            run.started_seconds,
            run.ended_seconds,
            run.state.as_str(),
            run.plan_digest,
            run.cores,
            run.slots,
            run.expected_seconds,
            run.bound_seconds,
            run.forced.as_ref().map(json).transpose()?
        ],
    )?;
    let number = transaction.last_insert_rowid();
    {
        let mut insert = transaction.prepare_cached(
            "INSERT INTO run_package (run, name, version, state, reason, blamed, estimate, rank, why)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        for row in packages {
            insert.execute(params![
                number,
                row.name,
                row.version,
                row.state.as_str(),
                row.reason.to_string(),
                row.blamed,
                row.estimate_seconds,
                row.rank_seconds,
                json(&row.reason)?
            ])?;
        }
    }
    transaction.commit()?;
    Ok(number as Number)
}

pub(super) fn record(connection: &mut Connection, records: &[Record]) -> Result<()> {
    let transaction = begin(connection)?;
    for record in records {
        write(&transaction, record)?;
    }
    transaction.commit()
}

fn execute(transaction: &Transaction, sql: &str, values: &[&dyn ToSql]) -> Result<()> {
    transaction.prepare_cached(sql)?.execute(values).map(|_| ())
}

fn write(transaction: &Transaction, record: &Record) -> Result<()> {
    match record {
        Record::Package { run, name, state, reason, blamed } => execute(
            transaction,
            "UPDATE run_package SET state = ?3, reason = ?4, blamed = ?5, why = ?6 WHERE run = ?1 AND name = ?2",
            params![*run as i64, name, state.as_str(), reason.to_string(), blamed, json(reason)?],
        ),
        Record::BuildBegan(build) => build_began(transaction, build),
        Record::StageEnded { build, stage } => execute(
            transaction,
            "INSERT INTO stage (build, position, result)
             VALUES (?1, (SELECT count(*) FROM stage WHERE build = ?1), ?2)",
            params![*build as i64, json(stage)?],
        ),
        Record::BuildEnded { build, at_seconds, outcome, failure, is_reproducible } => {
            let is_out_of_memory =
                failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Memory);
            let failure = failure.as_ref().map(json).transpose()?;
            execute(
                transaction,
                "UPDATE build SET ended = ?2, outcome = ?3, failure = ?4, reproducible = ?5 WHERE number = ?1",
                params![*build as i64, at_seconds, outcome.as_str(), failure, is_reproducible],
            )?;
            let is_good = outcome.is_good();
            if is_good || is_out_of_memory {
                measured(transaction, *build, is_out_of_memory)?;
            }
            if !is_good {
                return Ok(());
            }
            execute(
                transaction,
                "INSERT OR REPLACE INTO duration (package, wall, cpu)
                 SELECT package, ?2 - started, (SELECT coalesce(sum(result ->> '$.cpu_seconds'), 0)
                                                FROM stage WHERE stage.build = build.number)
                 FROM build WHERE number = ?1",
                params![*build as i64, at_seconds],
            )
        }
        Record::Outputs(current) => outputs(transaction, current),
        Record::KeyConfirmed { package, key } => execute(
            transaction,
            "UPDATE current SET key = ?2, key_lines = ?3 WHERE package = ?1",
            params![package, key.digest, key.lines.join("\n")],
        ),
        Record::Run { run, state, ended_seconds } => execute(
            transaction,
            "UPDATE run SET state = ?2, ended = ?3 WHERE number = ?1",
            params![*run as i64, state.as_str(), ended_seconds],
        ),
    }
}

/// Keeps what a build took beside what those before it took.
fn measured(transaction: &Transaction, build: Number, is_out_of_memory: bool) -> Result<()> {
    let mut select =
        transaction.prepare_cached("SELECT result FROM stage WHERE build = ?1 ORDER BY position")?;
    let stages = select.query_map([build as i64], |row| {
        let text = row.get_ref(0)?.as_str()?;
        serde_json::from_str(text).map_err(unreadable)
    })?;
    let stages = stages.collect::<Result<Vec<StageResult>>>()?;
    let (package, cores): (String, u32) = transaction.query_row(
        "SELECT package, cores FROM build JOIN run ON run.number = build.run WHERE build.number = ?1",
        [build as i64],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut kept = transaction.prepare_cached("SELECT builds FROM measured WHERE package = ?1")?;
    let kept = kept.query_row([&package], |row| row.get::<_, String>(0)).optional()?;
    let mut builds: Vec<Measurement> = match kept {
        Some(text) => serde_json::from_str(&text).map_err(unreadable)?,
        None => Vec::new(),
    };
    builds.push(Measurement::of(&stages, cores, is_out_of_memory));
    let excess = builds.len().saturating_sub(MEASURED_MAX);
    builds.drain(..excess);
    execute(
        transaction,
        "INSERT OR REPLACE INTO measured (package, builds) VALUES (?1, ?2)",
        params![package, json(&builds)?],
    )
}

fn unreadable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
}

fn build_began(transaction: &Transaction, build: &BuildRow) -> Result<()> {
    execute(
        transaction,
        "INSERT INTO build (number, run, package, version, slot, key, started, outcome)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            build.number as i64,
            build.run as i64,
            build.package,
            build.version,
            build.slot,
            build.key,
            build.started_seconds,
            build.outcome.as_str()
        ],
    )
}

fn outputs(transaction: &Transaction, current: &Current) -> Result<()> {
    execute(
        transaction,
        "INSERT OR REPLACE INTO current (package, build, recipe_version, revision, key, key_lines)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            current.package,
            current.build as i64,
            current.recipe_version,
            current.revision,
            current.key.digest,
            current.key.lines.join("\n")
        ],
    )?;
    execute(transaction, "DELETE FROM output WHERE package = ?1", params![current.package])?;
    for output in &current.outputs {
        execute(
            transaction,
            "INSERT INTO output (package, name, output) VALUES (?1, ?2, ?3)",
            params![current.package, output.name, json(output)?],
        )?;
    }
    Ok(())
}

pub(super) fn import_durations(connection: &mut Connection, durations: &[(String, f64, f64)]) -> Result<()> {
    let transaction = begin(connection)?;
    for (package, wall_seconds, cpu_seconds) in durations {
        execute(
            &transaction,
            "INSERT OR REPLACE INTO imported_duration (package, wall, cpu) VALUES (?1, ?2, ?3)",
            params![package, wall_seconds, cpu_seconds],
        )?;
    }
    transaction.commit()
}

pub(super) fn take_requests(connection: &mut Connection) -> Result<Vec<Request>> {
    // It is asked many times a second, and mostly there is none: nothing is written then, not even on a full disk.
    let is_any: bool = connection.query_row("SELECT EXISTS (SELECT 1 FROM request)", [], |row| row.get(0))?;
    if !is_any {
        return Ok(Vec::new());
    }
    let transaction = begin(connection)?;
    let requests = {
        let mut select = transaction.prepare_cached("SELECT kind, package FROM request ORDER BY number")?;
        let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
        rows.filter_map(|row| match row {
            Ok((kind, package)) => RequestKind::parse(&kind).map(|kind| Ok(Request { kind, package })),
            Err(error) => Some(Err(error)),
        })
        .collect::<Result<Vec<_>>>()?
    };
    transaction.execute("DELETE FROM request", [])?;
    transaction.commit()?;
    Ok(requests)
}

pub(super) fn save_plan(connection: &mut Connection, plan: &Plan) -> Result<()> {
    let transaction = begin(connection)?;
    transaction.execute_batch("DELETE FROM plan; DELETE FROM plan_package;")?;
    transaction.execute(
        "INSERT INTO plan (only, digest, made, expected, bound, cuts, path, remarks)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            plan.digest,
            plan.made_seconds,
            plan.expected_seconds,
            plan.bound_seconds,
            plan.cuts.join("\n"),
            plan.path.join(" "),
            plan.remarks.join("\n")
        ],
    )?;
    {
        let mut insert = transaction.prepare_cached(
            "INSERT INTO plan_package (name, version, state, reason, blamed, estimate, rank, dependencies, why)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
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
                json(&row.reason)?
            ])?;
        }
    }
    transaction.commit()
}
