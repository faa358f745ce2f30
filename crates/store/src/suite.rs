//! The tests of the contract, for every store: each promise of [`Store`], asked of a store as the coordinator and the
//! commands ask it. A store runs all of [`TESTS`], each with an empty store of its own, and adds tests of what only it has.
//!
//! A new promise of the contract gets its test here first.

mod events;
mod leads;
mod packages;
mod plans;
mod runs;

use crate::{BuildRow, ForcedRun, Number, PackageRow, RunRow, RunState, Store};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_model::order::{Output, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, Measures, PackageState, StageResult};
use kilnyard_model::target::Target;

/// Opens the one store of a test for a target: the first call makes it, empty; each call gives a connection of its own.
pub type Open<'a> = &'a (dyn Fn(&Target) -> Box<dyn Store> + Sync);

/// A test of a store, which opens as many as it needs.
pub type Trial = fn(Open);

/// All tests by their names. A test panics where the store breaks its promise.
pub const TESTS: &[(&str, Trial)] = &[
    ("a_run_comes_back_as_it_was_written", runs::a_run_comes_back_as_it_was_written),
    ("runs_are_listed_from_the_latest_on", runs::runs_are_listed_from_the_latest_on),
    ("packages_of_a_run_are_ordered_and_counted", runs::packages_of_a_run_are_ordered_and_counted),
    ("builds_are_ordered_as_promised", runs::builds_are_ordered_as_promised),
    ("a_decision_that_fails_half_way_leaves_nothing", runs::a_decision_that_fails_half_way_leaves_nothing),
    ("a_reader_sees_whole_decisions_alone", runs::a_reader_sees_whole_decisions_alone),
    ("texts_and_numbers_come_back_as_they_were", runs::texts_and_numbers_come_back_as_they_were),
    (
        "outputs_replace_those_of_the_same_package_alone",
        packages::outputs_replace_those_of_the_same_package_alone,
    ),
    ("outputs_are_ordered_by_name_and_package", packages::outputs_are_ordered_by_name_and_package),
    (
        "imported_times_stand_in_until_a_package_is_built",
        packages::imported_times_stand_in_until_a_package_is_built,
    ),
    (
        "the_last_builds_are_measured_and_those_without_memory_too",
        packages::the_last_builds_are_measured_and_those_without_memory_too,
    ),
    ("requests_are_taken_once_and_in_order", plans::requests_are_taken_once_and_in_order),
    ("of_several_takers_one_has_each_request", plans::of_several_takers_one_has_each_request),
    ("a_plan_replaces_the_one_before", plans::a_plan_replaces_the_one_before),
    ("packages_of_a_plan_pass_by_until_enough", plans::packages_of_a_plan_pass_by_until_enough),
    ("a_build_has_its_own_worker_and_its_cores", packages::a_build_has_its_own_worker_and_its_cores),
    ("a_lead_fences_those_before_it", leads::a_lead_fences_those_before_it),
    ("numbers_and_attempts_are_used_once", leads::numbers_and_attempts_are_used_once),
    ("each_target_has_rows_of_its_own", leads::each_target_has_rows_of_its_own),
    ("a_yard_keeps_its_ids", leads::a_yard_keeps_its_ids),
    ("each_decision_is_reported_by_events", events::each_decision_is_reported_by_events),
    ("events_come_with_their_decision_alone", events::events_come_with_their_decision_alone),
    ("events_are_kept_for_the_latest_runs", events::events_are_kept_for_the_latest_runs),
    ("events_are_json_of_one_envelope", events::events_are_json_of_one_envelope),
];

fn target() -> Target {
    "any/linux/one/amd64".parse().expect("a target")
}

/// A connection that only reads, or leaves requests.
fn connect(open: Open) -> Box<dyn Store> {
    open(&target())
}

/// A connection that leads.
fn leading(open: Open) -> Box<dyn Store> {
    let mut store = connect(open);
    store.lead().expect("the lead");
    store
}

/// The random id of the build of this number.
fn attempt(number: Number) -> Attempt {
    Attempt::from_bytes(u128::from(number).to_be_bytes())
}

fn run_row() -> RunRow {
    RunRow {
        number: 0,
        started_seconds: 100.0,
        ended_seconds: None,
        state: RunState::Running,
        plan_digest: "d".into(),
        cores: 2,
        slots: 2,
        expected_seconds: 60.0,
        bound_seconds: 50.0,
        forced: Some(ForcedRun { packages: vec!["a".into()], checks_reproducible: true }),
    }
}

fn package_row(name: &str, state: PackageState) -> PackageRow {
    PackageRow {
        name: name.into(),
        version: "1".into(),
        state,
        reason: Reason::FirstBuild,
        blamed: None,
        estimate_seconds: 5.0,
        rank_seconds: 9.0,
    }
}

fn build_row(number: Number, run: Number, package: &str) -> BuildRow {
    BuildRow {
        number,
        attempt: Some(attempt(number)),
        run,
        package: package.into(),
        version: "1+bk1".into(),
        worker: Some("kiln-1".into()),
        cores: 2,
        host: Some(Host { kernel: "Linux 6.1.0".into(), cpu: "one".into() }),
        slot: 1,
        key: "k".into(),
        started_seconds: 101.0,
        ended_seconds: None,
        outcome: BuildOutcome::Building,
        failure: None,
        is_reproducible: None,
        stages: Vec::new(),
    }
}

fn output(name: &str) -> Output {
    Output {
        name: name.into(),
        version: "1+bk1".into(),
        architecture: "amd64".into(),
        file: format!("{name}.pkg"),
        sha256: "s".into(),
        size_bytes: 3,
        content: "c".into(),
        description: "Package: x\n".into(),
    }
}

fn stage(stage: Stage, cpu_seconds: f64) -> StageResult {
    StageResult {
        stage,
        started_seconds: 101.0,
        wall_seconds: 2.0,
        cpu_seconds,
        memory_peak_bytes: 7,
        work_bytes: None,
        disk_bytes: None,
        parallel_seconds: None,
        is_ok: true,
        log: None,
        left_behind: Vec::new(),
        measures: Measures::default(),
    }
}

fn failure(kind: FailureKind) -> Failure {
    Failure {
        stage: Stage::Build,
        kind,
        message: "it failed".into(),
        line_number: Some(4),
        lines: vec!["x".into()],
    }
}
