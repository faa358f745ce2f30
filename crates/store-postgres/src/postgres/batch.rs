//! The rows of a transaction that has many of a kind: changed packages, stages, events and measurements. They are collected, and
//! each kind is written by one statement, since the server parses and plans every statement again.
//!
//! Nothing else in the transaction reads these rows before they are sent.

use super::link::{Failed, Link, Statement, Value, reals, sql, storable, texts};
use super::write::Refused;
use kilnyard_model::result::StageResult;
use kilnyard_store::{EVENT_VERSION, Measurement, Number};
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::Row;

/// An event. Of a stage that ended, only its place is written, which the server counts.
pub(super) struct EventRow {
    pub seq: Number,
    pub kind: &'static str,
    pub run: Option<Number>,
    pub package: Option<String>,
    pub build: Option<Number>,
    pub at_seconds: f64,
    pub body: Option<String>,
    pub is_of_stage: bool,
}

/// The new state of a package.
pub(super) struct Changed {
    pub state: &'static str,
    pub reason: String,
    pub blamed: Option<String>,
    pub why: String,
}

/// A build that ended and counts for estimates.
pub(super) struct Ended {
    pub build: Number,
    pub at_seconds: f64,
    pub is_out_of_memory: bool,
}

/// The collected rows.
#[derive(Default)]
pub(super) struct Batch {
    pub events: Vec<EventRow>,
    /// Builds, and the results of their stages as JSON, in order.
    pub stages: Vec<(Number, String)>,
    /// By run and name. The last change of a package counts.
    pub changed: BTreeMap<(Number, String), Changed>,
    pub ended: Vec<Ended>,
}

