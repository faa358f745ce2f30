//! The store by itself: what is written comes back, and a decision is whole or absent.

use super::*;
use kilnyard_model::order::{Key, Output, Stage};
use kilnyard_model::result::{Failure, FailureKind, Measures, StageResult};
use kilnyard_store::{MEASURED_MAX, MeasuredStage, RunState};

fn run_row() -> RunRow {
    RunRow {
        number: 0,
        started_seconds: 100.0,
        ended_seconds: None,
        state: RunState::Running,
        plan_digest: "d".into(),
        cores: 2,
        slots: 2,
        expected_seconds: 60.0,
        bound_seconds: 50.0,
        forced: Some(kilnyard_store::ForcedRun { packages: vec!["a".into()], checks_reproducible: true }),
    }
}

fn package_row(name: &str, state: PackageState) -> PackageRow {
    PackageRow {
        name: name.into(),
        version: "1".into(),
        state,
        reason: "new".into(),
        blamed: None,
        estimate_seconds: 5.0,
        rank_seconds: 9.0,
    }
}

fn build_row(number: Number, run: Number, package: &str) -> BuildRow {
    BuildRow {
        number,
        run,
        package: package.into(),
        version: "1+bk1".into(),
        slot: 1,
        key: "k".into(),
        started_seconds: 101.0,
        ended_seconds: None,
        outcome: "building".into(),
        failure: None,
        is_reproducible: None,
        stages: Vec::new(),
    }
}

fn output(name: &str) -> Output {
    Output {
        name: name.into(),
        version: "1+bk1".into(),
        architecture: "amd64".into(),
        file: format!("{name}.deb"),
        sha256: "s".into(),
        size_bytes: 3,
        content: "c".into(),
        description: "Package: x\n".into(),
    }
}

fn stage(stage: Stage, cpu_seconds: f64) -> StageResult {
    StageResult {
        stage,
        started_seconds: 101.0,
        wall_seconds: 2.0,
        cpu_seconds,
        memory_peak_bytes: 7,
        work_bytes: None,
        disk_bytes: None,
        parallel_seconds: None,
        is_ok: true,
        log: None,
        left_behind: Vec::new(),
        measures: Measures::default(),
    }
}

fn open() -> (Sqlite, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Sqlite::open(&folder.path().join("kilnyard.db")).unwrap(), folder)
}

#[test]
fn a_run_comes_back_as_it_was_written() {
    let (mut store, folder) = open();
    let rows = [package_row("b", PackageState::Ready), package_row("a", PackageState::Waiting)];
    let run = store.begin_run(&run_row(), &rows).unwrap();
    let number = store.next_build().unwrap();
    let failure = Failure {
        stage: Stage::Build,
        kind: FailureKind::Command,
        message: "it failed".into(),
        line_number: Some(4),
        lines: vec!["x".into()],
    };
    store
        .record(&[
            Record::BuildBegan(build_row(number, run, "b")),
            Record::StageEnded { build: number, stage: Box::new(stage(Stage::Unpack, 1.0)) },
            Record::StageEnded { build: number, stage: Box::new(stage(Stage::Build, 2.0)) },
            Record::BuildEnded {
                build: number,
                at_seconds: 105.0,
                outcome: "failed",
                failure: Some(failure.clone()),
                is_reproducible: None,
            },
            Record::Package {
                run,
                name: "b".into(),
                state: PackageState::Failed,
                reason: "it failed".into(),
                blamed: Some("b".into()),
            },
        ])
        .unwrap();
    drop(store);
    let store = Sqlite::open(&folder.path().join("kilnyard.db")).unwrap();
    let builds = store.builds_in(run).unwrap();
    assert_eq!(builds.len(), 1);
    assert_eq!(builds[0].failure, Some(failure));
    assert_eq!(builds[0].stages.iter().map(|s| s.stage).collect::<Vec<_>>(), [Stage::Unpack, Stage::Build]);
    let packages = store.packages(run).unwrap();
    assert_eq!(packages[0], package_row("a", PackageState::Waiting));
    assert_eq!((packages[1].state, packages[1].blamed.as_deref()), (PackageState::Failed, Some("b")));
    assert_eq!(store.counts(run).unwrap().len(), 2);
    assert!(store.durations().unwrap().is_empty(), "a failed build is no estimate");
    assert_eq!(store.next_build().unwrap(), number + 1);
}

