//! Pools and roles, with two workers whose messages the tests send.

use super::run::{Incoming, Run, good, output};
use crate::*;
use kilnyard_model::order::{RootOrder, Stage, StageOrder, TestOrder};
use kilnyard_model::result::{BuildOutcome, FailureKind};
use kilnyard_model::role::Role;
use kilnyard_protocol::{BuildResult, Test, ToWorker};
use kilnyard_store::RequestKind;

pub(super) fn standing(pool: &str, is_trusted: bool, roles: &[Role]) -> Standing {
    Standing { is_held: false, pool: pool.to_owned(), is_trusted, roles: roles.iter().copied().collect() }
}

pub(super) fn workers(standings: &[(&str, Standing)]) -> Event {
    let named = standings.iter().map(|(name, standing)| ((*name).to_owned(), standing.clone()));
    Event::Workers(named.collect())
}

/// A run whose only worker has this standing.
pub(super) fn run_of(edges: &[(&str, &str)], standing: Standing) -> Run {
    let mut run = Run::new(edges, 2).elsewhere();
    run.send(workers(&[("kiln-1", standing)]));
    run.starts_worker();
    run
}

fn test_order() -> Test {
    Test::Run(Box::new(TestOrder {
        root: RootOrder::default(),
        inputs: Vec::new(),
        texts: Vec::new(),
        stage: StageOrder { stage: Stage::Test, commands: Vec::new() },
    }))
}

#[test]
fn a_pool_without_trust_builds_only_what_no_other_package_needs() {
    let edges = [("app", "lib"), ("tool", "tool")];
    let mut run = run_of(&edges, standing("lab", false, &Role::ALL));
    assert_eq!(run.send(Event::Begin), [(1, "tool".to_owned())]);
    // A worker that the caller has not named gets nothing at all.
    let mut unknown = Run::new(&edges, 2).elsewhere();
    unknown.send(workers(&[]));
    unknown.starts_worker();
    assert_eq!(unknown.send(Event::Begin), []);
    // Named, it is asked for another hello at once, and gets what its pool may have.
    unknown.send(workers(&[("kiln-1", standing("default", true, &Role::ALL))]));
    let asks = |action: &Action| matches!(action, Action::Send { message: ToWorker::Rejoin { .. }, .. });
    assert!(unknown.actions.iter().any(asks));
    assert_eq!(unknown.starts_worker().len(), 2);
}

#[test]
fn roles_decide_what_a_worker_gets() {
    let mut run = run_of(&[("a", "a")], standing("default", true, &[Role::Scan, Role::Test]));
    assert_eq!(run.send(Event::Begin), []);
    // Without a worker that tests, the builder does.
    let builder = || standing("default", true, &[Role::Build]);
    let mut run = run_of(&[("a", "a")], builder());
    run.test = test_order();
    assert_eq!(run.send(Event::Begin).len(), 1);
    run.send(good(1));
    assert_eq!(run.state("a"), PackageState::Built);
    let mut run = with_tester(&[("a", "a"), ("b", "a")]);
    assert_eq!(run.send(Event::Begin).len(), 1);
    let tests = run.send(good(1));
    assert_eq!(tests, [(2, "a".to_owned())], "the other worker tests it");
    assert!(run.is_of_second(2) && run.state("b") == PackageState::Waiting);
    assert!(matches!(run.coordinator.reason(run.id("a")), Reason::TestElsewhere { .. }));
    let is_acknowledged =
        |action: &Action| matches!(action, Action::Send { message: ToWorker::Acknowledged { .. }, .. });
    assert!(!run.actions.iter().any(is_acknowledged), "the worker keeps its result until it is recorded");
    let granted = run.actions.iter().rev().find_map(|action| match action {
        Action::Grant(granted) => Some(granted.clone()),
        _ => None,
    });
    let to_test = granted.unwrap().to_test.unwrap();
    assert_eq!((to_test.build, &to_test.outputs[..]), (1, &[output("x", "1")][..]));
    assert_eq!(run.builds_another(2, vec![output("x", "1")]).len(), 1, "b can begin");
    assert_eq!(run.state("a"), PackageState::Built);
    assert_eq!(run.coordinator.reason(run.id("a")), &Reason::FirstBuild);
    let began = |action: &Action| matches!(action, Action::Record(Record::BuildBegan(_)));
    assert_eq!(
        run.actions.iter().filter(|action| began(action)).count(),
        2,
        "a test is not a build: a and b"
    );
}

/// A run with a worker that builds, and a second one that tests.
fn with_tester(edges: &[(&str, &str)]) -> Run {
    let (builder, tester) =
        (standing("default", true, &[Role::Build]), standing("default", true, &[Role::Test]));
    let mut run = run_of(edges, builder.clone());
    run.test = test_order();
    run.send(workers(&[("kiln-1", builder), ("kiln-2", tester)]));
    run.starts_another("kiln-2");
    run
}

