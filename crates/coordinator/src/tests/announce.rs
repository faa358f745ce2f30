//! Announced builds, with workers whose messages the tests send.

use super::pools::{standing, workers};
use super::run::{Run, asked, good};
use crate::*;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::role::Role;
use kilnyard_protocol::ANNOUNCED;
use kilnyard_store::RequestKind;

/// Four packages and a worker elsewhere that has two of them, with these capabilities.
fn busy(capabilities: &[&str]) -> Run {
    busy_with(&[("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")], capabilities, true)
}

/// The same with these packages, of which two must be for a worker whose pool is trusted or not.
fn busy_with(edges: &[(&str, &str)], capabilities: &[&str], is_trusted: bool) -> Run {
    let mut run = Run::new(edges, 2).elsewhere();
    let pool = |name: &'static str| (name, standing(name, is_trusted, &Role::ALL));
    run.send(workers(&[pool("kiln-1"), pool("kiln-2")]));
    run.starts_worker();
    let mut run = run.with_capabilities(capabilities);
    assert_eq!(run.send(Event::Begin).len(), 2);
    run
}

/// The announced builds: package, machine and attempt.
fn announced(run: &Run) -> Vec<(String, MachineId, Attempt)> {
    let announced = run.actions.iter().filter_map(|action| match action {
        Action::Announce(granted) => {
            let name = run.coordinator.graph.name(granted.package).to_owned();
            Some((name, granted.machine, granted.attempt))
        }
        _ => None,
    });
    announced.collect()
}

/// Whether an announcement was withdrawn: at the worker, and from what it may read.
fn is_withdrawn(run: &Run, attempt: Attempt) -> bool {
    let is_revoked = run.actions.iter().any(|action| {
        matches!(action, Action::Send { message: ToWorker::Revoke { attempt: other, .. }, .. } if *other == attempt)
    });
    let is_forgotten = run
        .actions
        .iter()
        .any(|action| matches!(action, Action::Forget { attempt: other, .. } if *other == attempt));
    assert_eq!(is_revoked, is_forgotten);
    is_revoked
}

#[test]
fn a_busy_worker_prepares_its_next_build_and_gets_it() {
    let mut run = busy(&[ANNOUNCED]);
    assert_eq!(run.pass(5.0), []);
    let [(name, machine, attempt)] = &announced(&run)[..] else { panic!("{:?}", announced(&run)) };
    assert_eq!((name.as_str(), *machine), ("c", MachineId(0)));
    assert_eq!(run.state("c"), PackageState::Ready, "it is not decided");
    assert_eq!(run.send(good(1)), [(3, "c".to_owned())]);
    assert_eq!(run.worker.attempts[&3], *attempt);
    assert!(!is_withdrawn(&run, *attempt));
    run.pass(1.0);
    assert_eq!(announced(&run).len(), 2, "it prepares the one after that");
    assert_eq!(run.send(good(2)), [(4, "d".to_owned())]);
}

#[test]
fn a_build_that_starts_elsewhere_is_no_longer_announced() {
    let mut run = busy(&[ANNOUNCED]);
    run.pass(1.0);
    let attempt = announced(&run)[0].2;
    let grants = run.starts_another("kiln-2");
    assert_eq!(grants.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["c", "d"]);
    let build = grants[0].0;
    assert!(run.is_of_second(build) && run.worker.attempts[&build] != attempt);
    assert!(is_withdrawn(&run, attempt));
}

#[test]
fn a_build_that_cannot_follow_is_no_longer_announced() {
    let mut run = busy(&[ANNOUNCED]);
    run.pass(1.0);
    run.send(asked(RequestKind::Skip, "c"));
    run.pass(1.0);
    let [c, d] = &announced(&run)[..] else { panic!("{:?}", announced(&run)) };
    assert!(is_withdrawn(&run, c.2) && !is_withdrawn(&run, d.2));
    // The worker is drained.
    let held = Standing { is_held: true, ..standing("kiln-1", true, &Role::ALL) };
    run.send(workers(&[("kiln-1", held)]));
    run.pass(2.0);
    assert!(is_withdrawn(&run, d.2));
    assert_eq!(announced(&run).len(), 2);
}

#[test]
fn builds_are_announced_only_to_workers_elsewhere_that_prepare_them() {
    let mut run = busy(&[]);
    run.pass(5.0);
    assert_eq!(announced(&run), []);
    let mut run = busy(&[ANNOUNCED]);
    run.send(Event::Stop);
    run.pass(5.0);
    assert_eq!(announced(&run), [], "nothing follows");
}

#[test]
fn a_worker_prepares_nothing_that_its_pool_must_not_build() {
    let edges = [("a", "a"), ("b", "b"), ("d", "c")];
    for (is_trusted, count) in [(true, 1), (false, 0)] {
        let mut run = busy_with(&edges, &[ANNOUNCED], is_trusted);
        run.pass(5.0);
        assert_eq!(announced(&run).len(), count, "{:?}", announced(&run));
    }
}
