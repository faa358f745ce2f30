//! Queries in a large yard: 30,000 packages and 20 runs.
//!
//! The first run builds every package, later ones a part: the store has 600,000 package rows of runs, and about 40,000
//! builds with their stages. Each query starts a new process of this program.

use super::child;
use super::figures::{Report, Series, Unit};
use super::scratch::Scratch;
use super::{empty_yard, synthetic};
use crate::Trial;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, store_error};
use crate::{mirror, plan};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::difference::{Change, Difference};
use kilnyard_model::order::Stage;
use kilnyard_model::reason::{Reason, StageFailed};
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, Measures, PackageState, StageResult};
use kilnyard_process::Log;
use kilnyard_store::{BuildRow, Holder, PackageRow, Plan, PlanRow, Record, RunRow, RunState, Store};
use serde_json::{Map, Value, json};

/// Number of packages, about as many as in the largest trees.
const PACKAGES: usize = 30_000;
/// Number of runs.
const RUNS: usize = 20;
/// Number of packages built in each run after the first.
const BUILT_LATER: usize = 500;
/// One build in this many fails.
const FAILED_EACH: usize = 100;
/// Number of lines in the log that is read.
const LOG_LINES: usize = 5000;
/// Maximum time of an answer.
const WALL_SECONDS_MAX: f64 = 0.05;
/// Time of the first run.
pub(super) const EPOCH_SECONDS: f64 = 1.7e9;

/// Runs the benchmark in a yard of its own.
pub fn measure(trial: &Trial<'_>) -> Result<Report> {
    let pairs = trial.pairs;
    let scratch = Scratch::within(trial.temporary, None)?;
    let yard = empty_yard(&scratch, trial)?;
    trial.say(format_args!("making a yard of {PACKAGES} packages and {RUNS} runs"));
    let mut store = yard.store()?;
    fill(&yard, &mut *store)?;
    drop(store);
    let asked = synthetic::name(built_in(RUNS)[1]);
    let questions: [(&str, Vec<&str>); 4] = [
        ("status", vec!["status", "--json"]),
        ("why", vec!["why", &asked, "--json"]),
        ("log", vec!["log", &asked, "--all"]),
        ("plan", vec!["plan", "--json"]),
    ];
    let mut facts = Map::new();
    let answer = scratch.path("answer");
    for (name, arguments) in &questions {
        // Run each query once before measuring, to check the answer and to read files into memory.
        child::measure(child::this_program(&yard.folder, arguments), Some(&answer), &[0])?;
        let text = fs_err::read_to_string(&answer).or_internal("read an answer")?;
        if !is_correct(name, &text) {
            return Err(Error::new(Kind::Internal, format!("wrong answer from kilnyard {name}")));
        }
        facts.insert(format!("{name}_answer_bytes"), json!(text.len()));
    }
    let mut usages = vec![Vec::new(); questions.len()];
    for _ in 0..pairs {
        for ((_, arguments), usages) in questions.iter().zip(&mut usages) {
            usages.push(child::measure(child::this_program(&yard.folder, arguments), None, &[0])?);
        }
    }
    let store_bytes = fs_err::metadata(yard.path("state/kilnyard.db")).map_or(0, |metadata| metadata.len());
    facts.insert("packages".to_owned(), json!(PACKAGES));
    facts.insert("runs".to_owned(), json!(RUNS));
    facts.insert("store_bytes".to_owned(), json!(store_bytes));
    let mut series = Vec::new();
    for ((name, arguments), usages) in questions.iter().zip(&usages) {
        let label = |what: &str| format!("kilnyard {}, {what}", arguments.join(" "));
        let wall = usages.iter().map(|usage| usage.wall_seconds).collect();
        let cpu = usages.iter().map(|usage| usage.cpu_seconds).collect();
        series.push(Series::new(format!("{name}_wall_seconds"), label("wall"), Unit::Seconds, wall));
        series.push(Series::new(format!("{name}_cpu_seconds"), label("CPU"), Unit::Seconds, cpu));
    }
    let slow: Vec<String> = series
        .iter()
        .filter(|series| series.key.ends_with("wall_seconds") && series.median() >= WALL_SECONDS_MAX)
        .map(|series| series.label.clone())
        .collect();
    let mut notes =
        vec![format!("{PACKAGES} packages, {RUNS} runs, a store of {}", crate::words::size(store_bytes))];
    if !slow.is_empty() {
        notes.push(format!("too slow: {}", slow.join("; ")));
    }
    Ok(Report {
        name: "queries",
        series,
        facts,
        notes,
        target: format!("less than {} ms of wall time each", WALL_SECONDS_MAX * 1e3),
        is_met: Some(slow.is_empty()),
    })
}

