//! Events: atomic with their decisions, ordered, complete, and bounded in number.

use super::{Open, attempt, build_row, connect, failure, leading, package_row, run_row, stage};
use crate::{EVENT_RUNS_MAX, Event, EventKind, Record, RequestKind, RunState, Store};
use kilnyard_model::order::Stage;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, FailureKind, PackageState};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Enough for any test.
const ALL: usize = 1000;
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);

fn decide(store: &mut dyn Store) -> u64 {
    let run = store.begin_run(&run_row(), &[package_row("a", PackageState::Ready)]).unwrap();
    let moved = |state, reason, blamed, at_seconds| Record::Package {
        run,
        name: "a".into(),
        state,
        reason,
        blamed,
        at_seconds,
    };
    let build = store.next_build().unwrap();
    store
        .record(&[
            Record::BuildBegan(Box::new(build_row(build, run, "a"))),
            moved(PackageState::Building, Reason::FirstBuild, None, 101.5),
        ])
        .unwrap();
    let stages = [(Stage::Unpack, 102.0), (Stage::Build, 103.0)];
    for (place, at_seconds) in stages {
        let stage = Box::new(stage(place, at_seconds));
        store.record(&[Record::StageEnded { build, at_seconds, stage }]).unwrap();
    }
    store
        .record(&[
            Record::BuildEnded {
                build,
                at_seconds: 104.0,
                outcome: BuildOutcome::Failed,
                failure: Some(failure(FailureKind::Command)),
                is_reproducible: Some(false),
            },
            moved(PackageState::Failed, Reason::WorkerLost, Some("b".into()), 104.5),
            Record::Run { run, state: RunState::Interrupted, at_seconds: 105.0 },
        ])
        .unwrap();
    run
}

pub(super) fn each_decision_is_reported_by_events(open: Open) {
    let mut store = leading(open);
    assert_eq!((store.last_event().unwrap(), store.events_since(0, ALL).unwrap()), (0, Vec::new()));
    let run = decide(&mut *store);
    store.record(&[Record::Run { run, state: RunState::Running, at_seconds: 110.0 }]).unwrap();
    connect(open).request(RequestKind::Retry, "a", "ann", 111.0).unwrap();
    let events = connect(open).events_since(0, ALL).unwrap();
    // The latest request comes first, however many other events there are.
    assert_eq!(connect(open).requests_made(ALL).unwrap(), events[events.len() - 1..]);
    assert_eq!(connect(open).requests_made(0).unwrap(), []);
    let row = run_row();
    let began = |is_resumed| EventKind::RunBegan {
        is_resumed,
        cores: row.cores,
        slots: row.slots,
        expected_seconds: row.expected_seconds,
    };
    let package = |state, reason, blamed| EventKind::Package { state, reason, blamed };
    let ended = |stage_of, at| EventKind::StageEnded { slot: 1, result: Box::new(stage(stage_of, at)) };
    let version = || "1+bk1".to_owned();
    let expected = [
        (100.0, began(false)),
        (101.0, EventKind::BuildBegan { version: version(), slot: 1, key: "k".into() }),
        (101.5, package(PackageState::Building, Reason::FirstBuild, None)),
        (102.0, ended(Stage::Unpack, 102.0)),
        (103.0, ended(Stage::Build, 103.0)),
        (
            104.0,
            EventKind::BuildEnded {
                version: version(),
                slot: 1,
                outcome: BuildOutcome::Failed,
                failure: Some(Box::new(failure(FailureKind::Command))),
                is_reproducible: Some(false),
            },
        ),
        (104.5, package(PackageState::Failed, Reason::WorkerLost, Some("b".into()))),
        (105.0, EventKind::RunEnded { state: RunState::Interrupted }),
        (110.0, began(true)),
        (111.0, EventKind::Requested { request: RequestKind::Retry, author: Some("ann".to_owned()) }),
    ];
    let seen: Vec<_> = events.iter().map(|event| (event.at, event.kind.clone())).collect();
    assert_eq!(seen, expected);
    assert!(events.iter().all(|event| event.epoch == 1 && event.version == crate::EVENT_VERSION));
    assert!(events.is_sorted_by(|one, next| one.seq < next.seq));
    let ids = &events[3].ids;
    assert_eq!((ids.run, ids.package.as_deref(), ids.build), (Some(run), Some("a"), Some(1)));
    assert_eq!((ids.attempt, ids.worker.as_deref()), (Some(attempt(1)), Some("kiln-1")));
    let scope = store.scope();
    assert_eq!((ids.farm, ids.yard, &ids.target), (scope.farm, scope.yard, &scope.target));
    assert_eq!((events[2].ids.run, events[2].ids.package.as_deref()), (Some(run), Some("a")));
    assert_eq!((events[9].ids.run, events[9].ids.package.as_deref()), (None, Some("a")));

    // Readers choose the size of their steps.
    let (mut followed, mut seq) = (Vec::new(), 0);
    while let Some(last) = {
        let some = store.events_since(seq, 3).unwrap();
        assert!(some.len() <= 3);
        followed.extend(some.iter().cloned());
        some.last().map(|event| event.seq)
    } {
        seq = last;
    }
    assert_eq!((followed, seq), (events, store.last_event().unwrap()));
    assert!(store.events_since(u64::MAX, ALL).unwrap().is_empty());
}

