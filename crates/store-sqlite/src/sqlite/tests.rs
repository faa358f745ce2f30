//! Tests of features that only SQLite has: its file, formats and errors.

use super::open::{FORMAT, STEPS};
use super::*;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, FailureKind};
use kilnyard_model::target::Target;
use kilnyard_store::{ForcedRun, Holder, RunState};
use std::time::Duration;

/// A store with rows of every kind, made by commit 3ad06da.
const STORE_3: &str = include_str!("../../tests/stores/3.sql");

fn target() -> Target {
    "any/linux/one/amd64".parse().unwrap()
}

fn open() -> (Sqlite, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Sqlite::open(&folder.path().join("kilnyard.db"), &target()).unwrap(), folder)
}

/// A store of an earlier format in a folder.
fn earlier(folder: &Path, format: usize) -> PathBuf {
    let path = folder.join("kilnyard.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(STORE_3).unwrap();
    for step in &STEPS[3..format] {
        connection.execute_batch(step).unwrap();
    }
    connection.pragma_update(None, "user_version", format as i64).unwrap();
    path
}

fn number(store: &Sqlite, sql: &str) -> i64 {
    store.connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Checks the rows that every migration of the store of commit 3ad06da keeps.
fn has_all(store: &Sqlite) {
    let runs = store.runs().unwrap();
    assert_eq!(runs.iter().map(|run| run.number).collect::<Vec<_>>(), [4, 3]);
    let last = &runs[1];
    assert_eq!(
        (last.started_seconds, last.ended_seconds, last.state),
        (1000.5, Some(1100.25), RunState::Finished)
    );
    assert_eq!((last.plan_digest.as_str(), last.cores, last.slots), ("aa-1", 8, 4));
    assert_eq!((last.expected_seconds, last.bound_seconds), (90.0, 80.0));
    assert_eq!((runs[0].state, runs[0].ended_seconds), (RunState::Running, None));

    let rows = store.packages(3).unwrap();
    let names: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.state.as_str())).collect();
    assert_eq!(names, [("acl", "failed"), ("attr", "built"), ("odd", "left-out"), ("rsync", "blocked")]);
    let words = |text: &str| Reason::Words { text: text.to_owned() };
    assert_eq!(rows[1].reason, words("first build"));
    assert_eq!(rows[2].reason, words("odd needs what is not there\n  nothing offers it"));
    assert_eq!((rows[3].blamed.as_deref(), rows[3].estimate_seconds), (Some("acl"), 20.0));
    assert_eq!((rows[0].version.as_str(), rows[0].rank_seconds), ("2.3-1", 70.0));
    assert_eq!(store.package(4, "acl").unwrap().unwrap().state, PackageState::Building);

    let builds = store.builds_in(3).unwrap();
    let good = &builds[0];
    assert_eq!((good.number, good.package.as_str(), good.version.as_str()), (5, "attr", "2.5-1+bk1"));
    assert_eq!((good.slot, good.key.as_str(), &good.outcome), (0, "k1", &BuildOutcome::Built));
    assert_eq!(
        (good.started_seconds, good.ended_seconds, good.is_reproducible),
        (1001.0, Some(1041.0), Some(true))
    );
    assert_eq!((good.attempt, &good.worker, good.cores), (None, &None, 8), "the cores of its run");
    assert_eq!(good.stages.iter().map(|stage| stage.cpu_seconds).collect::<Vec<_>>(), [1.0, 76.0]);
    assert_eq!(good.stages[1].left_behind, ["sleep"]);
    let failure = builds[1].failure.as_ref().unwrap();
    assert_eq!((failure.kind, failure.line_number), (FailureKind::Command, Some(7)));
    let lost = store.builds_open(4).unwrap();
    assert_eq!(lost.iter().map(|build| (build.number, build.slot)).collect::<Vec<_>>(), [(7, 2)]);
    assert_eq!(store.builds_of("acl", 9).unwrap().len(), 2);
    assert_eq!(store.last_builds().unwrap().len(), 2);

    let current = store.current("attr").unwrap().unwrap();
    assert_eq!((current.build, current.recipe_version.as_str(), current.revision), (5, "2.5-1", 1));
    assert_eq!((current.key.digest.as_str(), current.key.lines.len()), ("k1", 2));
    let contents: Vec<_> = current.outputs.iter().map(|output| output.content.as_str()).collect();
    assert_eq!((contents, store.outputs().unwrap().len()), (vec!["c1", "c2"], 2));
    let time = |name: &str, wall, cpu| (name.to_owned(), wall, cpu);
    assert_eq!(store.durations().unwrap(), [time("attr", 40.0, 77.0), time("zlib", 4.0, 3.0)]);
    let measured = store.measured().unwrap();
    assert_eq!((measured.len(), measured[0].1[0].cores, measured[0].1[0].work_bytes), (1, 8, 3));
    let plan = store.plan().unwrap().unwrap();
    assert_eq!((plan.digest.as_str(), plan.made_seconds, plan.path.len()), ("cc-7", 1999.0, 2));
    assert_eq!((plan.expected_seconds, plan.bound_seconds, plan.cuts.len()), (60.0, 50.0, 1));
    let planned = store.planned("acl").unwrap().unwrap();
    assert_eq!(
        (planned.dependencies, planned.package.state),
        (vec!["attr".to_owned(), "zlib".to_owned()], PackageState::Ready)
    );
    assert_eq!(store.next_build().unwrap(), 8);
}