#[test]
fn what_earlier_runs_measured_counts_when_a_worker_joins() {
    let named = |measured: Measured| [("kiln-1".to_owned(), measured)].into();
    let start = |measured: Measured| {
        let mut run = Run::new(&[("a", "a")], 2).elsewhere();
        run.coordinator = run.coordinator.with_measured(&named(measured));
        run.send(workers(&[("kiln-1", standing("default", true, &Role::ALL))]));
        run.starts_worker();
        run.coordinator
    };
    let measured = Measured { speed: Some(2.0), bytes_per_second: Some(5e6) };
    assert_eq!(start(measured).measured(), named(measured));
    assert_eq!(start(measured).speed_of("kiln-1", 1.0), 2.0);
    assert_eq!(start(measured).speed_of("other", 1.5), 1.5);
    // A damaged file, and a worker that lied for many runs.
    let nonsense = Measured { speed: Some(1e9), bytes_per_second: Some(-1.0) };
    assert_eq!(start(nonsense).measured(), named(Measured { speed: Some(16.0), bytes_per_second: None }));
}

#[test]
fn a_failed_test_of_another_worker_fails_the_build() {
    let mut run = with_tester(&[("a", "a")]);
    run.send(Event::Begin);
    run.send(good(1));
    // The trouble of the tester's machine is not that of the outputs.
    let again = run.fails_another(2, FailureKind::Disk);
    assert!(run.state("a") == PackageState::Building && again.len() == 1, "{again:?}");
    let again = run.fails_another(again[0].0, FailureKind::Cancelled);
    assert!(run.state("a") == PackageState::Building && again.len() == 1, "{again:?}");
    let ended = |action: &&Action| matches!(action, Action::Record(Record::BuildEnded { .. }));
    assert_eq!(run.actions.iter().filter(ended).count(), 0, "the build has not ended");
    run.fails_another(again[0].0, FailureKind::Test);
    assert_eq!(run.state("a"), PackageState::Failed);
    let failed = |action: &Action| {
        matches!(action, Action::Record(Record::BuildEnded { build: 1, outcome: BuildOutcome::Failed, .. }))
    };
    assert!(run.actions.iter().any(failed), "the failure is that of the build");
    assert_eq!(run.actions.iter().filter(ended).count(), 1);
    assert_eq!(run.finished(), Some(RunState::Finished));
    // The builder, which still has its result, drops what it kept for the next build.
    run.actions.clear();
    run.send(good(1));
    let superseded =
        |action: &Action| matches!(action, Action::Send { message: ToWorker::Superseded { .. }, .. });
    assert!(run.actions.iter().any(superseded), "{:?}", run.actions);
}

#[test]
fn a_tester_is_not_to_blame_for_what_another_built() {
    let names = ["a", "b", "c", "d"];
    let mut run = with_tester(&names.map(|name| (name, name)));
    let mut grants = run.send(Event::Begin);
    while let Some((build, _)) = grants.pop() {
        grants.extend(match run.is_of_second(build) {
            true => run.fails_another(build, FailureKind::Test),
            false => run.send(good(build)),
        });
    }
    assert!(names.iter().all(|name| run.state(name) == PackageState::Failed));
    assert!(!run.actions.iter().any(|action| matches!(action, Action::Quarantine { .. })));
}

#[test]
fn a_skipped_verification_is_over() {
    let (mut run, second) = verified_run();
    run.send(Event::Requested(Request { kind: RequestKind::Skip, package: "a".to_owned() }));
    run.builds_another(second, vec![output("x", "1")]);
    run.pass(1.0);
    assert_eq!(run.state("a"), PackageState::Skipped);
    // Its next build counts like any other.
    let grants = run.send(Event::Requested(Request { kind: RequestKind::Retry, package: "a".to_owned() }));
    assert_eq!(grants.len(), 1);
    assert!(!matches!(run.coordinator.reason(run.id("a")), Reason::Verify { .. }));
}

#[test]
fn outputs_are_tested_apart_from_their_build_if_asked() {
    // One worker with all roles, and one slot: the next build may come first.
    let mut run = run_of(&[("a", "a"), ("b", "a")], standing("default", true, &Role::ALL));
    run.coordinator = run.coordinator.with_output_tests_apart(true);
    run.test = test_order();
    assert_eq!(run.send(Event::Begin), [(1, "a".to_owned())]);
    assert_eq!(run.send(good(1)), [(2, "a".to_owned())], "the same worker may test it");
    assert!(matches!(run.coordinator.reason(run.id("a")), Reason::TestElsewhere { .. }));
    assert_eq!(run.state("b"), PackageState::Waiting, "nothing uses what was not tested");
    let outcome = Ok(vec![output("x", "1")]);
    let tested = BuildResult { build: 2, outcome, is_reproducible: None, provenance: None };
    assert_eq!(run.send(Incoming::Ended(tested)), [(3, "b".to_owned())]);
    assert_eq!(run.state("a"), PackageState::Built);
}

