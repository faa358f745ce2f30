//! What only SQLite has: its file, its formats, and the kinds of what it reports.

use super::*;

fn open() -> (Sqlite, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Sqlite::open(&folder.path().join("kilnyard.db")).unwrap(), folder)
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
