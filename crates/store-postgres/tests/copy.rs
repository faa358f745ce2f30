//! Copies of stores, from a file to a database and back.

mod server;

use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{Key, Output, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Measures, PackageState, StageResult};
use kilnyard_model::target::Target;
use kilnyard_store::copy::{Rows, digest};
use kilnyard_store::{
    BuildRow, Current, Holder, PackageRow, Plan, PlanRow, Record, RequestKind, RunRow, RunState, Store,
    StoreError,
};
use kilnyard_store_postgres::Postgres;
use kilnyard_store_sqlite::Sqlite;
use server::Server;

fn target() -> Target {
    "any/linux/one/amd64".parse().unwrap()
}

/// A run of more packages than are copied at once, one of which was built.
fn fill(store: &mut dyn Store) {
    store.lead(&Holder::named("test")).unwrap();
    let package = |number: usize| PackageRow {
        name: format!("package-{number}-\u{fc}"),
        version: "1".to_owned(),
        state: PackageState::Waiting,
        reason: Reason::FirstBuild,
        blamed: number.is_multiple_of(3).then(|| "other".to_owned()),
        estimate_seconds: 0.1 * number as f64,
        rank_seconds: 1.0 / 3.0,
    };
    let packages: Vec<PackageRow> = (0..2345).map(package).collect();
    let run = RunRow {
        number: 0,
        started_seconds: 1.5,
        ended_seconds: None,
        state: RunState::Running,
        plan_digest: "d".to_owned(),
        cores: 2,
        slots: 2,
        expected_seconds: 1.0,
        bound_seconds: 1.0,
        forced: None,
        commits: Vec::new(),
    };
    let run = store.begin_run(&run, &packages).unwrap();
    let stage = StageResult {
        stage: Stage::Build,
        started_seconds: 1.0,
        wall_seconds: 2.0,
        cpu_seconds: 0.1 + 0.2,
        memory_peak_bytes: 1 << 40,
        work_bytes: None,
        disk_bytes: Some(7),
        parallel_seconds: None,
        is_ok: true,
        log: Some("a log".to_owned()),
        log_sha256: None,
        left_behind: Vec::new(),
        measures: Measures::default(),
    };
    let output = Output {
        name: "a".to_owned(),
        version: "1".to_owned(),
        architecture: "amd64".to_owned(),
        file: "a.deb".to_owned(),
        sha256: "s".to_owned(),
        size_bytes: 3,
        content: "c".to_owned(),
        description: "Package: a\n".to_owned(),
        digests: Default::default(),
    };
    store
        .record(&[
            Record::BuildBegan(Box::new(BuildRow {
                number: 5,
                attempt: Some(Attempt::from_bytes([7; 16])),
                run,
                package: "package-1-\u{fc}".to_owned(),
                version: "1".to_owned(),
                worker: Some("far".to_owned()),
                cores: 2,
                host: None,
                slot: 1,
                key: "k".to_owned(),
                started_seconds: 2.0,
                ended_seconds: None,
                outcome: BuildOutcome::Building,
                failure: None,
                is_reproducible: None,
                stages: Vec::new(),
            })),
            Record::StageEnded { build: 5, at_seconds: 3.0, stage: Box::new(stage) },
            Record::BuildEnded {
                build: 5,
                at_seconds: 4.0,
                outcome: BuildOutcome::Built,
                failure: None,
                is_reproducible: Some(true),
            },
            Record::Outputs(Current {
                package: "package-1-\u{fc}".to_owned(),
                build: 5,
                recipe_version: "1".to_owned(),
                revision: 1,
                key: Key { digest: "k".to_owned(), lines: vec!["a line".to_owned()] },
                outputs: vec![output],
            }),
        ])
        .unwrap();
    store.import_durations(&[("imported".to_owned(), 1.0, 2.0)]).unwrap();
    store.request(RequestKind::Retry, "package-1", "ann", 5.0).unwrap();
    store
        .save_plan(&Plan {
            digest: "p".to_owned(),
            made_seconds: 1.0,
            expected_seconds: 2.0,
            bound_seconds: 3.0,
            cuts: vec!["a cut".to_owned()],
            path: vec!["a".to_owned()],
            remarks: Vec::new(),
            packages: vec![PlanRow { package: package(1), dependencies: vec!["b".to_owned()] }],
        })
        .unwrap();
}

/// A copy has the rows of one moment, whatever another process writes meanwhile.
fn copies_one_moment(rows: &dyn Rows, mut other: Box<dyn Store>) {
    let (before, mut seen) = (digest(rows).unwrap(), Vec::new());
    rows.rows_at_once(&mut |rows| {
        // A snapshot begins with what is read first.
        seen.push(digest(rows)?);
        other.request(RequestKind::Bump, "b", "ann", 9.0)?;
        seen.push(digest(rows)?);
        Ok(())
    })
    .unwrap();
    assert!(seen.iter().all(|digested| *digested == before));
    assert_ne!(digest(rows).unwrap(), before);
    other.take_requests().unwrap();
}