pub(super) fn events_are_written_only_with_their_decision(open: Open) {
    let mut store = leading(open);
    let run = decide(&mut *store);
    let before = store.events_since(0, ALL).unwrap();
    let change = Record::Package {
        run,
        name: "a".into(),
        state: PackageState::Ready,
        reason: Reason::Forced,
        blamed: None,
        at_seconds: 120.0,
    };
    // The number of the build is already used.
    store.record(&[change.clone(), Record::BuildBegan(Box::new(build_row(1, run, "a")))]).unwrap_err();
    assert_eq!(store.events_since(0, ALL).unwrap(), before);
    let mut other = leading(open);
    store.record(std::slice::from_ref(&change)).unwrap_err();
    assert_eq!(other.events_since(0, ALL).unwrap(), before);
    other.record(std::slice::from_ref(&change)).unwrap();
    let after = other.events_since(before.last().unwrap().seq, ALL).unwrap();
    assert_eq!(after.iter().map(|event| event.epoch).collect::<Vec<_>>(), [2]);
}

pub(super) fn events_are_kept_for_the_latest_runs(open: Open) {
    let mut store = leading(open);
    store.request(RequestKind::Bump, "old", "ann", 1.0).unwrap();
    let runs: Vec<u64> = (0..EVENT_RUNS_MAX + 3).map(|_| decide(&mut *store)).collect();
    let events = store.events_since(0, ALL).unwrap();
    let mut kept: Vec<u64> = events.iter().filter_map(|event| event.ids.run).collect();
    kept.dedup();
    assert_eq!(kept, runs[3..], "the request before them is removed, too");
    assert_eq!(events.len() as u64 % EVENT_RUNS_MAX, 0);
    assert!(
        events
            .iter()
            .all(|event| !matches!(event.kind, EventKind::Requested { request: RequestKind::Bump, .. }))
    );
    // The other rows stay, and numbers are not used again.
    assert_eq!(store.runs().unwrap().len(), runs.len());
    assert!(store.last_event().unwrap() > events.len() as u64);
}

pub(super) fn events_are_json_of_one_envelope(open: Open) {
    let mut store = leading(open);
    decide(&mut *store);
    for event in store.events_since(0, ALL).unwrap() {
        let value = serde_json::to_value(&event).unwrap();
        let object = value.as_object().unwrap();
        let mut keys: Vec<_> = object.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["at", "body", "epoch", "ids", "seq", "type", "version"]);
        assert_eq!(serde_json::from_value::<Event>(value).unwrap(), event);
    }
}

