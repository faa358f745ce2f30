//! Scripted events, and a seeded simulation with workers that fail, lie, answer late and vanish.

mod announce;
mod deposits;
mod kept;
mod pools;
mod requirements;
mod run;

use super::*;
use kilnyard_model::order::Stage;
use kilnyard_model::result::{FailureKind, Measures};
use kilnyard_model::role::Role;
use kilnyard_schedule::Pressure;
use kilnyard_store::RequestKind;
use run::{Incoming, Run, asked, attempts, bad, good, output, scheduler, start, to_build};
use std::collections::BTreeMap;

#[test]
fn packages_are_granted_in_dependency_order() {
    let mut run = Run::new(&[("rsync", "acl"), ("acl", "attr"), ("rsync", "zlib")], 1);
    let grants = run.send(Event::Begin);
    assert_eq!(grants, [(1, "attr".to_owned())], "the longest path first, one slot");
    assert_eq!(run.send(good(1)), [(2, "acl".to_owned())]);
    assert_eq!(run.send(good(2)), [(3, "zlib".to_owned())]);
    assert_eq!(run.send(good(3)), [(4, "rsync".to_owned())]);
    run.send(good(4));
    assert_eq!(run.finished(), Some(RunState::Finished));
    assert_eq!(run.state("rsync"), PackageState::Built);
}

#[test]
fn a_failure_stops_only_what_depends_on_it_and_is_blamed() {
    let mut run = Run::new(&[("rsync", "acl"), ("acl", "attr"), ("jq", "libonig")], 2);
    run.send(Event::Begin);
    run.send(bad(1, FailureKind::Command));
    assert_eq!(run.state("attr"), PackageState::Failed);
    assert_eq!(run.state("acl"), PackageState::Blocked);
    assert_eq!(
        run.coordinator.reason(run.id("rsync")).to_string(),
        "it needs acl, which needs attr (failed)"
    );
    run.send(good(2));
    run.send(good(3));
    assert_eq!(run.state("jq"), PackageState::Built);
    assert_eq!(run.finished(), Some(RunState::Finished));
}

#[test]
fn a_failed_package_is_retried_on_request_and_unblocks_its_dependents() {
    let mut run = Run::new(&[("acl", "attr"), ("zlib", "zlib"), ("long", "zlib")], 2);
    run.send(Event::Begin);
    let attr = run.actions.iter().find_map(|action| match action {
        Action::Grant(Granted { build, package, .. }) if *package == run.id("attr") => Some(*build),
        _ => None,
    });
    run.send(bad(attr.unwrap(), FailureKind::Command));
    assert_eq!(run.state("acl"), PackageState::Blocked);
    let grants = run.send(asked(RequestKind::Retry, "attr"));
    assert_eq!(grants[0].1, "attr");
    assert_eq!(run.state("acl"), PackageState::Waiting);
    let acl = run.send(good(grants[0].0));
    assert_eq!(acl[0].1, "acl");
    run.send(asked(RequestKind::Retry, "attr"));
    assert!(run.actions.iter().any(|a| matches!(a, Action::Notify(Notice::Refused { .. }))));
}

#[test]
fn a_skipped_package_is_cancelled_and_blocks_its_dependents() {
    let mut run = Run::new(&[("acl", "attr"), ("jq", "libonig")], 1);
    run.send(Event::Begin);
    assert_eq!(run.state("attr"), PackageState::Building);
    run.send(asked(RequestKind::Skip, "attr"));
    assert!(run.is_cancelled(1));
    assert_eq!((run.state("attr"), run.state("acl")), (PackageState::Skipped, PackageState::Blocked));
    // The worker's report frees the slot, and its result does not count.
    assert_eq!(run.send(good(1)), [(2, "libonig".to_owned())]);
    assert_eq!(run.state("attr"), PackageState::Skipped);
}

