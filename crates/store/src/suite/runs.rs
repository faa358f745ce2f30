//! Runs, their packages and their builds.

use super::{Open, build_row, connect, failure, leading, package_row, run_row, stage};
use crate::{Current, LastBuild, PackageRow, Record, RunRow, RunState};
use kilnyard_model::order::{Key, Output, Stage};
use kilnyard_model::reason::{Reason, StageFailed};
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, PackageState};

pub(super) fn a_run_is_read_as_written(open: Open) {
    let mut store = leading(open);
    let rows = [package_row("b", PackageState::Ready), package_row("a", PackageState::Waiting)];
    let run = store.begin_run(&run_row(), &rows).unwrap();
    let number = store.next_build().unwrap();
    let failure = failure(FailureKind::Command);
    store
        .record(&[
            Record::BuildBegan(Box::new(build_row(number, run, "b"))),
            Record::StageEnded {
                build: number,
                at_seconds: 103.0,
                stage: Box::new(stage(Stage::Unpack, 1.0)),
            },
            Record::StageEnded {
                build: number,
                at_seconds: 103.0,
                stage: Box::new(stage(Stage::Build, 2.0)),
            },
            Record::BuildEnded {
                build: number,
                at_seconds: 105.0,
                outcome: BuildOutcome::Failed,
                failure: Some(failure.clone()),
                is_reproducible: None,
            },
            Record::Package {
                run,
                name: "b".into(),
                state: PackageState::Failed,
                reason: Reason::Failed(StageFailed::from(&failure)),
                blamed: Some("b".into()),
                at_seconds: 104.0,
            },
        ])
        .unwrap();
    drop(store);
    let store = connect(open);
    let builds = store.builds_in(run).unwrap();
    assert_eq!(builds.len(), 1);
    assert_eq!(builds[0].failure, Some(failure));
    assert_eq!(builds[0].stages.iter().map(|s| s.stage).collect::<Vec<_>>(), [Stage::Unpack, Stage::Build]);
    let packages = store.packages(run).unwrap();
    assert_eq!(packages[0], package_row("a", PackageState::Waiting));
    assert_eq!((packages[1].state, packages[1].blamed.as_deref()), (PackageState::Failed, Some("b")));
    assert_eq!(store.counts(run).unwrap().len(), 2);
    assert!(store.durations().unwrap().is_empty(), "a failed build gives no estimate");
    assert_eq!(store.next_build().unwrap(), number + 1);
}

pub(super) fn a_run_takes_in_further_packages(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[package_row("a", PackageState::Ready)]).unwrap();
    let added = |name, state| Record::PackageAdded { run, row: Box::new(package_row(name, state)) };
    store.record(&[added("b", PackageState::Waiting), added("a", PackageState::Failed)]).unwrap();
    let rows = store.packages(run).unwrap();
    let expected = [package_row("a", PackageState::Ready), package_row("b", PackageState::Waiting)];
    assert_eq!(rows, expected, "the row of a package of the run stays");
}

pub(super) fn a_failed_decision_writes_nothing(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[package_row("a", PackageState::Ready)]).unwrap();
    store.record(&[Record::BuildBegan(Box::new(build_row(1, run, "a")))]).unwrap();
    let change = Record::Package {
        run,
        name: "a".into(),
        state: PackageState::Building,
        reason: Reason::Undecided,
        blamed: None,
        at_seconds: 104.0,
    };
    // Using a build's number again is refused, together with the change before it.
    store.record(&[change, Record::BuildBegan(Box::new(build_row(1, run, "a")))]).unwrap_err();
    assert_eq!(store.package(run, "a").unwrap().unwrap().state, PackageState::Ready);
}