#[test]
fn outputs_replace_those_of_the_same_package_alone() {
    let (mut store, _folder) = open();
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let current = |package: &str, outputs: &[&str]| Current {
        package: package.into(),
        build: 1,
        recipe_version: "1".into(),
        revision: 1,
        key: Key { digest: "k1".into(), lines: vec!["a b".into(), "c d".into()] },
        outputs: outputs.iter().map(|name| output(name)).collect(),
    };
    store
        .record(&[Record::Outputs(current("p", &["x", "y"])), Record::Outputs(current("q", &["z"]))])
        .unwrap();
    store.record(&[Record::Outputs(current("p", &["x"]))]).unwrap();
    assert_eq!(store.current("p").unwrap(), Some(current("p", &["x"])));
    assert_eq!(store.outputs().unwrap().len(), 2);
    assert_eq!(store.all_current().unwrap().len(), 2);
    let key = Key { digest: "k2".into(), lines: vec!["e f".into()] };
    store.record(&[Record::KeyConfirmed { package: "p".into(), key: key.clone() }]).unwrap();
    assert_eq!(store.current("p").unwrap().unwrap().key, key);
    store
        .record(&[
            Record::BuildBegan(build_row(1, run, "p")),
            Record::StageEnded { build: 1, stage: Box::new(stage(Stage::Build, 2.5)) },
            Record::BuildEnded {
                build: 1,
                at_seconds: 111.0,
                outcome: "built",
                failure: None,
                is_reproducible: Some(true),
            },
        ])
        .unwrap();
    assert_eq!(store.durations().unwrap(), [("p".to_owned(), 10.0, 2.5)]);
}

#[test]
fn a_decision_that_fails_half_way_leaves_nothing() {
    let (mut store, _folder) = open();
    let run = store.begin_run(&run_row(), &[package_row("a", PackageState::Ready)]).unwrap();
    store.record(&[Record::BuildBegan(build_row(1, run, "a"))]).unwrap();
    let change = Record::Package {
        run,
        name: "a".into(),
        state: PackageState::Building,
        reason: String::new(),
        blamed: None,
    };
    // The same number of a build twice is refused, and with it the change before.
    store.record(&[change, Record::BuildBegan(build_row(1, run, "a"))]).unwrap_err();
    assert_eq!(store.package(run, "a").unwrap().unwrap().state, PackageState::Ready);
}

#[test]
fn requests_are_taken_once_and_in_order() {
    let (mut store, folder) = open();
    let mut other = Sqlite::open(&folder.path().join("kilnyard.db")).unwrap();
    other.request(RequestKind::Retry, "a", 1.0).unwrap();
    other.request(RequestKind::Bump, "b", 2.0).unwrap();
    let taken = store.take_requests().unwrap();
    assert_eq!(
        taken.iter().map(|r| (r.kind, r.package.as_str())).collect::<Vec<_>>(),
        [(RequestKind::Retry, "a"), (RequestKind::Bump, "b")]
    );
    assert!(store.take_requests().unwrap().is_empty());
}

#[test]
fn a_plan_replaces_the_one_before() {
    let (mut store, _folder) = open();
    assert_eq!(store.plan().unwrap(), None);
    let mut plan = Plan {
        digest: "d1".into(),
        made_seconds: 1.0,
        expected_seconds: 2.0,
        bound_seconds: 3.0,
        cuts: vec!["a without b".into()],
        remarks: vec!["two claim it".into()],
        path: vec!["a".into(), "b".into()],
        packages: vec![PlanRow {
            package: package_row("a", PackageState::Ready),
            dependencies: vec!["b".into()],
        }],
    };
    store.save_plan(&plan).unwrap();
    plan.digest = "d2".into();
    store.save_plan(&plan).unwrap();
    assert_eq!(store.plan().unwrap(), Some(plan.clone()));
    assert_eq!(store.plan_head().unwrap(), Some(Plan { packages: Vec::new(), ..plan.clone() }));
    assert_eq!(store.planned("a").unwrap(), plan.packages.pop());
}

