//! Builds that find out what they require.

use super::*;

/// The worker reports the outputs of a build, whose answer names further requirements, and the failure that follows from it.
fn asks(run: &mut Run, build: Number, requires: &[&str]) -> Vec<(Number, String)> {
    let (session, attempt) = (run.worker.session, run.worker.attempts[&build]);
    run.requires = Some(requires.iter().map(|text| (*text).to_owned()).collect());
    let outputs = vec![output("list", "list")];
    let built = Built { build, outputs, is_repeated: false };
    run.say(ToCoordinator::Built { session, attempt, built });
    run.requires = None;
    run.send(bad(build, FailureKind::Requirements))
}

fn failures(run: &Run) -> Vec<FailureKind> {
    let of = |action: &Action| match action {
        Action::Record(Record::BuildEnded { failure: Some(failure), .. }) => Some(failure.kind),
        _ => None,
    };
    run.actions.iter().filter_map(of).collect()
}

#[test]
fn a_package_is_built_again_with_what_it_asked_for() {
    let mut run = Run::new(&[("app", "app"), ("after", "app")], 2);
    assert_eq!(run.send(Event::Begin), [(1, "app".to_owned())]);
    assert_eq!(asks(&mut run, 1, &["zlib"]), [(2, "app".to_owned())]);
    assert_eq!(failures(&run), [FailureKind::Requirements]);
    let moved = run.actions.iter().any(|action| {
        matches!(action, Action::Record(Record::Package { state: PackageState::Waiting, reason, .. })
            if reason.to_string() == "its build requires zlib, too")
    });
    assert!(moved);
    assert_eq!(run.send(good(2)), [(3, "after".to_owned())]);
    run.send(good(3));
    assert_eq!(run.finished(), Some(RunState::Finished));
}

#[test]
fn the_number_of_rounds_is_bounded() {
    let mut run = Run::new(&[("app", "app"), ("after", "app")], 1);
    run.send(Event::Begin);
    for round in 1..=u64::from(REQUIREMENT_ROUNDS_MAX) {
        assert_eq!(asks(&mut run, round, &["zlib"]).len(), 1, "{round}");
    }
    assert!(asks(&mut run, u64::from(REQUIREMENT_ROUNDS_MAX) + 1, &["zlib"]).is_empty());
    assert_eq!((run.state("app"), run.state("after")), (PackageState::Failed, PackageState::Blocked));
    assert_eq!(failures(&run).last(), Some(&FailureKind::Dependencies));
    // A retry on request has as many again.
    assert_eq!(run.send(asked(RequestKind::Retry, "app")), [(12, "app".to_owned())]);
    assert_eq!(asks(&mut run, 12, &["zlib"]), [(13, "app".to_owned())]);
}

#[test]
fn a_package_waits_for_what_a_build_added() {
    let mut run = Run::new(&[("app", "app"), ("lib", "lib"), ("after", "app")], 2);
    assert_eq!(run.send(Event::Begin).len(), 2);
    let (app, lib) = (run.worker.attempts.len() as u64 - 1, run.id("lib"));
    assert_eq!(app, 1);
    run.waits.insert(run.id("app"), vec![lib]);
    assert_eq!(asks(&mut run, 1, &["lib"]), []);
    assert_eq!(run.coordinator.reason(run.id("app")).to_string(), "waiting for lib");
    assert_eq!(run.coordinator.dependencies(run.id("app")), [lib]);
    assert!(run.coordinator.scheduler.rank_seconds(lib) >= 3.0, "it is on the path of app and after now");
    assert_eq!(run.send(good(2)), [(3, "app".to_owned())]);
    assert_eq!(run.send(good(3)), [(4, "after".to_owned())]);
    run.send(good(4));
    assert_eq!(run.finished(), Some(RunState::Finished));
}

#[test]
fn a_failure_of_what_a_build_added_blocks_the_package() {
    let mut run = Run::new(&[("app", "app"), ("lib", "lib"), ("after", "app")], 2);
    run.send(Event::Begin);
    run.waits.insert(run.id("app"), vec![run.id("lib")]);
    asks(&mut run, 1, &["lib"]);
    run.send(bad(2, FailureKind::Command));
    assert_eq!((run.state("app"), run.state("after")), (PackageState::Blocked, PackageState::Blocked));
    assert_eq!(run.finished(), Some(RunState::Finished));
    // What had failed before it was asked for blocks, too.
    let mut run = Run::new(&[("app", "app"), ("lib", "lib"), ("long", "long")], 3);
    run.send(Event::Begin);
    run.send(bad(2, FailureKind::Command));
    run.waits.insert(run.id("app"), vec![run.id("lib")]);
    asks(&mut run, 1, &["lib"]);
    assert_eq!(run.state("app"), PackageState::Blocked);
    // And no more when it is tried again.
    let granted = run.send(asked(RequestKind::Retry, "lib"));
    assert_eq!(granted, [(4, "lib".to_owned())]);
    assert_eq!(run.send(good(4)), [(5, "app".to_owned())]);
}

#[test]
fn what_waits_for_a_package_cannot_come_before_it() {
    let mut run = Run::new(&[("app", "app"), ("after", "app")], 2);
    run.send(Event::Begin);
    run.waits.insert(run.id("app"), vec![run.id("after")]);
    assert_eq!(asks(&mut run, 1, &["after"]), []);
    assert_eq!(run.state("app"), PackageState::Failed);
    let reason = run.coordinator.reason(run.id("app")).to_string();
    assert_eq!(reason, "it requires after, which waits for it");
}

#[test]
fn a_run_of_some_packages_takes_in_what_a_build_added() {
    let mut graph = Graph::new();
    let [app, lib, base] = ["app", "lib", "base"].map(|name| graph.add(name));
    graph.depend(lib, base);
    let starts = [app, lib, base].map(|id| Start { is_in_run: id == app, ..start() });
    let coordinator = Coordinator::new(1, starts.to_vec(), scheduler(graph, 2), 1, attempts());
    let mut run = Run::of(coordinator, 2);
    assert_eq!(run.send(Event::Begin), [(1, "app".to_owned())]);
    run.waits.insert(app, vec![lib]);
    assert_eq!(asks(&mut run, 1, &["lib"]), [(2, "base".to_owned())]);
    let added: Vec<&str> = run
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Record(Record::PackageAdded { row, .. }) => Some(row.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(added, ["lib", "base"]);
    assert_eq!(run.send(good(2)), [(3, "lib".to_owned())]);
    assert_eq!(run.send(good(3)), [(4, "app".to_owned())]);
    run.send(good(4));
    assert_eq!(run.finished(), Some(RunState::Finished));
}