pub(super) fn an_event_wakes_all_who_wait_for_it(open: Open) {
    const DECISIONS: u64 = 20;
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[package_row("a", PackageState::Ready)]).unwrap();
    let begin = store.last_event().unwrap();
    std::thread::scope(|scope| {
        let (reads, are_read) = channel();
        for _ in 0..2 {
            let reads = reads.clone();
            scope.spawn(move || {
                let (reader, mut seen) = (connect(open), begin);
                for _ in 0..DECISIONS {
                    let before = seen;
                    while seen == before {
                        reader.wait_for_events(before, LONG).unwrap();
                        seen =
                            reader.events_since(before, ALL).unwrap().last().map_or(before, |last| last.seq);
                    }
                    reads.send(seen).unwrap();
                }
            });
        }
        // The next decision is made when both have read this one.
        for decision in 0..DECISIONS {
            match decision % 2 {
                0 => connect(open).request(RequestKind::Retry, "a", "ann", 1.0).unwrap(),
                _ => store.record(&[Record::Run { run, state: RunState::Running, at_seconds: 1.0 }]).unwrap(),
            }
            for _ in 0..2 {
                assert_eq!(are_read.recv().unwrap(), store.last_event().unwrap());
            }
        }
    });
    // Those that are there already need no waiting.
    store.wait_for_events(begin, LONG).unwrap();
}

pub(super) fn waiting_ends_without_an_event(open: Open) {
    let store = leading(open);
    store.wait_for_events(0, Duration::from_millis(1)).unwrap();
    store.wait_for_events(u64::MAX, Duration::from_millis(200)).unwrap();
    store.wait_for_events(7, Duration::ZERO).unwrap();
    assert_eq!(store.last_event().unwrap(), 0);
}

/// The records of many decisions in one transaction have the effect of a transaction for each.
pub(super) fn decisions_may_be_written_together(open: Open) {
    let row = |name| package_row(name, PackageState::Ready);
    let decide = |other: &str, is_together: bool| {
        let target = format!("any/linux/{other}/amd64").parse().unwrap();
        let mut store = open(&target);
        let next = store.lead(&super::holder()).unwrap().next_build;
        let run = store.begin_run(&run_row(), &[row("a"), row("b")]).unwrap();
        let begin = store.last_event().unwrap();
        let moved = |name: &str, state, at_seconds| Record::Package {
            run,
            name: name.into(),
            state,
            reason: Reason::FirstBuild,
            blamed: None,
            at_seconds,
        };
        let ended = |build, outcome, kind: Option<FailureKind>| Record::BuildEnded {
            build,
            at_seconds: 104.0 + build as f64 - next as f64,
            outcome,
            failure: kind.map(failure),
            is_reproducible: None,
        };
        let staged = |build, of, cpu_seconds| Record::StageEnded {
            build,
            at_seconds: cpu_seconds,
            stage: Box::new(stage(of, cpu_seconds)),
        };
        let began = |build, name| Record::BuildBegan(Box::new(build_row(build, run, name)));
        let records = [
            began(next, "a"),
            began(next + 1, "b"),
            moved("a", PackageState::Building, 101.0),
            staged(next, Stage::Unpack, 1.0),
            staged(next + 1, Stage::Unpack, 2.0),
            staged(next, Stage::Build, 3.0),
            ended(next, BuildOutcome::Failed, Some(FailureKind::Memory)),
            moved("a", PackageState::Failed, 105.0),
            began(next + 2, "a"),
            staged(next + 1, Stage::Build, 4.0),
            staged(next + 2, Stage::Build, 5.0),
            ended(next + 2, BuildOutcome::Built, None),
            ended(next + 1, BuildOutcome::Failed, Some(FailureKind::Command)),
            moved("b", PackageState::Failed, 106.0),
            moved("a", PackageState::Built, 107.0),
            Record::Run { run, state: RunState::Finished, at_seconds: 108.0 },
        ];
        match is_together {
            true => store.record(&records).unwrap(),
            false => records.iter().for_each(|record| store.record(std::slice::from_ref(record)).unwrap()),
        }
        let events = store.events_since(begin, ALL).unwrap().into_iter();
        let events = events.map(|event| (event.ids.package, event.at, event.kind)).collect::<Vec<_>>();
        let stages = store.builds_in(run).unwrap().into_iter().map(|build| (build.outcome, build.stages));
        let stages = stages.collect::<Vec<_>>();
        (events, stages, store.packages(run).unwrap(), store.measured().unwrap(), store.durations().unwrap())
    };
    let (one, other) = (decide("one", false), decide("other", true));
    assert_eq!(one, other);
    assert_eq!((one.0.len(), one.3.len(), one.3[0].1.len()), (16, 1, 2));
}