fn numbers<'a, Item: 'a>(
    items: impl IntoIterator<Item = &'a Item>,
    number: impl Fn(&'a Item) -> Option<Number>,
) -> Value {
    let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
    Value::Ints(items.into_iter().map(|item| number(item).map(signed)).collect())
}

impl Batch {
    /// The statements that write what was collected, except measurements.
    pub fn statements(&mut self, scope: i64, epoch: Number) -> Vec<Statement> {
        let mut statements = Vec::new();
        let changed: Vec<((Number, String), Changed)> =
            std::mem::take(&mut self.changed).into_iter().collect();
        if !changed.is_empty() {
            statements.push(sql!(
                "UPDATE kilnyard.run_package AS package
                 SET state = new.state, reason = new.reason, blamed = new.blamed, why = new.why
                 FROM unnest($1, $2, $3, $4, $5, $6) AS new (run, name, state, reason, blamed, why)
                 WHERE package.run = new.run AND package.name = new.name",
                numbers(&changed, |((run, _), _)| Some(*run)),
                texts(&changed, |((_, name), _)| Some(name.clone())),
                texts(&changed, |(_, row)| Some(row.state.to_owned())),
                texts(&changed, |(_, row)| Some(row.reason.clone())),
                texts(&changed, |(_, row)| row.blamed.clone()),
                texts(&changed, |(_, row)| Some(row.why.clone())),
            ));
        }
        let (stages, events) = (std::mem::take(&mut self.stages), std::mem::take(&mut self.events));
        if !stages.is_empty() {
            statements.push(sql!(
                "INSERT INTO kilnyard.stage (build, position, result)
                 SELECT build,
                        (SELECT count(*) FROM kilnyard.stage WHERE stage.build = new.build)
                          + row_number() OVER (PARTITION BY build ORDER BY place) - 1,
                        result
                 FROM unnest($1, $2) WITH ORDINALITY AS new (build, result, place)",
                numbers(&stages, |(build, _)| Some(*build)),
                texts(&stages, |(_, result)| Some(result.clone())),
            ));
        }
        if !events.is_empty() {
            statements.push(insert_events(&events, scope, epoch));
        }
        statements
    }
}

fn insert_events(events: &[EventRow], scope: i64, epoch: Number) -> Statement {
    // The stages of these events are the last ones of their builds: they are counted from the end.
    let (mut from_end, mut counts): (Vec<Option<i64>>, HashMap<Option<Number>, i64>) = Default::default();
    for event in events.iter().rev() {
        let count = counts.entry(event.build).or_default();
        *count += i64::from(event.is_of_stage);
        from_end.push(event.is_of_stage.then_some(*count));
    }
    from_end.reverse();
    sql!(
        "INSERT INTO kilnyard.event
           (seq, epoch, type, version, scope, run, package, build, at, body, place)
         SELECT seq, $1, type, $2, $3, run, package, build, at, body,
                CASE WHEN from_end IS NOT NULL
                     THEN (SELECT count(*) FROM kilnyard.stage WHERE stage.build = new.build) - from_end END
         FROM unnest($4, $5, $6, $7, $8, $9, $10, $11)
                AS new (seq, type, run, package, build, at, body, from_end)",
        epoch,
        EVENT_VERSION,
        scope,
        numbers(events, |event| Some(event.seq)),
        texts(events, |event| Some(event.kind.to_owned())),
        numbers(events, |event| event.run),
        texts(events, |event| event.package.clone()),
        numbers(events, |event| event.build),
        reals(events, |event| event.at_seconds),
        texts(events, |event| event.body.clone()),
        Value::Ints(from_end),
    )
}

/// The statements that add measurements of builds that ended to those of their packages' earlier builds, and their times if
/// they are good. Everything else about these builds must have been sent.
pub(super) fn measured(link: &Link, scope: i64, ended: &[Ended]) -> Result<Vec<Statement>, Refused> {
    let decoded =
        |what: &'static str| move |error: serde_json::Error| Refused::Value(what, error.to_string());
    let builds = || numbers(ended, |ended| Some(ended.build));
    let mut answers = link.all(&[
        sql!(
            "SELECT build, result FROM kilnyard.stage WHERE build = ANY($1) ORDER BY build, position",
            builds()
        ),
        sql!(
            "SELECT build.number, build.package, build.cores, build.started, measured.builds
             FROM kilnyard.build LEFT JOIN kilnyard.measured
               ON measured.scope = $2 AND measured.package = build.package
             WHERE number = ANY($1)",
            builds(),
            scope
        ),
    ])?;
    let (rows, results) = (answers.pop().unwrap_or_default(), answers.pop().unwrap_or_default());
    let mut stages: HashMap<Number, Vec<StageResult>> = HashMap::new();
    for row in &results {
        let stage = serde_json::from_str(row.try_get(1)?).map_err(decoded("a stage"))?;
        stages.entry(number(row)?).or_default().push(stage);
    }
    let rows: HashMap<Number, &Row> =
        rows.iter().map(|row| Ok((number(row)?, row))).collect::<Result<_, Failed>>()?;
    let mut all: BTreeMap<String, Vec<Measurement>> = BTreeMap::new();
    let mut times: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for Ended { build, at_seconds, is_out_of_memory } in ended {
        let missing = || Refused::Value("a build", format!("{build} is missing"));
        let row = rows.get(build).ok_or_else(missing)?;
        let (package, cores): (String, i64) = (row.try_get(1)?, row.try_get(2)?);
        let stages = stages.get(build).map_or(&[][..], Vec::as_slice);
        if !all.contains_key(&package) {
            let before = match row.try_get::<_, Option<&str>>(4)? {
                Some(text) => serde_json::from_str(text).map_err(decoded("a measurement"))?,
                None => Vec::new(),
            };
            all.insert(package.clone(), before);
        }
        let builds = all.entry(package.clone()).or_default();
        Measurement::of(stages, u32::try_from(cores).unwrap_or(1), *is_out_of_memory).add_to(builds);
        if !is_out_of_memory {
            let cpu_seconds = stages.iter().map(|stage| stage.cpu_seconds).sum();
            times.insert(package, (at_seconds - row.try_get::<_, f64>(3)?, cpu_seconds));
        }
    }
    let texts_of = all.values().map(|builds| {
        let text = serde_json::to_string(builds).map_err(decoded("a measurement"))?;
        Ok(Some(storable(&text)))
    });
    let mut statements = vec![sql!(
        "INSERT INTO kilnyard.measured (scope, package, builds) SELECT $1, * FROM unnest($2, $3)
         ON CONFLICT (scope, package) DO UPDATE SET builds = excluded.builds",
        scope,
        texts(&all.keys().collect::<Vec<_>>(), |package| Some((**package).clone())),
        Value::Texts(texts_of.collect::<Result<_, Refused>>()?),
    )];
    if !times.is_empty() {
        statements.push(sql!(
            "INSERT INTO kilnyard.duration (scope, package, wall, cpu) SELECT $1, * FROM unnest($2, $3, $4)
             ON CONFLICT (scope, package) DO UPDATE SET wall = excluded.wall, cpu = excluded.cpu",
            scope,
            texts(&times.keys().collect::<Vec<_>>(), |package| Some((**package).clone())),
            reals(&times.values().collect::<Vec<_>>(), |times| times.0),
            reals(&times.values().collect::<Vec<_>>(), |times| times.1),
        ));
    }
    Ok(statements)
}

/// The number in the first column.
fn number(row: &Row) -> Result<Number, Failed> {
    Ok(row.try_get::<_, i64>(0)? as Number)
}