pub(super) fn runs_are_listed_latest_first(open: Open) {
    let mut store = leading(open);
    assert_eq!(store.last_run().unwrap(), None);
    assert!(store.runs().unwrap().is_empty());
    let first = store.begin_run(&run_row(), &[]).unwrap();
    let second = store.begin_run(&RunRow { forced: None, ..run_row() }, &[]).unwrap();
    assert!(second > first, "numbers increase");
    let moved = |run, state, at_seconds| Record::Run { run, state, at_seconds };
    store.record(&[moved(first, RunState::Interrupted, 150.5)]).unwrap();
    let expected = [
        RunRow { number: second, forced: None, ..run_row() },
        RunRow { number: first, state: RunState::Interrupted, ended_seconds: Some(150.5), ..run_row() },
    ];
    assert_eq!(store.runs().unwrap(), expected);
    assert_eq!(connect(open).last_run().unwrap().as_ref(), Some(&expected[0]));
    // A resumed run has no end time.
    store.record(&[moved(first, RunState::Running, 160.0)]).unwrap();
    assert_eq!(store.runs().unwrap()[1], RunRow { number: first, ..run_row() });
}

pub(super) fn packages_of_a_run_are_ordered_and_counted(open: Open) {
    let mut store = leading(open);
    let rows = [
        package_row("c", PackageState::Ready),
        package_row("B", PackageState::Waiting),
        package_row("a", PackageState::Ready),
        package_row("a-b", PackageState::LeftOut),
    ];
    let run = store.begin_run(&run_row(), &rows).unwrap();
    let other = store.begin_run(&run_row(), &[package_row("z", PackageState::Ready)]).unwrap();
    let names = |rows: Vec<PackageRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
    // Ordered by bytes, whatever the locale of the machine or the database.
    assert_eq!(names(store.packages(run).unwrap()), ["B", "a", "a-b", "c"]);
    assert_eq!(names(store.packages_in_state(run, PackageState::Ready).unwrap()), ["a", "c"]);
    assert_eq!(names(store.packages(other).unwrap()), ["z"]);
    assert!(store.packages(other + 1).unwrap().is_empty());
    assert_eq!(store.package(run, "z").unwrap(), None);
    assert_eq!(store.package(run, "a-b").unwrap().as_ref(), Some(&rows[3]));
    let mut counts = store.counts(run).unwrap();
    counts.sort_unstable_by_key(|(state, _)| state.as_str());
    let expected = [(PackageState::LeftOut, 1), (PackageState::Ready, 2), (PackageState::Waiting, 1)];
    assert_eq!(counts, expected, "states without packages have no count");
}

pub(super) fn builds_are_ordered_as_promised(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let later = store.begin_run(&run_row(), &[]).unwrap();
    let first = store.next_build().unwrap();
    let begin = |at: u64, run, package: &str, slot| {
        let mut row = build_row(first + at, run, package);
        row.slot = slot;
        Record::BuildBegan(Box::new(row))
    };
    let end = |at: u64, outcome| Record::BuildEnded {
        build: first + at,
        at_seconds: 120.0,
        outcome,
        failure: None,
        is_reproducible: None,
    };
    store
        .record(&[
            begin(0, run, "p", 3),
            end(0, BuildOutcome::Failed),
            begin(1, run, "q", 2),
            begin(2, run, "r", 1),
            begin(3, run, "p", 0),
            end(3, BuildOutcome::Built),
            begin(4, later, "p", 7),
        ])
        .unwrap();
    let numbers = |rows: Vec<crate::BuildRow>| rows.iter().map(|row| row.number - first).collect::<Vec<_>>();
    assert_eq!(numbers(store.builds_of("p", 10).unwrap()), [4, 3, 0]);
    assert_eq!(numbers(store.builds_of("p", 2).unwrap()), [4, 3]);
    assert!(store.builds_of("unknown", 2).unwrap().is_empty());
    assert_eq!(numbers(store.builds_in(run).unwrap()), [0, 1, 2, 3]);
    assert_eq!(numbers(store.builds_open(run).unwrap()), [2, 1], "ordered by slot");
    assert_eq!(numbers(store.builds_open(later).unwrap()), [4]);
    let mut last = store.last_builds().unwrap();
    last.sort_unstable_by(|one, other| one.package.cmp(&other.package));
    let of = |package: &str, at: u64, run| LastBuild {
        package: package.into(),
        number: first + at,
        run,
        outcome: BuildOutcome::Building,
    };
    assert_eq!(last, [of("p", 4, later), of("q", 1, run), of("r", 2, run)]);
}

