//! Kept work, with two workers on equal machines whose messages the tests send.

use super::pools::{standing, workers};
use super::run::{Run, good, output};
use crate::*;
use kilnyard_model::keep::KeepOrder;
use kilnyard_model::order::{Account, CommandOrder, Key};
use kilnyard_model::role::Role;
use kilnyard_protocol::Hello;

fn keep() -> KeepOrder {
    let command = CommandOrder {
        arguments: Vec::new(),
        account: Account::Builder,
        directory: "/".to_owned(),
        environment: Vec::new(),
    };
    KeepOrder::new("a", &Key { digest: String::new(), lines: Vec::new() }, command.clone(), command)
}

/// A run of one package that keeps work, with two workers of different pools, of which the second has this kept work.
fn run_with(kept: Vec<String>, reason: Reason, verified_share: f64) -> Run {
    let mut run = Run::new(&[("a", "a")], 2).elsewhere();
    run.coordinator = run.coordinator.with_verified_share(verified_share);
    run.keep = Some(keep());
    run.reason = reason;
    let pool = |name: &'static str| (name, standing(name, true, &Role::ALL));
    run.send(workers(&[pool("kiln-1"), pool("kiln-2")]));
    run.starts_worker();
    run.kept = kept;
    run.starts_another("kiln-2");
    run
}

/// The leases that were granted, in order.
fn leases(run: &Run) -> Vec<Lease> {
    let granted = run.actions.iter().filter_map(|action| match action {
        Action::Grant(granted) => Some(granted.lease(1, 0, false)),
        _ => None,
    });
    granted.collect()
}

#[test]
fn a_build_starts_where_its_kept_work_is() {
    let mut run = run_with(vec![keep().key_in_pool("kiln-2")], Reason::FirstBuild, 0.0);
    assert_eq!(run.send(Event::Begin).len(), 1);
    assert!(run.is_of_second(1));
    let kept = leases(&run)[0].order.keep.clone().unwrap();
    assert_eq!((kept.key, kept.starts_afresh), (keep().key_in_pool("kiln-2"), false));
}

#[test]
fn kept_work_of_another_pool_or_key_attracts_no_build() {
    let other = Key { digest: String::new(), lines: vec!["depends gcc 2".to_owned()] };
    let other = KeepOrder::new("a", &other, keep().pack, keep().report);
    let claims =
        vec![keep().key_in_pool("kiln-1"), keep().key, other.key_in_pool("kiln-2"), "nonsense".into()];
    let mut run = run_with(claims, Reason::FirstBuild, 0.0);
    assert_eq!(run.send(Event::Begin).len(), 1);
    assert!(!run.is_of_second(1));
    assert_eq!(leases(&run)[0].order.keep.as_ref().unwrap().key, keep().key_in_pool("kiln-1"));
    // More than a worker may name.
    let mut claims = vec!["0".repeat(64); Hello::KEPT_MAX];
    claims.push(keep().key_in_pool("kiln-2"));
    let mut run = run_with(claims, Reason::FirstBuild, 0.0);
    run.send(Event::Begin);
    assert!(!run.is_of_second(1));
}

#[test]
fn a_forced_build_starts_from_scratch_anywhere() {
    let mut run = run_with(vec![keep().key_in_pool("kiln-2")], Reason::Forced, 0.0);
    run.send(Event::Begin);
    assert!(!run.is_of_second(1));
    assert!(leases(&run)[0].order.keep.as_ref().unwrap().starts_afresh);
}

#[test]
fn a_verification_neither_uses_nor_leaves_kept_work() {
    let mut run = run_with(vec![keep().key_in_pool("kiln-2")], Reason::Forced, 1.0);
    run.send(Event::Begin);
    let second = run.send(good(1));
    assert!(run.is_of_second(second[0].0));
    let leases = leases(&run);
    assert_eq!(leases.iter().map(|lease| lease.order.keep.is_some()).collect::<Vec<_>>(), [true, false]);
    run.builds_another(second[0].0, vec![output("x", "1")]);
    assert_eq!(run.state("a"), PackageState::Built);
}

#[test]
fn kept_work_of_a_worker_that_left_does_not_count() {
    let mut run = run_with(vec![keep().key_in_pool("kiln-2")], Reason::FirstBuild, 0.0);
    let session = run.second_session();
    run.say(ToCoordinator::Leave { session });
    assert_eq!(run.send(Event::Begin).len(), 1);
    assert!(!run.is_of_second(1));
    assert_eq!(run.coordinator.scheduler.rank_seconds(run.id("a")), 1.0);
}