#[test]
fn tests_of_others_run_on_workers_that_test() {
    let builder = || standing("default", true, &[Role::Build]);
    let tester = || standing("default", true, &[Role::Test]);
    let mut run = Run::new(&[("a", "a"), ("a~t", "a"), ("b", "a")], 2).elsewhere();
    let test = run.id("a~t");
    run.coordinator = run.coordinator.with_tests([test]);
    run.send(workers(&[("kiln-1", builder()), ("kiln-2", tester())]));
    run.starts_worker();
    run.starts_another("kiln-2");
    assert_eq!(run.send(Event::Begin), [(1, "a".to_owned())]);
    let grants = run.send(good(1));
    let at = |package: &str| grants.iter().find(|(_, name)| name == package).unwrap().0;
    assert_eq!(grants.len(), 2, "the test and the next build are in parallel: {grants:?}");
    assert!(run.is_of_second(at("a~t")) && !run.is_of_second(at("b")));
    // One that has joined and is not there is none: builders run the tests, as they test outputs.
    let mut run = Run::new(&[("a~t", "a~t")], 2).elsewhere();
    let test = run.id("a~t");
    run.coordinator = run.coordinator.with_tests([test]);
    run.send(workers(&[("kiln-1", builder()), ("kiln-2", tester())]));
    run.starts_worker();
    assert_eq!(run.send(Event::Begin), [(1, "a~t".to_owned())]);
    // A package that only its test uses may be built by anyone.
    let mut run = run_of(&[("a", "a"), ("a~t", "a")], standing("lab", false, &Role::ALL));
    let test = run.id("a~t");
    run.coordinator = run.coordinator.with_tests([test]);
    assert_eq!(run.send(Event::Begin), [(1, "a".to_owned())]);
}

#[test]
fn packages_of_a_knot_are_needed_in_a_second_pass() {
    let mut run = Run::new(&[("a", "a"), ("b", "b")], 2).elsewhere();
    let knotted = run.id("a");
    run.coordinator = run.coordinator.with_knotted([knotted]);
    run.send(workers(&[("kiln-1", standing("lab", false, &Role::ALL))]));
    run.starts_worker();
    assert_eq!(run.send(Event::Begin), [(1, "b".to_owned())]);
}

/// A run in which another pool builds a package again, up to that build's grant.
pub(super) fn verified_run() -> (Run, Number) {
    let lab = |name| (name, standing(name, true, &Role::ALL));
    let mut run = run_of(&[("a", "a"), ("b", "a")], standing("kiln-1", true, &Role::ALL));
    run.coordinator = run.coordinator.with_verified_share(1.0);
    run.send(workers(&[lab("kiln-1"), lab("kiln-2")]));
    run.starts_another("kiln-2");
    run.send(Event::Begin);
    let grants = run.send(good(1));
    assert_eq!(grants, [(2, "a".to_owned())], "b waits until a is verified");
    assert!(run.coordinator.kept(run.id("a")).is_some(), "a crash loses nothing");
    (run, grants[0].0)
}

#[test]
fn another_pool_builds_a_share_of_packages_again() {
    let (mut run, second) = verified_run();
    let grants = run.builds_another(second, vec![output("x", "1")]);
    assert_eq!(grants.len(), 1, "b can begin");
    assert_eq!(run.state("a"), PackageState::Built);
    assert!(!run.actions.iter().any(|action| matches!(action, Action::Notify(Notice::Differs { .. }))));
}

#[test]
fn other_contents_are_reported_and_the_first_are_kept() {
    let (mut run, second) = verified_run();
    run.builds_another(second, vec![output("x", "poison")]);
    assert_eq!(run.state("a"), PackageState::Built);
    let message = run.actions.iter().find_map(|action| match action {
        Action::Notify(Notice::Differs { message, .. }) => Some(message.clone()),
        _ => None,
    });
    let message = message.unwrap();
    assert!(
        message.contains("kiln-1 of pool kiln-1 built a") && message.contains("kiln-2 of pool kiln-2"),
        "{message}"
    );
    assert_eq!(run.coordinator.kept(run.id("a")).unwrap().contents["x"], "1");
}

#[test]
fn a_verification_without_a_worker_ends() {
    let (mut run, _) = verified_run();
    run.send(workers(&[("kiln-1", standing("kiln-1", true, &Role::ALL))]));
    run.pass(1.0);
    assert_eq!(run.state("a"), PackageState::Built);
    assert_eq!(run.state("b"), PackageState::Building);
}
