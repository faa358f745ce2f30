//! The tests of the contract: each promise of [`Store`], tested with the calls that the coordinator and the commands
//! make. Every store runs all [`TESTS`], each with a new, empty store, and adds tests for its own features.
//!
//! Add a test here first when the contract gets a new promise.

mod events;
mod leads;
mod packages;
mod plans;
mod runs;

use crate::{BuildRow, ForcedRun, Holder, Number, PackageRow, RunCommit, RunRow, RunState, Store};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_model::order::{Output, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, Measures, PackageState, StageResult};
use kilnyard_model::target::Target;

/// Opens the store of a test for a target. The first call creates it, empty; each call returns a new connection.
pub type Open<'a> = &'a (dyn Fn(&Target) -> Box<dyn Store> + Sync);

/// A test of a store, which opens as many connections as it needs.
pub type Trial = fn(Open);

/// All tests, by name. A test panics if the store breaks its promise.
pub const TESTS: &[(&str, Trial)] = &[
    ("a_run_is_read_as_written", runs::a_run_is_read_as_written),
    ("runs_are_listed_latest_first", runs::runs_are_listed_latest_first),
    ("packages_of_a_run_are_ordered_and_counted", runs::packages_of_a_run_are_ordered_and_counted),
    ("builds_are_ordered_as_promised", runs::builds_are_ordered_as_promised),
    ("a_run_takes_in_further_packages", runs::a_run_takes_in_further_packages),
    ("a_failed_decision_writes_nothing", runs::a_failed_decision_writes_nothing),
    ("a_reader_sees_only_whole_decisions", runs::a_reader_sees_only_whole_decisions),
    ("texts_and_numbers_are_read_as_written", runs::texts_and_numbers_are_read_as_written),
    (
        "outputs_replace_only_those_of_the_same_package",
        packages::outputs_replace_only_those_of_the_same_package,
    ),
    ("outputs_are_ordered_by_name_and_package", packages::outputs_are_ordered_by_name_and_package),
    (
        "imported_times_are_used_until_a_package_is_built",
        packages::imported_times_are_used_until_a_package_is_built,
    ),
    (
        "builds_that_ran_out_of_memory_are_measured_too",
        packages::builds_that_ran_out_of_memory_are_measured_too,
    ),
    ("requests_are_taken_once_and_in_order", plans::requests_are_taken_once_and_in_order),
    ("each_request_has_one_taker", plans::each_request_has_one_taker),
    ("a_plan_replaces_the_previous_one", plans::a_plan_replaces_the_previous_one),
    ("reading_a_plan_stops_when_asked", plans::reading_a_plan_stops_when_asked),
    ("a_build_has_its_own_worker_and_its_cores", packages::a_build_has_its_own_worker_and_its_cores),
    ("a_lead_fences_earlier_leads", leads::a_lead_fences_earlier_leads),
    ("a_leader_that_leaves_writes_no_more", leads::a_leader_that_leaves_writes_no_more),
    ("numbers_and_attempts_are_used_once", leads::numbers_and_attempts_are_used_once),
    ("provenance_is_that_of_the_current_outputs", packages::provenance_is_that_of_the_current_outputs),
    ("the_builds_of_a_worker_are_found", packages::the_builds_of_a_worker_are_found),
    ("cpu_time_is_that_of_builds_since_then", packages::cpu_time_is_that_of_builds_since_then),
    ("each_target_has_its_own_rows", leads::each_target_has_its_own_rows),
    ("a_yard_keeps_its_ids", leads::a_yard_keeps_its_ids),
    ("each_decision_is_reported_by_events", events::each_decision_is_reported_by_events),
    ("events_are_written_only_with_their_decision", events::events_are_written_only_with_their_decision),
    ("events_are_kept_for_the_latest_runs", events::events_are_kept_for_the_latest_runs),
    ("decisions_may_be_written_together", events::decisions_may_be_written_together),
    ("events_are_json_of_one_envelope", events::events_are_json_of_one_envelope),
    ("an_event_wakes_all_who_wait_for_it", events::an_event_wakes_all_who_wait_for_it),
    ("waiting_ends_without_an_event", events::waiting_ends_without_an_event),
];

fn target() -> Target {
    "any/linux/one/amd64".parse().expect("a target")
}

/// A connection that only reads, or leaves requests.
fn connect(open: Open) -> Box<dyn Store> {
    open(&target())
}

/// The process of most tests.
fn holder() -> Holder {
    Holder::named("one")
}

/// A connection that leads.
fn leading(open: Open) -> Box<dyn Store> {
    let mut store = connect(open);
    store.lead(&holder()).expect("the lead");
    store
}

/// The id of the build with this number.
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
        commits: vec![RunCommit {
            source: "/usr/src".to_owned(),
            commit: "0123".repeat(10),
            date_seconds: Some(7),
        }],
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
        digests: Default::default(),
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
        log_sha256: None,
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
