//! Results whose outputs have to be stored first.

use super::run::{Run, asked, good, output};
use crate::*;
use kilnyard_model::result::{BuildOutcome, FailureKind};
use kilnyard_protocol::BuildResult;
use kilnyard_store::RequestKind;

/// A run with one slot, in which `b` needs `a`, and nothing needs `c`.
fn run() -> Run {
    let mut run = Run::new(&[("b", "a"), ("c", "c")], 1);
    run.awaits_deposits = true;
    assert_eq!(run.send(Event::Begin), [(1, "a".to_owned())]);
    run
}

fn deposited(build: Number, outcome: Result<(), NotStored>) -> Event {
    Event::Deposited { build, outcome }
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

#[test]
fn an_interrupted_run_waits_for_what_can_be_stored_and_repeats_the_rest() {
    for (outcome, recorded) in [(Ok(()), BuildOutcome::Built), (Err(NotStored::Stopped), BuildOutcome::Lost)]
    {
        let mut run = run();
        run.send(good(1));
        run.send(Event::Stop);
        let cancelled = Failure { kind: FailureKind::Cancelled, ..deposits::not_stored(String::new()) };
        let outcome_of_c = Err(cancelled);
        let result = BuildResult { build: 2, outcome: outcome_of_c, is_reproducible: None, provenance: None };
        run.send(super::run::Incoming::Ended(result));
        assert_eq!(run.finished(), None);
        assert_eq!(run.send(deposited(1, outcome)), []);
        assert_eq!((ended(&run, 1), run.finished()), (Some(recorded), Some(RunState::Interrupted)));
    }
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
        super::run::Incoming::Ended(BuildResult { build, outcome, is_reproducible: None, provenance: None })
    };
    assert_eq!(run.send(large(1)).len(), 1, "there is room for one");
    assert_eq!(run.send(large(2)), [], "the second one waits in its slot");
    assert_eq!(run.send(deposited(1, Ok(()))), []);
    assert_eq!(run.send(deposited(2, Ok(()))).len(), 1);
    assert_eq!((ended(&run, 1), ended(&run, 2)), (Some(BuildOutcome::Built), Some(BuildOutcome::Built)));
}