#[test]
fn packages_of_a_plan_pass_by_until_somebody_has_enough() {
    let (mut store, folder) = open();
    let row = |name: &str, dependencies: &[&str]| PlanRow {
        package: package_row(name, PackageState::Ready),
        dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut plan = Plan {
        digest: "d".into(),
        made_seconds: 1.0,
        expected_seconds: 2.0,
        bound_seconds: 3.0,
        cuts: Vec::new(),
        remarks: Vec::new(),
        path: Vec::new(),
        packages: vec![row("b", &["a", "c"]), row("a", &[]), row("c", &[])],
    };
    store.save_plan(&plan).unwrap();
    plan.packages.clear();
    let mut other = Sqlite::open(&folder.path().join("kilnyard.db")).unwrap();
    let store: &dyn Store = &store;
    let seen = store.at_once(|store| {
        let head = store.plan_head().unwrap().unwrap();
        // What another process writes meanwhile is not seen.
        other.save_plan(&plan).unwrap();
        let mut seen = Vec::new();
        let mut each = |row: PlanRowSeen| {
            seen.push((row.name.to_owned(), row.dependencies.to_owned(), row.state));
            seen.len() < 2
        };
        store.each_planned(&mut each).unwrap();
        (head.digest, seen)
    });
    let expected = [("a", ""), ("b", "a c")].map(|(a, b)| (a.to_owned(), b.to_owned(), PackageState::Ready));
    assert_eq!(seen.unwrap(), ("d".to_owned(), expected.to_vec()));
    assert_eq!(store.plan().unwrap(), Some(plan));
}

#[test]
fn imported_times_stand_in_until_a_package_is_built() {
    let (mut store, _folder) = open();
    let time = |name: &str, wall, cpu| (name.to_owned(), wall, cpu);
    store.import_durations(&[time("p", 30.0, 20.0), time("q", 3.0, 2.0)]).unwrap();
    store.import_durations(&[time("q", 5.0, 4.0)]).unwrap();
    assert_eq!(store.durations().unwrap(), [time("p", 30.0, 20.0), time("q", 5.0, 4.0)]);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let ended = |outcome| Record::BuildEnded {
        build: 1,
        at_seconds: 111.0,
        outcome,
        failure: None,
        is_reproducible: None,
    };
    store.record(&[Record::BuildBegan(build_row(1, run, "p")), ended("failed")]).unwrap();
    assert_eq!(store.durations().unwrap()[0], time("p", 30.0, 20.0));
    store.record(&[ended("built")]).unwrap();
    // An import later on does not hide what was measured here.
    store.import_durations(&[time("p", 99.0, 99.0)]).unwrap();
    assert_eq!(store.durations().unwrap(), [time("p", 10.0, 0.0), time("q", 5.0, 4.0)]);
}

#[test]
fn what_the_last_builds_took_is_kept_and_those_without_memory_too() {
    let (mut store, _folder) = open();
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let end = |build, outcome, failure| Record::BuildEnded {
        build,
        at_seconds: 111.0,
        outcome,
        failure,
        is_reproducible: None,
    };
    let failure = |kind| Failure {
        stage: Stage::Build,
        kind,
        message: String::new(),
        line_number: None,
        lines: Vec::new(),
    };
    let ends = [
        ("failed", Some(failure(FailureKind::Memory))),
        ("failed", Some(failure(FailureKind::Command))),
        ("built", None),
        ("unchanged", None),
    ];
    for (number, (outcome, failure)) in (1..).zip(ends) {
        let made = StageResult {
            work_bytes: Some(number),
            disk_bytes: Some(10 * number),
            parallel_seconds: Some(1.5),
            ..stage(Stage::Build, number as f64)
        };
        store
            .record(&[
                Record::BuildBegan(build_row(number, run, "p")),
                Record::StageEnded { build: number, stage: Box::new(stage(Stage::Fetch, 9.0)) },
                // It was made twice.
                Record::StageEnded { build: number, stage: Box::new(stage(Stage::Build, 99.0)) },
                Record::StageEnded { build: number, stage: Box::new(made) },
                end(number, outcome, failure),
            ])
            .unwrap();
    }
    let measured = store.measured().unwrap();
    assert_eq!(measured.len(), 1);
    let (package, builds) = &measured[0];
    let facts: Vec<_> = builds.iter().map(|b| (b.is_out_of_memory, b.work_bytes, b.disk_bytes)).collect();
    assert_eq!((&package[..], &facts[..]), ("p", &[(true, 1, 10), (false, 3, 30), (false, 4, 40)][..]));
    let last = MeasuredStage { wall_seconds: 2.0, cpu_seconds: 4.0, parallel_seconds: Some(1.5) };
    assert_eq!((&builds[2].stages[..], builds[2].memory_peak_bytes), (&[last][..], 7), "without the fetch");
    for number in 5..20 {
        store.record(&[Record::BuildBegan(build_row(number, run, "p")), end(number, "built", None)]).unwrap();
    }
    assert_eq!(store.measured().unwrap()[0].1.len(), MEASURED_MAX);
}

#[test]
fn a_store_of_an_earlier_version_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kilnyard.db");
    let earlier = Connection::open(&path).unwrap();
    earlier.execute_batch(STEPS[0]).unwrap();
    earlier.execute_batch("INSERT INTO duration VALUES ('a', 2.0, 1.0); PRAGMA user_version = 1;").unwrap();
    drop(earlier);
    let mut store = Sqlite::open(&path).unwrap();
    store.import_durations(&[("b".to_owned(), 4.0, 3.0)]).unwrap();
    drop(store);
    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.durations().unwrap(), [("a".to_owned(), 2.0, 1.0), ("b".to_owned(), 4.0, 3.0)]);
    let format: i64 = store.connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(format, FORMAT);
}

