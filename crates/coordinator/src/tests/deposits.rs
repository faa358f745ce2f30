//! Results whose outputs have to be stored first.

use super::run::{Incoming, Run, asked, good, output};
use crate::*;
use kilnyard_model::result::{BuildOutcome, FailureKind};
use kilnyard_protocol::BuildResult;
use kilnyard_store::{BuildRow, RequestKind};

/// A run with one slot, in which `b` needs `a`, and nothing needs `c`.
fn run() -> Run {
    let mut run = Run::new(&[("b", "a"), ("c", "c")], 1);
    run.awaits_deposits = true;
    assert_eq!(run.send(Event::Begin), [(1, "a".to_owned())]);
    run
}

fn deposited(build: Number, outcome: Result<(), NotStored>) -> Event {
    // The number of a deposit is that of its build here.
    Event::Deposited { build, deposit: build, outcome }
}

fn is_acknowledged(run: &Run, build: Number) -> bool {
    let attempt = run.worker.attempts[&build];
    let is_it = |action: &Action| matches!(action, Action::Send { message: ToWorker::Acknowledged { attempt: a, .. }, .. } if *a == attempt);
    run.actions.iter().any(is_it)
}

/// How a build was recorded to end.
fn ended(run: &Run, number: Number) -> Option<BuildOutcome> {
    let of = |action: &Action| match action {
        Action::Record(Record::BuildEnded { build, outcome, .. }) if *build == number => {
            Some(outcome.clone())
        }
        _ => None,
    };
    run.actions.iter().find_map(of)
}

#[test]
fn a_machine_is_free_while_outputs_are_stored_and_their_dependents_wait() {
    let mut run = run();
    assert_eq!(run.send(good(1)), [(2, "c".to_owned())], "its slot is free");
    assert_eq!((ended(&run, 1), is_acknowledged(&run, 1)), (None, false));
    assert_eq!(run.state("a"), PackageState::Building);
    // The worker repeats its result, and asks for more work.
    assert_eq!(run.send(good(1)), []);
    assert_eq!(run.pass(60.0), [], "nothing is built again");
    assert_eq!(run.send(deposited(1, Ok(()))), [], "`c` has the slot");
    assert_eq!((ended(&run, 1), is_acknowledged(&run, 1)), (Some(BuildOutcome::Built), true));
    assert_eq!(run.send(deposited(1, Ok(()))), [], "a repeat changes nothing");
    run.send(good(2));
    assert_eq!(run.send(deposited(2, Ok(()))), []);
    assert_eq!(run.worker.attempts.len(), 3, "`b` began when `c` had left its slot");
    assert_eq!(run.state("a"), PackageState::Built);
}

#[test]
fn a_worker_that_left_does_not_matter_once_its_result_has_arrived() {
    let mut run = run();
    run.send(good(1));
    // It is silent until its lease is over, so that `c` is lost.
    run.pass(LEASE_SECONDS + 5.0);
    assert_eq!((ended(&run, 1), ended(&run, 2)), (None, Some(BuildOutcome::Lost)));
    run.send(deposited(1, Ok(())));
    assert_eq!(ended(&run, 1), Some(BuildOutcome::Built));
    run.starts_worker();
    let granted: Vec<String> = run.pass(1.0).into_iter().map(|(_, package)| package).collect();
    assert!(!granted.contains(&"a".to_owned()), "{granted:?}");
}

#[test]
fn outputs_that_are_lost_before_they_are_stored_fail_the_build() {
    let mut run = run();
    run.send(good(1));
    run.send(deposited(1, Err(NotStored::Lost("an output is lost: disk".to_owned()))));
    assert_eq!((ended(&run, 1), run.state("a")), (Some(BuildOutcome::Failed), PackageState::Failed));
    let failure = run.actions.iter().find_map(|action| match action {
        Action::Record(Record::BuildEnded { failure: Some(failure), .. }) => Some(failure.clone()),
        _ => None,
    });
    let failure = failure.unwrap();
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Outputs, "an output is lost: disk"));
}

/// The worker says that a cancelled build has ended.
fn cancelled(build: Number) -> Incoming {
    let failure = Failure { kind: FailureKind::Cancelled, ..deposits::not_stored(String::new()) };
    Incoming::Ended(BuildResult { build, outcome: Err(failure), is_reproducible: None, provenance: None })
}