#[test]
fn a_store_of_an_earlier_format_is_migrated_and_keeps_its_rows() {
    for format in 3..STEPS.len() {
        let folder = tempfile::tempdir().unwrap();
        let path = earlier(folder.path(), format);
        if format == 5 {
            let connection = Connection::open(&path).unwrap();
            connection.execute_batch(
                "UPDATE run SET forced = '{\"packages\":[\"acl\"],\"checks_reproducible\":true}' WHERE number = 3;
                 UPDATE plan SET remarks = 'one' || char(10) || 'two';",
            ).unwrap();
        }
        let mut store = Sqlite::open(&path, &target()).unwrap();
        has_all(&store);
        assert_eq!(number(&store, "PRAGMA user_version"), FORMAT);
        if format == 5 {
            let forced = ForcedRun { packages: vec!["acl".to_owned()], checks_reproducible: true };
            assert_eq!(store.runs().unwrap()[1].forced, Some(forced));
            assert_eq!(store.plan_head().unwrap().unwrap().remarks, ["one", "two"]);
        }
        let scope = store.scope().clone();
        assert_eq!(
            store.take_requests().unwrap(),
            [Request { kind: RequestKind::Retry, package: "acl".to_owned() }]
        );
        // It can be written and read like any other.
        let lead = store.lead(&Holder::named("test")).unwrap();
        assert_eq!((lead.epoch, lead.next_build), (1, 8));
        let end = Record::BuildEnded {
            build: 7,
            at_seconds: 2050.0,
            outcome: BuildOutcome::Lost,
            failure: None,
            is_reproducible: None,
        };
        store.record(&[end]).unwrap();
        drop(store);
        let store = Sqlite::open(&path, &target()).unwrap();
        assert_eq!(store.scope(), &scope, "the ids changed");
        assert!(store.builds_open(4).unwrap().is_empty());
        assert_eq!(store.events_since(0, 9).unwrap().len(), 1);
        store.check().unwrap();
    }
}

#[test]
fn a_migration_that_fails_leaves_the_store_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = earlier(folder.path(), 5);
    // Makes the migration fail, which creates a table of this name.
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE event (a)").unwrap();
    Sqlite::open(&path, &target()).unwrap_err();
    let connection = Connection::open(&path).unwrap();
    let format: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let kept: i64 = connection.query_row("SELECT count(*) FROM duration", [], |row| row.get(0)).unwrap();
    assert_eq!((format, kept), (5, 1));
    connection.execute_batch("DROP TABLE event").unwrap();
    drop(connection);
    has_all(&Sqlite::open(&path, &target()).unwrap());
}