#[test]
fn a_store_of_a_later_version_is_refused() {
    let (store, folder) = open();
    store.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    let error = Sqlite::open(&folder.path().join("kilnyard.db")).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 99, .. }), "{error}");
}

#[test]
fn what_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kilnyard.db");
    std::fs::write(&path, "this is no database, but it is long enough to look at").unwrap();
    let error = Sqlite::open(&path).unwrap_err().to_string();
    assert!(error.contains("kilnyard.db"), "{error}");
}

#[test]
fn many_make_one_store_at_once() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        std::thread::scope(|scope| {
            let opened: Vec<_> = (0..8).map(|_| scope.spawn(|| Sqlite::open(&path).map(|_| ()))).collect();
            for opened in opened {
                opened.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn the_last_of_several_times_of_a_stage_counts() {
    let times = |stages: &[(Stage, f64)]| -> Vec<f64> {
        let stages: Vec<StageResult> = stages.iter().map(|(name, cpu)| stage(*name, *cpu)).collect();
        Measurement::of(&stages, 2, false).stages.iter().map(|stage| stage.cpu_seconds).collect()
    };
    let (depends, build, test) = (Stage::Depends, Stage::Build, Stage::Test);
    // Layers that were made for it are no part of what the next build takes.
    let cold = [(Stage::Fetch, 9.0), (depends, 8.0), (depends, 1.0), (build, 5.0), (test, 6.0), (test, 2.0)];
    assert_eq!(times(&cold), [1.0, 5.0, 2.0]);
    assert_eq!(times(&[(depends, 1.0), (build, 5.0), (test, 2.0)]), [1.0, 5.0, 2.0]);
    // It was built twice.
    assert_eq!(times(&[(depends, 1.0), (build, 5.0), (depends, 1.5), (build, 6.0)]), [1.5, 6.0]);
    assert!(times(&[]).is_empty());
}

#[test]
fn what_the_database_reports_has_a_kind() {
    let (mut store, folder) = open();
    let path = folder.path().join("kilnyard.db");
    let durations: Vec<_> = (0..2000).map(|number| (format!("package-{number}"), 1.0, 2.0)).collect();

    let pages: i64 = store.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    store.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let full = store.import_durations(&durations).unwrap_err();
    assert!(matches!(full, StoreError::Full { .. }) && full.is_full(), "{full:?}");
    assert!(full.to_string().contains("kilnyard.db"), "{full}");
    assert!(store.durations().unwrap().is_empty());
    store.connection.pragma_update(None, "max_page_count", 1 << 20).unwrap();

    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.connection.busy_timeout(Duration::ZERO).unwrap();
    let busy = store.import_durations(&durations).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy:?}");
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);

    store.import_durations(&durations).unwrap();
    drop(store);
    let mut reader = Sqlite::open_to_read(&path).unwrap();
    let read_only = reader.import_durations(&durations).unwrap_err();
    assert!(read_only.is_read_only(), "{read_only:?}");
    assert_eq!(reader.durations().unwrap().len(), durations.len());
    drop(reader);

    std::fs::write(&path, [b'x'; 4096]).unwrap();
    let damaged = Sqlite::open(&path).unwrap_err();
    assert!(damaged.is_damaged(), "{damaged:?}");
}

#[test]
fn an_older_store_that_cannot_be_written_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kilnyard.db");
    let earlier = Connection::open(&path).unwrap();
    earlier.execute_batch(STEPS[0]).unwrap();
    earlier.pragma_update(None, "user_version", 1).unwrap();
    drop(earlier);
    let error = Sqlite::open_to_read(&path).unwrap_err();
    assert!(matches!(error, StoreError::TooOld { found: 1, .. }), "{error:?}");
}