#[test]
fn a_copy_has_every_row_there_and_back_and_continues() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let address = server.database("copy").unwrap();
    let mut first = Sqlite::open(&folder.path().join("first.db"), &target()).unwrap();
    fill(&mut first);
    let rows = digest(&first).unwrap();
    assert!(rows.iter().filter(|table| table.rows > 0).count() >= 13, "{rows:?}");
    Postgres::open(&address, &target()).unwrap().fill(&first).unwrap();
    let mut second = Postgres::open(&address, &target()).unwrap();
    assert_eq!(digest(&second).unwrap(), rows);
    let back = folder.path().join("back.db");
    Sqlite::open(&back, &target()).unwrap().fill(&second).unwrap();
    let mut third = Sqlite::open(&back, &target()).unwrap();
    assert_eq!(digest(&third).unwrap(), rows);
    // The same farm, whose earlier leaders are fenced, and whose numbers continue.
    let stores: [&mut dyn Store; 3] = [&mut first, &mut second, &mut third];
    let mut epochs = Vec::new();
    let ids = stores[0].scope().clone();
    for store in stores {
        assert_eq!(*store.scope(), ids);
        store.check().unwrap();
        let lead = store.lead(&Holder::named("test")).unwrap();
        epochs.push(lead.epoch);
        assert_eq!(lead.next_build, 6);
        assert_eq!(store.take_requests().unwrap().len(), 1);
        store.request(RequestKind::Skip, "a", "ann", 6.0).unwrap();
        let run = store.last_run().unwrap().unwrap();
        assert_eq!(store.packages(run.number).unwrap().len(), 2345);
        assert_eq!(store.begin_run(&run, &[]).unwrap(), 2);
        let last = store.last_event().unwrap();
        assert_eq!(store.events_since(last - 1, 9).unwrap().len(), 1);
    }
    assert_eq!(epochs, [2, 3, 4]);
    server.end();
}

#[test]
fn a_store_that_has_something_is_not_overwritten() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let address = server.database("full").unwrap();
    let mut file = Sqlite::open(&folder.path().join("file.db"), &target()).unwrap();
    let mut database = Postgres::open(&address, &target()).unwrap();
    fill(&mut file);
    fill(&mut database);
    let (before, other) = (digest(&database).unwrap(), digest(&file).unwrap());
    for refused in [database.fill(&file), file.fill(&database)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::Used { .. }), "{error}");
    }
    assert_eq!((digest(&database).unwrap(), digest(&file).unwrap()), (before, other));
    server.end();
}

/// Events of several runs have numbers of several partitions, in every store that they are copied to.
#[test]
fn a_copy_of_a_database_has_its_partitions() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let open = |name: &str| Postgres::open(&server.database(name).unwrap(), &target()).unwrap();
    let address = server.database("first").unwrap();
    let again = || Postgres::open(&address, &target()).unwrap();
    let mut first = again();
    fill(&mut first);
    let run = first.last_run().unwrap().unwrap();
    for _ in 0..2 {
        first.begin_run(&run, &[]).unwrap();
    }
    let rows = digest(&first).unwrap();
    let mut file = Sqlite::open(&folder.path().join("file.db"), &target()).unwrap();
    file.fill(&first).unwrap();
    assert_eq!(digest(&file).unwrap(), rows);
    // The file continues with numbers of the last partition, before it is copied to another database.
    file.lead(&Holder::named("test")).unwrap();
    file.begin_run(&run, &[]).unwrap();
    file.request(RequestKind::Skip, "a", "ann", 6.0).unwrap();
    // While one process copies, another one writes.
    let other = Sqlite::open(&folder.path().join("file.db"), &target()).unwrap();
    copies_one_moment(&file, Box::new(other));
    copies_one_moment(&first, Box::new(again()));
    let mut second = open("second");
    second.fill(&file).unwrap();
    assert_eq!(digest(&second).unwrap(), digest(&file).unwrap());
    let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'kilnyard.event'::regclass";
    assert_eq!(server.answer("second", count).unwrap(), "4");
    // Its numbers continue, those of a restored store too.
    second.request(RequestKind::Skip, "a", "ann", 7.0).unwrap();
    second.begin_generation(30_000_000).unwrap();
    second.request(RequestKind::Skip, "a", "ann", 8.0).unwrap();
    second.lead(&Holder::named("test")).unwrap();
    assert_eq!(second.begin_run(&run, &[]).unwrap(), 5);
    assert_eq!(server.answer("second", count).unwrap(), "5");
    second.check().unwrap();
    let mut third = open("third");
    third.fill(&second).unwrap();
    assert_eq!(digest(&third).unwrap(), digest(&second).unwrap());
    server.end();
}