/// A reader in another process sees each decision whole or not at all, and `at_once` reads a consistent snapshot.
pub(super) fn a_reader_sees_only_whole_decisions(open: Open) {
    const DECISIONS: u32 = 60;
    let mut store = leading(open);
    let rows = [package_row("a", PackageState::Ready), package_row("b", PackageState::Ready)];
    let run = store.begin_run(&run_row(), &rows).unwrap();
    let reasons = |rows: &[PackageRow]| rows.iter().map(|row| row.reason.to_string()).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let store = connect(open);
            let mut seen = 0;
            loop {
                let (one, rows, other) = store
                    .at_once(|store| {
                        let one = store.package(run, "a").unwrap().unwrap();
                        std::thread::sleep(std::time::Duration::from_millis(2));
                        (one, store.packages(run).unwrap(), store.package(run, "b").unwrap().unwrap())
                    })
                    .unwrap();
                let reasons = reasons(&rows);
                assert_eq!(reasons[0], reasons[1], "half of a decision is visible");
                assert_eq!(
                    (&one.reason, &other.reason),
                    (&rows[0].reason, &rows[1].reason),
                    "the snapshot changed"
                );
                seen += 1;
                if reasons[0] == DECISIONS.to_string() {
                    return seen;
                }
            }
        });
        for decision in 1..=DECISIONS {
            let change = |name: &str| Record::Package {
                run,
                name: name.into(),
                state: PackageState::Ready,
                reason: Reason::impossible(decision.to_string()),
                blamed: None,
                at_seconds: 104.0,
            };
            store.record(&[change("a"), change("b")]).unwrap();
        }
        assert!(reader.join().unwrap() > 0);
    });
}

pub(super) fn texts_and_numbers_are_read_as_written(open: Open) {
    let hostile = "'; DROP TABLE build; -- \"x\" \\ %s $1 \u{1b}[2J\u{fffd}ü\u{1f600}\nand a second line\t";
    let mut store = leading(open);
    let mut row = package_row(hostile, PackageState::Ready);
    (row.version, row.blamed) = (hostile.into(), Some(hostile.into()));
    row.reason = Reason::impossible(hostile);
    row.estimate_seconds = 0.1 + 0.2;
    row.rank_seconds = f64::from(u32::MAX) + 0.5;
    let run = store.begin_run(&run_row(), std::slice::from_ref(&row)).unwrap();
    assert_eq!(store.package(run, hostile).unwrap(), Some(row));
    let number = store.next_build().unwrap();
    let mut build = build_row(number, run, hostile);
    build.version = hostile.into();
    let failure =
        Failure { message: hostile.into(), lines: vec![hostile.into()], ..failure(FailureKind::Command) };
    let mut made = stage(Stage::Build, 0.1);
    (made.memory_peak_bytes, made.log, made.left_behind) =
        (1 << 62, Some(hostile.into()), vec![hostile.into()]);
    store
        .record(&[
            Record::BuildBegan(Box::new(build.clone())),
            Record::StageEnded { build: number, at_seconds: 103.0, stage: Box::new(made.clone()) },
            Record::BuildEnded {
                build: number,
                at_seconds: 1_795_306_845.123_456,
                outcome: BuildOutcome::Failed,
                failure: Some(failure.clone()),
                is_reproducible: Some(false),
            },
        ])
        .unwrap();
    (build.ended_seconds, build.outcome) = (Some(1_795_306_845.123_456), BuildOutcome::Failed);
    (build.failure, build.is_reproducible, build.stages) = (Some(failure), Some(false), vec![made]);
    store.check().unwrap();
    assert_eq!(store.builds_of(hostile, 1).unwrap(), [build]);
    let current = Current {
        package: hostile.into(),
        build: number,
        recipe_version: hostile.into(),
        revision: 3,
        // The lines of a key never contain a line break.
        key: Key { digest: "k".into(), lines: vec!["'quoted' \"twice\"".into(), "ü $1".into()] },
        outputs: vec![Output { description: hostile.into(), ..super::output(hostile) }],
    };
    store.record(&[Record::Outputs(current.clone())]).unwrap();
    assert_eq!(store.current(hostile).unwrap(), Some(current));
}