#[test]
fn an_interrupted_run_waits_for_what_can_be_stored_and_leaves_the_rest_to_the_next_one() {
    for (outcome, recorded) in [(Ok(()), Some(BuildOutcome::Built)), (Err(NotStored::Stopped), None)] {
        let mut run = run();
        run.send(good(1));
        run.send(Event::Stop);
        run.send(cancelled(2));
        assert_eq!(run.finished(), None);
        assert_eq!(run.send(deposited(1, outcome)), []);
        assert_eq!((ended(&run, 1), run.finished()), (recorded.clone(), Some(RunState::Interrupted)));
        // Without that, its worker keeps the result.
        assert_eq!(is_acknowledged(&run, 1), recorded.is_some());
    }
}

#[test]
fn a_deposit_from_before_a_reload_admits_nothing() {
    let mut run = run();
    run.send(good(1));
    // The state is read again: build 1 is open there, and its worker repeats the result.
    let row = BuildRow {
        number: 1,
        attempt: Some(run.worker.attempts[&1]),
        run: 1,
        package: "a".to_owned(),
        version: "1".to_owned(),
        worker: Some("kiln-1".to_owned()),
        cores: 1,
        host: None,
        slot: 0,
        key: "k".to_owned(),
        started_seconds: 0.0,
        ended_seconds: None,
        outcome: BuildOutcome::Building,
        failure: None,
        is_reproducible: None,
        stages: Vec::new(),
    };
    let starts = (0..3).map(|_| super::run::start()).collect();
    let reloaded = Reloaded { starts, open: vec![(row, Reason::FirstBuild)], next_build: 10 };
    let scheduler = super::run::scheduler((*run.coordinator.graph).clone(), 1);
    let mut actions = Vec::new();
    run.coordinator.reload(run.now_seconds, reloaded, scheduler, &mut actions);
    run.send(Event::Begin);
    run.worker.held = vec![run.worker.attempts[&1]];
    run.rejoins();
    // Other outputs than those that were judged, while nothing answers.
    let Incoming::Ended(result) = good(1) else { unreachable!() };
    let other = BuildResult { outcome: Ok(vec![output("x", "other")]), ..result };
    let event = run.event(Incoming::Ended(other));
    let mut actions = Vec::new();
    run.coordinator.apply(run.now_seconds, event, &mut actions);
    assert!(actions.iter().any(|action| matches!(action, Action::Ask { .. })), "{actions:?}");
    let mut later = Vec::new();
    run.coordinator.apply(run.now_seconds, deposited(1, Ok(())), &mut later);
    let is_recorded = |action: &Action| matches!(action, Action::Record(Record::BuildEnded { .. }));
    assert!(!later.iter().any(is_recorded), "{later:?}");
}

#[test]
fn results_of_a_worker_that_was_removed_do_not_count_later() {
    let mut run = run().elsewhere();
    let known = super::pools::workers(&[(
        "kiln-1",
        super::pools::standing("lab", true, &kilnyard_model::role::Role::ALL),
    )]);
    run.send(known);
    run.starts_worker();
    run.pass(1.0);
    let waits = *run.worker.attempts.keys().last().unwrap();
    run.send(good(waits));
    run.send(super::pools::workers(&[]));
    assert_eq!(ended(&run, waits), Some(BuildOutcome::Lost));
    run.send(deposited(waits, Ok(())));
    assert_eq!(ended(&run, waits), Some(BuildOutcome::Lost));
}

#[test]
fn a_package_that_is_skipped_meanwhile_stays_skipped() {
    let mut run = run();
    run.send(good(1));
    run.send(asked(RequestKind::Skip, "a"));
    assert_eq!(run.state("a"), PackageState::Skipped);
    assert_eq!(run.send(deposited(1, Ok(()))), []);
    assert_eq!((ended(&run, 1), run.state("a")), (Some(BuildOutcome::Lost), PackageState::Skipped));
    assert_eq!(run.state("b"), PackageState::Blocked);
}

#[test]
fn too_much_that_waits_keeps_its_cores() {
    let mut run = Run::new(&[("a", "a"), ("b", "b"), ("c", "c")], 1);
    run.awaits_deposits = true;
    run.send(Event::Begin);
    let large = |build| {
        let outcome = Ok(vec![Output { size_bytes: 1 << 40, ..output("x", "1") }]);
        Incoming::Ended(BuildResult { build, outcome, is_reproducible: None, provenance: None })
    };
    assert_eq!(run.send(large(1)).len(), 1, "there is room for one");
    assert_eq!(run.send(large(2)), [], "the second one waits in its slot");
    assert_eq!(run.send(deposited(1, Ok(()))), []);
    assert_eq!(run.send(deposited(2, Ok(()))).len(), 1);
    assert_eq!((ended(&run, 1), ended(&run, 2)), (Some(BuildOutcome::Built), Some(BuildOutcome::Built)));
}
