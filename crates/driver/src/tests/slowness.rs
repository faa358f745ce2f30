//! Slow operations delay no event.

use super::*;

const GRAPH: [(&str, &str); 6] = [
    ("rsync", "acl"),
    ("acl", "attr"),
    ("jq", "libonig"),
    ("rsync", "zlib"),
    ("lone", "lone"),
    ("odd", "odd"),
];
const PACKAGES: usize = 8;

/// Simulates a run; slowness may only affect its duration.
fn passes(pace: Pace) -> World {
    let mut world = World::new(&GRAPH, 3, pace);
    world.begin();
    world.pass_until(20_000.0);
    assert_eq!(world.ended, Some(Ok(RunState::Finished)));
    assert_eq!(world.count(&BuildOutcome::Built), PACKAGES);
    assert_eq!(world.count(&BuildOutcome::Lost), 0, "a lease lapsed");
    world.check_order();
    world
}

#[test]
fn a_normal_store_keeps_the_order_and_every_lease() {
    passes(Pace::default());
}

#[test]
fn a_store_that_takes_five_seconds_loses_no_lease() {
    let world = passes(Pace { commit_seconds: 5.0, ..Pace::default() });
    assert!(world.commits < 60, "{} commits: waiting decisions must share one transaction", world.commits);
}

#[test]
fn a_store_that_takes_longer_than_a_lease_loses_none() {
    passes(Pace { commit_seconds: LEASE_SECONDS + 30.0, ..Pace::default() });
}

#[test]
fn a_solver_that_takes_a_minute_loses_no_lease() {
    // The last packages are still being prepared while the first are built.
    passes(Pace { prepare_seconds: 60.0, ..Pace::default() });
}

#[test]
fn a_solver_that_takes_longer_than_a_lease_loses_none() {
    passes(Pace { prepare_seconds: LEASE_SECONDS + 30.0, ..Pace::default() });
}

#[test]
fn a_disk_that_is_full_for_100_seconds_loses_no_lease() {
    // Builds end while the disk is full, and begin when there is space.
    let world = passes(Pace { is_full: 550.0..650.0, ..Pace::default() });
    assert_eq!(world.tasks.iter().filter(|task| **task == Task::NoRoom).count(), 1, "it is reported once");
}

#[test]
fn everything_slow_at_once_loses_no_lease() {
    let pace = Pace { commit_seconds: 5.0, prepare_seconds: 60.0, is_full: 590.0..700.0, ..Pace::default() };
    passes(pace);
}

#[test]
fn a_silent_worker_is_noticed_while_a_commit_is_under_way() {
    let mut world = World::new(&[("a", "a"), ("b", "b")], 2, Pace::default());
    world.begin();
    world.pass_until(5.0);
    world.is_silent = true;
    world.pace.commit_seconds = 1000.0;
    world.apply(asked(RequestKind::Skip, "b"));
    world.pass_until(5.0 + LEASE_SECONDS + 2.0);
    assert_eq!(world.state("a"), PackageState::Ready, "its lease is over");
    assert_eq!(world.count(&BuildOutcome::Lost), 0, "and not recorded yet");
}

#[test]
fn a_cancel_does_not_wait_for_a_commit() {
    let mut world = World::new(&[("a", "a"), ("b", "b")], 2, Pace::default());
    world.begin();
    world.pass_until(5.0);
    world.pace.commit_seconds = 1000.0;
    world.apply(asked(RequestKind::Skip, "a"));
    assert!(world.is_asked_to_cancel(1));
    world.pass_until(10.0);
    assert_eq!(world.building.keys().collect::<Vec<_>>(), [&2]);
}

#[test]
fn a_cancel_follows_its_waiting_grant() {
    let mut world = World::new(&[("a", "a")], 1, Pace { prepare_seconds: 0.0, ..Pace::default() });
    world.begin();
    world.pass_until(0.015);
    world.pace.commit_seconds = 50.0;
    world.pass_until(2.0);
    assert_eq!(world.state("a"), PackageState::Building, "it is decided");
    assert!(world.building.is_empty(), "and not begun");
    world.apply(asked(RequestKind::Skip, "a"));
    assert!(!world.performed.iter().any(is_cancel));
    world.pass_until(200.0);
    let at = |is: fn(&Action) -> bool| world.performed.iter().position(is).unwrap();
    assert!(at(|a| matches!(a, Action::Grant(_))) < at(is_cancel));
    assert_eq!(world.ended, Some(Ok(RunState::Finished)));
    assert_eq!(world.state("a"), PackageState::Skipped);
}

#[test]
fn decisions_during_a_commit_form_the_next_one_up_to_a_limit() {
    let names: Vec<String> = (0..400).map(|number| format!("p{number}")).collect();
    let edges: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    let pace = Pace { commit_seconds: 1e6, ..Pace::default() };
    let mut world = World::new(&edges, 1, pace);
    world.begin();
    for name in &names {
        world.apply(asked(RequestKind::Skip, name));
        world.apply(asked(RequestKind::Retry, name));
    }
    assert_eq!(world.commits, 1);
    let sizes = |world: &World| -> Vec<usize> {
        let size = |task: &Task| match task {
            Task::Commit(records) => Some(records.len()),
            _ => None,
        };
        world.tasks.iter().filter_map(size).collect()
    };
    world.commit();
    world.commit();
    assert_eq!(sizes(&world)[0], names.len(), "a decision is never split");
    let joined = &sizes(&world)[1..];
    assert!(joined.iter().all(|size| (RECORDS_MAX - 3..=RECORDS_MAX).contains(size)), "{joined:?}");
}

#[test]
fn one_package_is_prepared_at_a_time_and_the_longest_path_first() {
    let pace = Pace { prepare_seconds: 10.0, ..Pace::default() };
    let mut world = World::new(&[("c", "b"), ("b", "a"), ("y", "x"), ("lone", "lone")], 1, pace);
    world.begin();
    world.pass_until(45.0);
    let prepared: Vec<PackageId> = world
        .tasks
        .iter()
        .filter_map(|task| match task {
            Task::Prepare(to_prepare) => Some(to_prepare.package),
            _ => None,
        })
        .collect();
    assert_eq!(prepared, [world.id("a"), world.id("x"), world.id("lone")]);
}

#[test]
fn answers_to_questions_before_a_retry_are_dropped() {
    let pace = Pace { prepare_seconds: 60.0, build_seconds: 5.0, ..Pace::default() };
    let mut world = World::new(&[("a", "a"), ("b", "b")], 1, pace);
    world.begin();
    world.pass_until(10.0);
    // The user fixes the recipe while the solver is busy with it.
    world.apply(asked(RequestKind::Skip, "a"));
    world.apply(asked(RequestKind::Retry, "a"));
    world.pass_until(61.0);
    let readings: Vec<Reading> = world
        .tasks
        .iter()
        .filter_map(|task| match task {
            Task::Prepare(to_prepare) => Some(to_prepare.reading),
            _ => None,
        })
        .collect();
    assert_eq!(readings, [Reading::Cached, Reading::Fresh]);
    assert!(world.building.is_empty(), "the first answer does not count");
}