#[test]
fn two_stores_have_no_id_in_common() {
    let ((one, _), (two, _)) = (open(), open());
    let ids = |store: &Sqlite| [store.scope().farm.to_string(), store.scope().yard.to_string()];
    let all: std::collections::HashSet<String> = ids(&one).into_iter().chain(ids(&two)).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn a_store_that_only_later_programs_may_write_is_refused() {
    let (store, folder) = open();
    let path = folder.path().join("kilnyard.db");
    store.connection.execute_batch("PRAGMA user_version = 99; UPDATE store SET oldest_writer = 98").unwrap();
    drop(store);
    for error in [
        Sqlite::open(&path, &target()).unwrap_err(),
        Sqlite::open_to_read(&path, &target()).unwrap_err(),
        check_file(&path).unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::TooNew { found: 99, oldest: 98, known: FORMAT, .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("has format 99, which requires a program of format 98 or later"), "{text}");
    }
}

#[test]
fn a_store_to_which_a_later_program_only_added_is_read_and_written() {
    let (mut store, folder) = open();
    let path = folder.path().join("kilnyard.db");
    store.lead(&Holder::named("test")).unwrap();
    store
        .connection
        .execute_batch(
            "ALTER TABLE run ADD COLUMN more TEXT; CREATE TABLE more (a); PRAGMA user_version = 99;
             INSERT INTO event (epoch, type, version, scope, at) VALUES (1, 'more', 7, 1, 2.0);",
        )
        .unwrap();
    drop(store);
    let mut store = Sqlite::open(&path, &target()).unwrap();
    store.lead(&Holder::named("test")).unwrap();
    store.import_durations(&[("a".to_owned(), 2.0, 1.0)]).unwrap();
    // Unknown events are skipped, and the later format stays.
    let events = store.events_since(0, 9).unwrap();
    assert_eq!((events[0].version, &events[0].kind), (7, &kilnyard_store::EventKind::Unknown));
    assert_eq!(number(&store, "PRAGMA user_version"), 99);
    drop(store);
    assert_eq!(Sqlite::open_to_read(&path, &target()).unwrap().durations().unwrap().len(), 1);
}

#[test]
fn a_reason_of_a_later_program_is_shown_by_its_text() {
    let (store, _folder) = open();
    store
        .connection
        .execute_batch(
            r#"INSERT INTO run_package VALUES (1, 'a', '1', 'ready', 'as it says', NULL, 0.0, 0.0, '{"kind":"new"}')"#,
        )
        .unwrap();
    let row = store.package(1, "a").unwrap().unwrap();
    assert_eq!(row.reason, Reason::Words { text: "as it says".to_owned() });
}

#[test]
fn a_target_without_rows_can_be_read() {
    let (store, folder) = open();
    drop(store);
    let other = "any/linux/two/amd64".parse().unwrap();
    let store = Sqlite::open_to_read(&folder.path().join("kilnyard.db"), &other).unwrap();
    assert!(store.runs().unwrap().is_empty() && store.plan().unwrap().is_none());
}

#[test]
fn a_file_that_is_not_a_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kilnyard.db");
    std::fs::write(&path, "this is not a database, but it is long enough to look like one").unwrap();
    let error = Sqlite::open(&path, &target()).unwrap_err().to_string();
    assert!(error.contains("kilnyard.db"), "{error}");
}

#[test]
fn concurrent_processes_create_one_store() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        std::thread::scope(|scope| {
            let opened: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Sqlite::open(&path, &target()).map(|_| ()))).collect();
            for opened in opened {
                opened.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn errors_of_the_database_are_classified() {
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
    let mut reader = Sqlite::open_to_read(&path, &target()).unwrap();
    let read_only = reader.import_durations(&durations).unwrap_err();
    assert!(read_only.is_read_only(), "{read_only:?}");
    assert_eq!(reader.durations().unwrap().len(), durations.len());
    drop(reader);

    std::fs::write(&path, [b'x'; 4096]).unwrap();
    let damaged = Sqlite::open(&path, &target()).unwrap_err();
    assert!(damaged.is_damaged(), "{damaged:?}");
}

#[test]
fn an_older_store_that_is_read_only_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = earlier(folder.path(), 3);
    let error = Sqlite::open_to_read(&path, &target()).unwrap_err();
    assert!(matches!(error, StoreError::TooOld { found: 3, .. }), "{error:?}");
}
