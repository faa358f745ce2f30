//! A run in memory that follows the events of a store is the one in the store, whatever happens in which order.

use kilnyard_model::order::Stage;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, Measures, PackageState, StageResult};
use kilnyard_store::{BuildRow, EventKind, Holder, Note, PackageRow, Record, RunRow, RunState, Store};
use kilnyard_store_sqlite::Sqlite;
use kilnyard_yard::facts::picture::Picture;
use kilnyard_yard::facts::search::search;
use proptest::prelude::*;
use std::collections::HashMap;

const NAMES: [&str; 5] = ["a/one", "a/three", "a/two", "b/four", "b/one"];

fn row(name: &str) -> PackageRow {
    PackageRow {
        name: name.to_owned(),
        version: "1".to_owned(),
        state: PackageState::Waiting,
        reason: Reason::FirstBuild,
        blamed: None,
        estimate_seconds: 5.0,
        rank_seconds: 9.0,
    }
}

fn run_row() -> RunRow {
    RunRow {
        number: 0,
        started_seconds: 100.0,
        ended_seconds: None,
        state: RunState::Running,
        plan_digest: String::new(),
        cores: 2,
        slots: 2,
        expected_seconds: 60.0,
        bound_seconds: 50.0,
        forced: None,
        commits: Vec::new(),
    }
}

fn build_row(number: u64, run: u64, package: &str) -> BuildRow {
    BuildRow {
        number,
        attempt: None,
        run,
        package: package.to_owned(),
        version: "1+bk1".to_owned(),
        worker: None,
        cores: 2,
        host: None,
        slot: 0,
        key: String::new(),
        started_seconds: 101.0,
        ended_seconds: None,
        outcome: BuildOutcome::Building,
        failure: None,
        is_reproducible: None,
        stages: Vec::new(),
    }
}

fn stage() -> StageResult {
    StageResult {
        stage: Stage::Build,
        started_seconds: 101.0,
        wall_seconds: 1.0,
        cpu_seconds: 1.0,
        memory_peak_bytes: 1,
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

/// A step of a run: the package, and what happens to it.
fn steps() -> impl Strategy<Value = Vec<(usize, u8, bool)>> {
    prop::collection::vec((0..NAMES.len(), 0..6u8, any::<bool>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_run_that_is_followed_is_the_one_in_the_store(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kilnyard.db");
        let target = "any/linux/one/amd64".parse().unwrap();
        let mut store = Sqlite::open(&path, &target).unwrap();
        let reader = Sqlite::open(&path, &target).unwrap();
        store.lead(&Holder::named("test")).unwrap();
        store.begin_run(&run_row(), &NAMES.map(row)).unwrap();
        let run = store.begin_run(&run_row(), &NAMES.map(row)).unwrap();
        let mut picture = Picture::read(&reader, run).unwrap();
        let (mut number, mut open) = (0, HashMap::<usize, u64>::new());
        for (at, step, follows) in steps {
            let name = NAMES[at];
            let record = match (step, open.get(&at).copied()) {
                (0, None) => {
                    number += 1;
                    open.insert(at, number);
                    Record::BuildBegan(Box::new(build_row(number, run, name)))
                }
                (1, Some(build)) => Record::StageEnded { build, at_seconds: 102.0, stage: Box::new(stage()) },
                (2, Some(build)) => {
                    open.remove(&at);
                    let failure = Failure {
                        stage: Stage::Build,
                        kind: FailureKind::Command,
                        message: format!("{name}: error 7"),
                        line_number: None,
                        lines: vec!["some Telling line".to_owned()],
                    };
                    Record::BuildEnded {
                        build,
                        at_seconds: 103.0,
                        outcome: BuildOutcome::Failed,
                        failure: Some(failure),
                        is_reproducible: None,
                    }
                }
                (3, Some(build)) => Record::Note(Box::new(Note {
                    run: Some(run),
                    build: Some(build),
                    at_seconds: 102.0,
                    kind: EventKind::StageBegan { stage: Stage::Test },
                })),
                (4, _) => Record::Run { run, state: RunState::Finished, at_seconds: 104.0 },
                (5, _) => Record::Run { run, state: RunState::Running, at_seconds: 105.0 },
                _ => Record::Package {
                    run,
                    name: name.to_owned(),
                    state: PackageState::Built,
                    reason: Reason::SameContent,
                    blamed: None,
                    at_seconds: 103.0,
                },
            };
            store.record(&[record]).unwrap();
            if follows {
                prop_assert!(picture.follow(&reader).unwrap());
                prop_assert!(!picture.follow(&reader).unwrap());
                same(&picture, &Picture::read(&reader, run).unwrap())?;
            }
        }
        picture.follow(&reader).unwrap();
        same(&picture, &Picture::read(&reader, run).unwrap())?;
        // The names that begin with a text come first (the last part of a name counts), then those that contain it, then
        // the lines of failures.
        let found = |text: &str| search(&picture, text, 9).into_iter().map(|one| one.package).collect::<Vec<_>>();
        prop_assert_eq!(found("ONE"), ["a/one", "b/one"]);
        prop_assert_eq!(&found("o")[..4], ["a/one", "b/one", "a/two", "b/four"]);
        prop_assert_eq!(found(" "), [""; 0]);
    }
}

fn same(one: &Picture, other: &Picture) -> Result<(), TestCaseError> {
    prop_assert_eq!((&one.run, &one.rows, &one.builds), (&other.run, &other.rows, &other.builds));
    prop_assert_eq!(one.seq, other.seq);
    Ok(())
}