#[test]
fn a_retry_reads_the_recipe_again_and_builds_from_it() {
    let mut run = Run::new(&[("a", "a")], 1);
    let readings = |run: &Run| -> Vec<Reading> {
        let reading = |action: &Action| match action {
            Action::Prepare { reading, .. } => Some(*reading),
            _ => None,
        };
        run.actions.iter().filter_map(reading).collect()
    };
    run.send(Event::Begin);
    run.send(bad(1, FailureKind::Machine));
    assert_eq!(readings(&run), [Reading::Cached], "a second try uses the same recipe");
    run.send(bad(2, FailureKind::Command));
    run.coordinator.packages[0].kept =
        Some(KeptOutputs { recipe_version: "2".into(), revision: 4, contents: BTreeMap::new() });
    let mut actions = Vec::new();
    run.coordinator.apply(0.0, asked(RequestKind::Retry, "a"), &mut actions);
    assert!(actions.contains(&Action::Prepare { package: run.id("a"), reading: Reading::Fresh }));
    let Prepared::Build(mut found) = to_build() else { unreachable!() };
    (found.recipe_version, found.published_revision) = ("2".into(), 6);
    found.order.version = "2+7".into();
    let package = run.id("a");
    run.send(Event::Prepared { package, prepared: Prepared::Build(found) });
    assert_eq!(run.coordinator.next_revision(package), 7);
    let version = run.actions.iter().rev().find_map(|action| match action {
        Action::Record(Record::BuildBegan(build)) => Some(build.version.clone()),
        _ => None,
    });
    assert_eq!(version.unwrap(), "2+7");
    run.send(good(3));
    let kept = run.coordinator.kept(package).unwrap();
    assert_eq!((kept.recipe_version.as_str(), kept.revision), ("2", 7));
}

/// All workers of a run, of which these take no builds.
fn held(held: &[&str]) -> Event {
    let standing = |name: &str| Standing {
        is_held: held.contains(&name),
        // As before they were named, so that they need not join again.
        pool: OWN_POOL.to_owned(),
        is_trusted: true,
        roles: Role::all(),
    };
    Event::Workers(["kiln-1", "other"].map(|name| (name.to_owned(), standing(name))).into())
}

#[test]
fn a_worker_that_fails_because_of_its_machine_rests_and_is_then_quarantined() {
    let mut run = Run::new(&[("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")], 1).elsewhere();
    let quarantine = |run: &Run| {
        run.actions.iter().find_map(|action| match action {
            Action::Quarantine { worker, reason } => Some((worker.clone(), reason.clone())),
            _ => None,
        })
    };
    assert_eq!(run.send(Event::Begin).len(), 1);
    for build in 1..FAULTS_MAX as Number {
        assert_eq!(run.send(bad(build, FailureKind::Machine)), [], "it rests");
        assert_eq!(run.pass(REST_SECONDS - 1.0), []);
        run.send(Incoming::Pressure(Pressure::Low));
        assert_eq!(run.pass(2.0).len(), 1);
    }
    assert_eq!(quarantine(&run), None);
    run.send(bad(FAULTS_MAX as Number, FailureKind::Machine));
    let (worker, reason) = quarantine(&run).unwrap();
    assert!(worker == "kiln-1" && reason.contains("3 builds in a row") && reason.contains("no"), "{reason}");
    for _ in 0..4 {
        run.send(Incoming::Pressure(Pressure::Low));
        assert_eq!(run.pass(REST_SECONDS), []);
    }
    // Another process of it, or another session, changes nothing; the user does.
    assert_eq!(run.starts_worker(), []);
    assert_eq!(run.send(held(&["other"])), [], "the roster may not have it yet");
    run.send(held(&["kiln-1", "other"]));
    assert_eq!(run.send(held(&["other"])).len(), 1);
}

#[test]
fn what_a_worker_alone_fails_is_built_by_another() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let edges: Vec<(&str, &str)> = names.iter().map(|name| (*name, *name)).chain([("z", "a")]).collect();
    let mut run = Run::new(&edges, 1).elsewhere();
    run.send(held(&[]));
    run.send(Event::Begin);
    // It fails each package at once.
    let fails = |run: &mut Run, count: usize| {
        for _ in 0..count {
            let build = *run.worker.attempts.last_key_value().unwrap().0;
            run.send(bad(build, FailureKind::Command));
        }
    };
    fails(&mut run, BLAMES_MAX - 1);
    let failed = |run: &Run| names.iter().filter(|name| run.state(name) == PackageState::Failed).count();
    assert_eq!(failed(&run), BLAMES_MAX - 1, "packages may be to blame");
    // No other worker is there.
    fails(&mut run, 1);
    assert_eq!(failed(&run), BLAMES_MAX);
    let next = *run.worker.attempts.last_key_value().unwrap().0;
    let mut grants = run.starts_another("other");
    grants.extend(run.send(bad(next, FailureKind::Command)));
    let quarantine = |run: &Run| {
        run.actions
            .iter()
            .any(|action| matches!(action, Action::Quarantine { worker, .. } if worker == "kiln-1"))
    };
    let mut rounds = 0;
    while run.finished().is_none() && rounds < 100 {
        rounds += 1;
        match grants.pop() {
            // The other builds everything.
            Some((build, _)) if run.is_of_second(build) => {
                grants.extend(run.builds_another(build, vec![output("x", "1")]));
            }
            Some((build, _)) => grants.extend(run.send(bad(build, FailureKind::Command))),
            None => {
                grants.extend(run.pass(REST_SECONDS / 3.0));
                run.send(Incoming::Pressure(Pressure::Low));
            }
        }
    }
    assert!(quarantine(&run), "{rounds}");
    for name in names.iter().chain(&["z"]) {
        assert_eq!(run.state(name), PackageState::Built, "{name}: the other built it");
    }
}