fn is_correct(name: &str, text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    match name {
        "status" => value["run"] == RUNS && value["failed"].as_array().is_some_and(|all| !all.is_empty()),
        "why" => value["build"]["run"] == RUNS,
        // A new plan would have none of these packages.
        "plan" => value["packages"].as_array().is_some_and(|all| all.len() == PACKAGES),
        _ => text.lines().count() == LOG_LINES,
    }
}

/// The packages that a run builds.
fn built_in(run: usize) -> Vec<usize> {
    match run {
        1 => (0..PACKAGES).collect(),
        _ => (0..BUILT_LATER).map(|index| (run * 7 + index * (PACKAGES / BUILT_LATER)) % PACKAGES).collect(),
    }
}

fn fill(yard: &Yard, store: &mut dyn Store) -> Result<()> {
    fs_err::write(yard.path("index/index.json"), r#"{"suites":[]}"#).or_internal("write an index")?;
    let distfiles = mirror::open_files(yard)?;
    let mut build = 0;
    store.lead(&Holder::named("benchmark")).map_err(store_error)?;
    for run in 1..=RUNS {
        super::check_interrupt()?;
        let built = built_in(run);
        let mut states = vec![PackageState::UpToDate; PACKAGES];
        for (index, number) in built.iter().enumerate() {
            let is_failed = index % FAILED_EACH == 0;
            states[*number] = if is_failed { PackageState::Failed } else { PackageState::Built };
        }
        let rows: Vec<PackageRow> =
            states.iter().enumerate().map(|(number, state)| package_row(number, *state)).collect();
        let began = EPOCH_SECONDS + run as f64 * 86_400.0;
        store.begin_run(&run_row(began), &rows).map_err(store_error)?;
        let mut records = Vec::new();
        for (index, number) in built.iter().enumerate() {
            build += 1;
            records.extend(build_records(run as u64, build, *number, began + index as f64, states[*number]));
            if run == 1 {
                synthetic::write(&distfiles, *number, 1)?;
                records.push(Record::Outputs(synthetic::current(*number, 1)));
            }
        }
        let at_seconds = began + 3600.0;
        records.push(Record::Run { run: run as u64, state: RunState::Finished, at_seconds });
        store.record(&records).map_err(store_error)?;
    }
    write_log(yard, store)?;
    let digest = plan::digest(yard, store)?;
    store.save_plan(&plan_of(digest)).map_err(store_error)
}

pub(super) fn run_row(began: f64) -> RunRow {
    RunRow {
        number: 0,
        started_seconds: began,
        ended_seconds: None,
        state: RunState::Running,
        plan_digest: "synthetic".to_owned(),
        cores: 16,
        slots: 8,
        expected_seconds: 3000.0,
        bound_seconds: 2000.0,
        forced: None,
        commits: Vec::new(),
    }
}

pub(super) fn package_row(number: usize, state: PackageState) -> PackageRow {
    let reason = match state {
        PackageState::Failed => Reason::Failed(StageFailed {
            stage: Stage::Build,
            message: "the command exited with status 2".to_owned(),
        }),
        PackageState::Built => Reason::changed(vec![Difference {
            kind: "depends".to_owned(),
            name: synthetic::name(number / 2),
            change: Change::Changed,
        }]),
        _ => Reason::NothingChanged,
    };
    PackageRow {
        name: synthetic::name(number),
        version: format!("1.{number}-1"),
        state,
        reason,
        blamed: None,
        estimate_seconds: 60.0,
        rank_seconds: 600.0,
    }
}

fn log_path(run: u64, build: u64, number: usize, stage: Stage) -> String {
    format!("logs/{run}/{}/{build}-{stage}.log", synthetic::name(number))
}

pub(super) fn build_records(
    run: u64,
    build: u64,
    number: usize,
    began: f64,
    state: PackageState,
) -> Vec<Record> {
    let is_failed = state == PackageState::Failed;
    let outcome = if is_failed { BuildOutcome::Failed } else { BuildOutcome::Built };
    let mut records = vec![Record::BuildBegan(Box::new(BuildRow {
        number: build,
        attempt: Some(Attempt::from_bytes(u128::from(build).to_be_bytes())),
        run,
        package: synthetic::name(number),
        version: format!("1.{number}-1+bk{run}"),
        worker: Some("kiln-1".to_owned()),
        cores: 16,
        host: None,
        slot: (build % 8) as u32,
        key: format!("{build:064x}"),
        started_seconds: began,
        ended_seconds: None,
        outcome: BuildOutcome::Building,
        failure: None,
        is_reproducible: None,
        stages: Vec::new(),
    }))];
    let all = [Stage::Unpack, Stage::Depends, Stage::Build, Stage::Collect, Stage::Test];
    let stages = if is_failed { &all[..3] } else { &all[..] };
    records.extend(stages.iter().map(|stage| {
        let result = StageResult {
            stage: *stage,
            started_seconds: began,
            wall_seconds: 10.0,
            cpu_seconds: 15.0,
            memory_peak_bytes: 200 << 20,
            work_bytes: None,
            disk_bytes: None,
            parallel_seconds: None,
            is_ok: !(is_failed && *stage == Stage::Build),
            log: (*stage != Stage::Collect).then(|| log_path(run, build, number, *stage)),
            log_sha256: None,
            left_behind: Vec::new(),
            measures: Measures::default(),
        };
        let at_seconds = result.started_seconds + result.wall_seconds;
        Record::StageEnded { build, at_seconds, stage: Box::new(result) }
    }));
    let failure = is_failed.then(|| Failure {
        stage: Stage::Build,
        kind: FailureKind::Command,
        message: "the command exited with status 2".to_owned(),
        line_number: Some(100),
        lines: vec!["make: *** [Makefile:1: all] Error 2".to_owned()],
    });
    records.push(Record::BuildEnded {
        build,
        at_seconds: began + 50.0,
        outcome,
        failure,
        is_reproducible: None,
    });
    records
}

/// Writes the only log that is read, of the last build of a package.
fn write_log(yard: &Yard, store: &dyn Store) -> Result<()> {
    let failed = "write a log";
    let number = built_in(RUNS)[1];
    let builds = store.builds_of(&synthetic::name(number), 1).map_err(store_error)?;
    let build = builds.first().ok_or_else(|| Error::new(Kind::Internal, "a build is missing"))?;
    let path = yard.path(&log_path(build.run, build.number, number, Stage::Build));
    let mut log = Log::create(&path, yard.config.log_limits()).context(Kind::Machine, failed)?;
    for line in 0..LOG_LINES {
        let text = format!("cc -O2 -g -Wall -c -o part-{line}.o source/part-{line}.c\n");
        log.write(text.as_bytes()).context(Kind::Machine, failed)?;
    }
    log.finish().context(Kind::Machine, failed).map(|_| ())
}

fn plan_of(digest: String) -> Plan {
    let row = |number: usize| PlanRow {
        package: package_row(
            number,
            if number.is_multiple_of(50) { PackageState::Ready } else { PackageState::UpToDate },
        ),
        dependencies: (1..=5).map(|divisor| synthetic::name(number / (divisor + 1))).collect(),
    };
    Plan {
        digest,
        made_seconds: EPOCH_SECONDS,
        expected_seconds: 3000.0,
        bound_seconds: 2000.0,
        cuts: Vec::new(),
        remarks: Vec::new(),
        path: (0..20).map(synthetic::name).collect(),
        packages: (0..PACKAGES).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_runs_build_other_packages_each_once() {
        for run in 2..=RUNS {
            let built: std::collections::HashSet<usize> = built_in(run).into_iter().collect();
            assert_eq!(built.len(), BUILT_LATER);
            assert!(built.iter().all(|number| *number < PACKAGES));
        }
        assert_ne!(built_in(2), built_in(3));
    }
}
