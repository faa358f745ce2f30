//! Commits that fail.

use super::*;

fn refused_from(first: usize, refusal: Refusal) -> Vec<(usize, Refusal)> {
    (first..first + 1000).map(|number| (number, refusal)).collect()
}

#[test]
fn a_failed_commit_reads_the_state_again_and_the_run_ends_well() {
    let edges = [("rsync", "acl"), ("acl", "attr"), ("jq", "libonig"), ("lone", "lone")];
    // Whichever of the first commits it is.
    for failing in 1..25 {
        let pace = Pace { fails: vec![(failing, Refusal::ForNow)], ..Pace::default() };
        let mut world = World::new(&edges, 2, pace);
        world.begin();
        world.pass_until(20_000.0);
        assert_eq!(world.ended, Some(Ok(RunState::Finished)), "commit {failing}");
        let reloads = world.tasks.iter().filter(|task| **task == Task::Reload).count();
        assert_eq!(reloads, usize::from(failing <= world.commits), "commit {failing}");
        for name in ["rsync", "acl", "attr", "jq", "libonig", "lone"] {
            assert_eq!(world.state(name), PackageState::Built, "{name}, commit {failing}");
            let is_it = |record: &&Record| matches!(record, Record::Outputs(row) if row.package == name);
            assert_eq!(world.store.iter().filter(is_it).count(), 1, "{name}, commit {failing}");
        }
        let grants: Vec<Number> = world
            .performed
            .iter()
            .filter_map(|action| match action {
                Action::Grant(granted) => Some(granted.build),
                _ => None,
            })
            .collect();
        let numbers: std::collections::BTreeSet<Number> = grants.iter().copied().collect();
        assert_eq!(numbers.len(), grants.len(), "a number is used once, commit {failing}: {grants:?}");
    }
}

#[test]
fn a_reload_continues_builds_and_keeps_requests() {
    let mut world = World::new(&[("b", "a"), ("c", "c")], 2, Pace::default());
    world.begin();
    world.pass_until(5.0);
    let before: Vec<Number> = world.building.keys().copied().collect();
    assert_eq!(before.len(), 2);
    world.pace.fails = vec![(world.commits + 1, Refusal::ForNow)];
    world.apply(asked(RequestKind::Skip, "b"));
    world.pass_until(5.05);
    assert!(world.tasks.contains(&Task::Reload));
    world.apply(asked(RequestKind::Skip, "c"));
    world.pass_until(10.0);
    assert_eq!(world.state("b"), PackageState::Skipped, "the request that could not be written");
    assert_eq!(world.state("c"), PackageState::Skipped, "the one that arrived meanwhile");
    assert_eq!(world.building.len(), 1, "only `a` is built");
    assert!(before.contains(world.building.keys().next().unwrap()), "it was not begun again");
    world.pass_until(2000.0);
    assert_eq!(world.state("a"), PackageState::Built);
}

#[test]
fn a_reload_does_not_wait_for_workers() {
    let mut world = World::new(&[("a", "a")], 1, Pace::default());
    world.begin();
    world.pass_until(5.0);
    world.is_silent = true;
    world.pace.fails = vec![(world.commits + 1, Refusal::ForNow)];
    world.apply(asked(RequestKind::Skip, "a"));
    world.pass_until(10.0);
    assert_eq!((world.state("a"), world.ended), (PackageState::Skipped, None));
    world.pass_until(10.0 + LEASE_SECONDS);
    assert_eq!(world.ended, Some(Ok(RunState::Finished)), "its lease is over");
}

#[test]
fn a_stopping_run_keeps_stopping_after_a_reload() {
    let mut world = World::new(&[("a", "a")], 1, Pace::default());
    world.begin();
    world.pass_until(5.0);
    world.pace.fails = vec![(world.commits + 1, Refusal::ForNow)];
    world.apply(Input::Event(Event::Stop));
    world.pass_until(20.0);
    assert_eq!(world.ended, Some(Ok(RunState::Interrupted)));
}

#[test]
fn a_store_that_rejects_every_commit_ends_the_run() {
    let pace = Pace { fails: refused_from(4, Refusal::ForNow), ..Pace::default() };
    let mut world = World::new(&[("a", "a")], 1, pace);
    world.begin();
    world.pass_until(2000.0);
    assert_eq!(world.ended, Some(Err(())));
    let reloads = world.tasks.iter().filter(|task| **task == Task::Reload).count();
    assert_eq!(reloads, RELOADS_MAX as usize);
}

#[test]
fn an_unwritable_store_ends_the_run_at_once() {
    let pace = Pace { fails: vec![(3, Refusal::ForGood)], ..Pace::default() };
    let mut world = World::new(&[("a", "a")], 1, pace);
    world.begin();
    world.pass_until(2.0);
    assert_eq!(world.ended, Some(Err(())));
    assert!(!world.tasks.contains(&Task::Reloading));
}

#[test]
fn a_full_disk_is_waited_for_up_to_the_limit() {
    let pace = Pace { is_full: 1.0..1e9, build_seconds: 20.0, ..Pace::default() };
    let mut world = World::new(&[("b", "a")], 1, pace);
    world.begin();
    world.pass_until(1000.0);
    assert_eq!(world.ended, Some(Err(())));
    let waited_seconds = world.now_seconds - 20.0;
    assert!(
        (ROOM_PATIENCE_SECONDS..ROOM_PATIENCE_SECONDS + 5.0).contains(&waited_seconds),
        "{waited_seconds}"
    );
}

#[test]
fn a_stopping_run_does_not_wait_for_a_full_disk() {
    let pace = Pace { is_full: 1.0..1e9, ..Pace::default() };
    let mut world = World::new(&[("a", "a")], 1, pace);
    world.begin();
    world.pass_until(5.0);
    world.apply(Input::Event(Event::Stop));
    assert!(world.is_asked_to_cancel(1), "builds are still cancelled");
    world.pass_until(8.0);
    assert_eq!(world.ended, Some(Err(())));
}