#[test]
fn the_own_machine_is_never_quarantined() {
    let mut run = Run::new(&[("a", "a"), ("b", "b"), ("c", "c")], 1);
    run.send(Event::Begin);
    for build in 1..=9 {
        run.send(bad(build, FailureKind::Machine));
    }
    assert_eq!(run.finished(), Some(RunState::Finished));
    assert!(!run.actions.iter().any(|action| matches!(action, Action::Quarantine { .. })));
}

#[test]
fn what_a_package_or_the_network_is_to_blame_for_is_no_fault_of_a_worker() {
    let edges = [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")];
    let mut run = Run::new(&edges, 1).elsewhere();
    run.send(Event::Begin);
    for build in 1..=FAULTS_MAX as Number {
        let id = PackageId(build as u32 - 1);
        run.send(bad(build, FailureKind::Command));
        // The recipe was mended; another worker builds it.
        let name = run.coordinator.graph.name(id).to_owned();
        run.send(asked(RequestKind::Retry, &name));
        run.coordinator.note_success("another", id, &mut Vec::new());
    }
    assert!(!run.actions.iter().any(|action| matches!(action, Action::Quarantine { .. })));
    let mut actions = Vec::new();
    let failure = |kind| Failure {
        stage: Stage::Build,
        kind,
        message: "x".repeat(1 << 20),
        line_number: None,
        lines: Vec::new(),
    };
    for (kind, count) in [(FailureKind::Memory, 0), (FailureKind::Network, 0), (FailureKind::Signal, 1)] {
        for id in (0..FAULTS_MAX as u32).map(PackageId) {
            run.coordinator.note_failure("far", id, &failure(kind), &mut actions);
            run.coordinator.note_success("another", id, &mut actions);
        }
        let quarantines = actions.iter().filter(|action| matches!(action, Action::Quarantine { .. }));
        assert_eq!(quarantines.count(), count, "{kind:?}");
    }
    // Events say so, too.
    assert!(matches!(&actions[0], Action::Record(Record::Note(_))), "{actions:?}");
    let Action::Quarantine { worker, reason } = &actions[1] else { panic!("{actions:?}") };
    assert!(worker == "far" && reason.len() < 300 && reason.contains("failed 3 packages"), "{reason}");
}

#[test]
fn a_drained_worker_keeps_its_builds_and_gets_no_more() {
    let mut run = Run::new(&[("a", "a"), ("b", "b"), ("c", "c")], 1).elsewhere();
    run.send(Event::Begin);
    run.send(held(&["kiln-1"]));
    run.send(Incoming::Pressure(Pressure::Low));
    assert!(!run.is_cancelled(1));
    assert_eq!(run.send(good(1)), []);
    assert_eq!(run.state("a"), PackageState::Built);
    assert_eq!(run.pass(100.0), []);
    assert_eq!(run.starts_worker(), [], "a new process is drained too");
    assert_eq!(run.send(held(&[])).len(), 1);
}

#[test]
fn a_bumped_package_comes_before_longer_paths() {
    let mut run = Run::new(&[("c", "b"), ("b", "a"), ("y", "x"), ("other", "other2")], 1);
    run.send(Event::Begin);
    run.send(asked(RequestKind::Bump, "y"));
    assert_eq!(run.send(good(1))[0].1, "x");
    assert_eq!(run.send(good(2))[0].1, "y");
}

#[test]
fn a_build_with_the_same_content_keeps_the_existing_outputs() {
    let mut graph = Graph::new();
    let id = graph.add("a");
    let kept = KeptOutputs {
        recipe_version: "1".into(),
        revision: 4,
        contents: [("x".to_owned(), "same".to_owned())].into(),
    };
    let coordinator =
        Coordinator::new(1, vec![Start { kept: Some(kept), ..start() }], scheduler(graph, 1), 7, attempts());
    assert_eq!(coordinator.next_revision(id), 5);
    let mut run = Run::of(coordinator, 1);
    run.send(Event::Begin);
    let outcome = Ok(vec![output("x", "same")]);
    run.send(Incoming::Ended(BuildResult { build: 7, outcome, is_reproducible: None, provenance: None }));
    assert_eq!(run.state("a"), PackageState::Unchanged);
    assert!(run.actions.iter().any(|a| matches!(a, Action::Record(Record::KeyConfirmed { .. }))));
    assert!(!run.actions.iter().any(|a| matches!(a, Action::Adopt { .. })));
    assert_eq!(run.coordinator.next_revision(id), 5);
}

#[test]
fn a_revision_is_above_the_kept_and_the_published_one() {
    let mut graph = Graph::new();
    let id = graph.add("a");
    let next = |kept: Option<u32>, published_revision: u32| {
        let kept = kept.map(|revision| KeptOutputs {
            recipe_version: "1".into(),
            revision,
            contents: BTreeMap::new(),
        });
        let starts = vec![Start { kept, published_revision, ..start() }];
        Coordinator::new(1, starts, scheduler(graph.clone(), 1), 7, attempts()).next_revision(id)
    };
    assert_eq!(next(None, 0), 1);
    // The store was lost, or replaced by an older one.
    assert_eq!((next(None, 2), next(Some(1), 2)), (3, 3));
    assert_eq!(next(Some(4), 2), 5);
}

#[test]
fn a_silent_worker_loses_its_lease_and_its_late_result_does_not_count() {
    let mut run = Run::new(&[("b", "a")], 1);
    run.send(Event::Begin);
    assert_eq!(run.pass(LEASE_SECONDS - 1.0), []);
    run.send(Incoming::Progress(1, Progress::StageBegan(Stage::Build)));
    assert_eq!(run.pass(LEASE_SECONDS - 1.0), [], "progress renewed the lease");
    assert_eq!(run.pass(2.0), []);
    assert_eq!(run.state("a"), PackageState::Ready, "it waits for a worker");
    assert_eq!(run.starts_worker(), [(2, "a".to_owned())]);
    run.send(good(1));
    assert_eq!(run.state("a"), PackageState::Building, "the late result does not count");
    run.send(good(2));
    assert_eq!(run.state("a"), PackageState::Built);
}

#[test]
fn machine_faults_are_retried_but_not_forever() {
    let mut run = Run::new(&[("b", "a")], 1);
    run.send(Event::Begin);
    let times = u64::from(RetryPolicy::default().times(FailureKind::Machine));
    for build in 1..=times {
        assert_eq!(run.send(bad(build, FailureKind::Machine)), [(build + 1, "a".to_owned())]);
    }
    run.send(bad(times + 1, FailureKind::Machine));
    assert_eq!(run.state("a"), PackageState::Failed);
}

#[test]
fn a_build_ended_by_a_signal_waits_before_its_retry() {
    let mut run = Run::new(&[("b", "a"), ("d", "c")], 1);
    run.send(Event::Begin);
    let grants = run.send(bad(1, FailureKind::Signal));
    assert_eq!(grants, [(2, "c".to_owned())], "others continue");
    assert_eq!(
        run.coordinator.reason(run.id("a")).to_string(),
        "retrying in 10 s (killed by a signal): build failed: no"
    );
    run.send(good(2));
    run.now_seconds = PAUSE_SECONDS - 1.0;
    assert_eq!(run.send(good(3)), []);
    assert_eq!(run.send(Event::Tick), []);
    assert_eq!(run.finished(), None);
    run.now_seconds = PAUSE_SECONDS;
    assert_eq!(run.send(Event::Tick), [(4, "a".to_owned())]);
    run.send(bad(4, FailureKind::Signal));
    assert_eq!(run.state("a"), PackageState::Failed);
}

#[test]
fn a_network_failure_is_fetched_again() {
    let mut run = Run::new(&[("a", "a")], 1);
    let fetches =
        |run: &Run| run.actions.iter().filter(|action| matches!(action, Action::Fetch { .. })).count();
    let failed = |run: &Run, kind| Event::Fetched {
        package: run.id("a"),
        stage: None,
        outcome: Err(Failure {
            stage: Stage::Fetch,
            kind,
            message: "no answer".into(),
            line_number: None,
            lines: vec![],
        }),
    };
    // What is asked is not answered here.
    let apply = |run: &mut Run, event| {
        let mut actions = Vec::new();
        run.coordinator.apply(run.now_seconds, event, &mut actions);
        run.actions.extend(actions);
    };
    apply(&mut run, Event::Begin);
    let package = run.id("a");
    apply(&mut run, Event::Prepared { package, prepared: to_build() });
    assert_eq!(fetches(&run), 1);
    let event = failed(&run, FailureKind::Network);
    apply(&mut run, event);
    assert_eq!((fetches(&run), run.state("a")), (1, PackageState::Ready));
    run.now_seconds = PAUSE_SECONDS;
    apply(&mut run, Event::Tick);
    assert_eq!(fetches(&run), 2);
    let event = failed(&run, FailureKind::Fetch);
    apply(&mut run, event);
    assert_eq!(run.state("a"), PackageState::Failed, "a retry would have the same result");
    let builds = run.actions.iter().filter(|action| matches!(action, Action::Record(Record::BuildBegan(_))));
    assert_eq!(builds.count(), 2, "each try is recorded");
}

#[test]
fn no_lease_lapses_while_the_coordinator_is_away() {
    for away_seconds in [AWAY_SECONDS + 1.0, 5.0 * LEASE_SECONDS] {
        let mut run = Run::new(&[("a", "a")], 1);
        run.send(Event::Begin);
        assert_eq!(run.pass(LEASE_SECONDS - 1.0), []);
        // A full disk, a slow store, a machine that slept: messages that arrived meanwhile are handled after the tick.
        run.now_seconds += away_seconds;
        assert_eq!(run.send(Event::Tick), []);
        run.send(Incoming::Progress(1, Progress::Wants(1)));
        run.pass(LEASE_SECONDS - 1.0);
        assert_eq!(run.state("a"), PackageState::Building);
        run.pass(2.0);
        assert_eq!(run.state("a"), PackageState::Ready, "a worker that stays silent is still lost");
    }
}

#[test]
fn a_lost_worker_can_return() {
    let mut run = Run::new(&[("a", "a")], 1);
    run.send(Event::Begin);
    let times = RetryPolicy::default().times(FailureKind::Lost);
    for build in 1..=times {
        run.pass(LEASE_SECONDS + 1.0);
        assert_eq!(run.starts_worker(), [(u64::from(build) + 1, "a".to_owned())]);
    }
    run.pass(LEASE_SECONDS + 1.0);
    assert_eq!((run.state("a"), run.finished()), (PackageState::Failed, Some(RunState::Finished)));
}

#[test]
fn the_number_of_retries_can_be_configured() {
    let mut run = Run::new(&[("a", "a")], 1);
    let retries = RetryPolicy::with(&[(FailureKind::Machine, 0), (FailureKind::Memory, 2)].into()).unwrap();
    run.coordinator = run.coordinator.with_retries(retries);
    run.send(Event::Begin);
    assert_eq!(run.send(bad(1, FailureKind::Memory)), [(2, "a".to_owned())]);
    assert_eq!(run.send(bad(2, FailureKind::Memory)), [(3, "a".to_owned())]);
    run.send(bad(3, FailureKind::Machine));
    assert_eq!(run.state("a"), PackageState::Failed);
}

#[test]
fn a_package_may_have_its_own_number_of_retries() {
    let mut run = Run::new(&[("b", "a"), ("d", "c")], 2);
    let own = RetryPolicy::default().and(&[(FailureKind::Machine, 0)].into()).unwrap();
    let own = [(run.id("a"), own)].into();
    run.coordinator = run.coordinator.with_own_retries(own);
    run.send(Event::Begin);
    run.send(bad(1, FailureKind::Machine));
    assert_eq!(run.state("a"), PackageState::Failed);
    run.send(bad(2, FailureKind::Machine));
    assert_eq!(run.state("c"), PackageState::Building, "the others have the policy of the run");
}

#[test]
fn a_build_that_runs_out_of_memory_is_retried_alone_once() {
    let mut run = Run::new(&[("b", "a"), ("d", "c")], 2);
    run.send(Event::Begin);
    assert_eq!(run.send(bad(1, FailureKind::Memory)), [], "the other build continues");
    assert_eq!(run.send(good(2)), [(3, "a".to_owned())], "alone, though `d` could be built");
    assert!(run.coordinator.reason(run.id("a")).to_string().starts_with("retrying alone"));
    assert_eq!(run.send(bad(3, FailureKind::Memory)), [(4, "d".to_owned())]);
    assert_eq!(run.state("a"), PackageState::Failed);
    run.send(asked(RequestKind::Retry, "a"));
    run.send(good(4));
    assert_eq!(run.state("a"), PackageState::Building, "a retry was requested");
    assert_eq!(run.send(bad(5, FailureKind::Memory)), [(6, "a".to_owned())]);
}

#[test]
fn cores_follow_demand_and_are_reported_in_order_of_rank() {
    let mut run = Run::new(&[("c", "b"), ("b", "a"), ("y", "x")], 4);
    let allotted = |run: &Run| {
        let last = run.actions.iter().rev().find_map(|action| match action {
            Action::Allot(cores) => Some(cores.clone()),
            _ => None,
        });
        last.unwrap()
    };
    run.send(Event::Begin);
    assert_eq!(allotted(&run), [(1, 1), (2, 1)]);
    run.send(Incoming::Progress(2, Progress::Wants(9)));
    assert_eq!(allotted(&run), [(1, 1), (2, 3)]);
    run.send(Incoming::Progress(1, Progress::Wants(3)));
    assert_eq!(allotted(&run), [(1, 3), (2, 1)], "the path comes first");
    run.send(Incoming::Progress(77, Progress::Wants(3)));
    run.send(bad(1, FailureKind::Command));
    assert_eq!(allotted(&run), [(2, 3)], "as many as exist");
}

#[test]
fn outputs_that_were_not_admitted_fail_the_build() {
    let mut run = Run::new(&[("b", "a")], 1);
    run.send(Event::Begin);
    let (session, attempt) = (run.worker.session, run.worker.attempts[&1]);
    let outputs = vec![output("x", "admitted")];
    run.say(ToCoordinator::Built {
        session,
        attempt,
        built: Built { build: 1, outputs, is_repeated: false },
    });
    run.send(good(1));
    assert_eq!((run.state("a"), run.state("b")), (PackageState::Failed, PackageState::Blocked));
    let reason = run.coordinator.reason(run.id("a")).to_string();
    assert!(reason.contains("not the outputs that were admitted"), "{reason}");
    assert!(!run.actions.iter().any(|action| matches!(action, Action::Adopt { .. })));
}

#[test]
fn a_lease_that_cannot_be_sent_fails_its_package_alone() {
    let mut run = Run::new(&[("b", "a"), ("d", "c")], 1);
    run.send(Event::Begin);
    let explanation = "a message of 99 bytes".to_owned();
    assert_eq!(run.send(Event::Unsendable { build: 1, explanation }), [(2, "c".to_owned())]);
    assert_eq!(run.state("a"), PackageState::Failed);
    assert!(run.coordinator.reason(run.id("a")).to_string().contains("99 bytes"));
    assert_eq!(run.send(Event::Unsendable { build: 77, explanation: String::new() }), []);
}

fn stage_of(started_seconds: f64, wall_seconds: f64) -> StageResult {
    StageResult {
        stage: Stage::Build,
        started_seconds,
        wall_seconds,
        cpu_seconds: 1.0,
        memory_peak_bytes: 0,
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

#[test]
fn records_use_only_the_coordinators_clock() {
    let mut run = Run::new(&[("a", "a")], 4);
    run.now_seconds = 50.0;
    run.send(Event::Begin);
    run.now_seconds = 90.0;
    // The clocks of its worker and of its fetcher are years behind.
    let stage = Box::new(stage_of(7.0, 30.0));
    run.send(Incoming::Progress(1, Progress::StageEnded(stage)));
    run.now_seconds = 91.0;
    run.send(good(1));
    let mut times = Vec::new();
    for action in &run.actions {
        let Action::Record(record) = action else { continue };
        match record {
            Record::BuildBegan(build) => times.push(build.started_seconds),
            Record::StageEnded { at_seconds, stage, .. } => {
                times.extend([*at_seconds, stage.started_seconds, stage.wall_seconds]);
            }
            Record::Package { at_seconds, .. } => assert!([50.0, 91.0].contains(at_seconds), "{record:?}"),
            Record::BuildEnded { at_seconds, .. } | Record::Run { at_seconds, .. } => times.push(*at_seconds),
            Record::Note(note) => assert!([0.0, 50.0, 90.0].contains(&note.at_seconds), "{note:?}"),
            Record::PackageAdded { .. }
            | Record::Outputs(_)
            | Record::Provenance(_)
            | Record::KeyConfirmed { .. } => {}
        }
    }
    assert_eq!(times, [50.0, 90.0, 60.0, 30.0, 91.0, 91.0]);
}

#[test]
fn a_worker_cannot_claim_more_cpu_time_than_its_machine_had() {
    for (claimed, recorded) in
        [(1.0, 1.0), (1e12, 480.0), (f64::INFINITY, 480.0), (-1e12, 0.0), (f64::NAN, 0.0)]
    {
        // Three cores, for 40 seconds.
        let mut run = Run::new(&[("a", "a")], 4);
        run.now_seconds = 50.0;
        run.send(Event::Begin);
        run.now_seconds = 90.0;
        // Whatever it says of the time that passed.
        let stage = StageResult { cpu_seconds: claimed, ..stage_of(0.0, 1e12) };
        let event = Progress::StageEnded(Box::new(stage));
        let mut actions = Vec::new();
        run.coordinator.progress(run.now_seconds, 1, event, &mut actions);
        let seen = actions.iter().find_map(|action| match action {
            Action::Record(Record::StageEnded { stage, .. }) => Some(stage.cpu_seconds),
            _ => None,
        });
        assert_eq!(seen, Some(recorded), "{claimed}");
    }
}

#[test]
fn a_build_is_recorded_with_its_attempt_and_its_worker() {
    let mut run = Run::new(&[("a", "a"), ("b", "b")], 4);
    run.send(Event::Begin);
    let mut granted = Vec::new();
    let mut recorded = Vec::new();
    for action in &run.actions {
        match action {
            Action::Grant(grant) => granted.push((grant.build, Some(grant.attempt))),
            Action::Record(Record::BuildBegan(build)) => {
                assert_eq!((build.worker.as_deref(), build.cores), (Some("kiln-1"), 3));
                recorded.push((build.number, build.attempt));
            }
            _ => {}
        }
    }
    assert_eq!((granted.len(), &granted), (2, &recorded));
    assert_ne!(granted[0].1, granted[1].1);
}

#[test]
fn a_stage_records_how_long_it_could_use_several_cores() {
    let mut run = Run::new(&[("a", "a")], 4);
    run.send(Event::Begin);
    for (now_seconds, cores) in [(10.0, 4), (12.0, 3), (15.0, 1), (20.0, 2)] {
        run.now_seconds = now_seconds;
        run.send(Incoming::Progress(1, Progress::Wants(cores)));
    }
    let mut end = |now_seconds, wall_seconds| {
        run.now_seconds = now_seconds;
        let stage = stage_of(0.0, wall_seconds);
        run.send(Incoming::Progress(1, Progress::StageEnded(Box::new(stage))));
        run.actions.iter().rev().find_map(|action| match action {
            Action::Record(Record::StageEnded { stage, .. }) => stage.parallel_seconds,
            _ => None,
        })
    };
    assert_eq!(end(22.0, 22.0), Some(7.0));
    assert_eq!(end(23.0, 1.0), Some(1.0), "it continues in the next one");
    assert_eq!(end(25.0, 0.5), Some(0.5), "and is never longer than the stage");
}

#[test]
fn pressure_holds_back_starts() {
    let mut run = Run::new(&[("a", "a"), ("b", "b")], 2);
    run.send(Incoming::Pressure(Pressure::High));
    assert_eq!(run.send(Event::Begin), [(1, "a".to_owned())]);
    assert_eq!(run.send(Incoming::Pressure(Pressure::Low)), [(2, "b".to_owned())]);
}

#[test]
fn stopping_ends_the_run_and_loses_nothing() {
    let mut run = Run::new(&[("b", "a"), ("d", "c")], 2);
    run.send(Event::Begin);
    run.send(good(1));
    assert_eq!(run.send(Event::Stop), []);
    assert_eq!(run.finished(), None, "workers are still building");
    run.send(bad(2, FailureKind::Cancelled));
    run.send(good(3));
    assert_eq!(run.finished(), Some(RunState::Interrupted));
    assert_eq!(run.state("a"), PackageState::Built);
    assert_eq!(run.state("c"), PackageState::Waiting);
}

/// A small generator (Marsaglia's xorshift), so that a seed yields the same run everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn in_every_seeded_run_dependencies_come_first_and_the_run_ends() {
    for seed in 1..=200 {
        let mut random = Random(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(seed));
        let names: Vec<String> = (0..25).map(|n| format!("p{n}")).collect();
        let mut edges = vec![("p24", "p0")];
        for package in 1..25 {
            for _ in 0..random.below(3) {
                edges.push((&names[package], &names[random.below(package as u64) as usize]));
            }
        }
        for name in &names {
            edges.push((name, name));
        }
        let mut run = Run::new(&edges, 3);
        let mut open = run.send(Event::Begin);
        for step in 0.. {
            assert!(step < 10_000, "seed {seed}: the run does not end");
            if run.finished().is_some() {
                break;
            }
            run.now_seconds += 1.0;
            let event = match random.below(15) {
                0 => asked(RequestKind::Skip, &names[random.below(25) as usize]).into(),
                1 => asked(RequestKind::Retry, &names[random.below(25) as usize]).into(),
                2 => asked(RequestKind::Bump, &names[random.below(25) as usize]).into(),
                3 => {
                    open.extend(run.pass(LEASE_SECONDS + 1.0));
                    open.extend(run.starts_worker());
                    Event::Tick.into()
                }
                4 => good(random.below(60)),
                5 if !open.is_empty() => {
                    let kinds = [FailureKind::Machine, FailureKind::Signal, FailureKind::Disk];
                    bad(open.swap_remove(0).0, kinds[random.below(3) as usize])
                }
                12 => Incoming::Progress(random.below(60), Progress::Wants(random.below(5) as u32)),
                13 => Incoming::Pressure([Pressure::Low, Pressure::High][random.below(2) as usize]),
                14 if !open.is_empty() => bad(open.swap_remove(0).0, FailureKind::Memory),
                6 if !open.is_empty() => bad(open.swap_remove(0).0, FailureKind::Command),
                _ if !open.is_empty() => {
                    let index = random.below(open.len() as u64) as usize;
                    good(open.swap_remove(index).0)
                }
                _ => Event::Tick.into(),
            };
            let grants = run.send(event);
            for (_, name) in &grants {
                for dependency in run.coordinator.graph.dependencies(run.id(name)) {
                    let state = run.coordinator.state(*dependency);
                    assert!(state.has_outputs(), "seed {seed}: {name} granted while a dependency is {state}");
                }
            }
            open.extend(grants);
            let building = run.coordinator.leases.values().map(LeaseState::package).collect::<Vec<_>>();
            assert!(building.len() <= 3, "seed {seed}: more builds than slots");
            let cores: u32 = run.coordinator.allotted.iter().map(|(_, cores)| cores).sum();
            assert!(cores <= 3 && run.coordinator.allotted.len() == building.len(), "seed {seed}");
        }
        for name in &names {
            assert!(run.state(name).is_final(), "seed {seed}: {name} is {}", run.state(name));
        }
    }
}

#[test]
fn a_worker_that_several_runs_share_gets_builds_for_its_share() {
    let mut run = Run::new(&[("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")], 4);
    run.worker.cores = 4;
    run.cores = Some(1);
    run.starts_worker();
    assert_eq!(run.send(Event::Begin).len(), 1);
    run.cores = Some(3);
    assert_eq!(run.send(Incoming::Pressure(Pressure::Low)).len(), 2);
    // What runs continues when its share is smaller, and a further build waits for two to end.
    run.cores = Some(2);
    assert_eq!(run.send(Incoming::Pressure(Pressure::Low)), []);
    assert_eq!(run.send(good(1)), []);
    assert_eq!(run.send(good(2)).len(), 1);
    // More than the machine has is not believed.
    run.cores = Some(1000);
    run.send(Incoming::Pressure(Pressure::Low));
    assert!(!run.is_cancelled(3));
}
