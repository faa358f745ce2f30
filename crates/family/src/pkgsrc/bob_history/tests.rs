use super::*;

/// The tables that bob 1.0 creates, as far as they are read.
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (20260612);
    CREATE TABLE outcome_types (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
    INSERT INTO outcome_types VALUES (7, 'up-to-date'), (8, 'success'), (9, 'failed');
    CREATE TABLE stage_types (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
    INSERT INTO stage_types VALUES (4, 'configure'), (5, 'build');
    CREATE TABLE build_history (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, pkgpath TEXT NOT NULL,
        pkgname TEXT NOT NULL, pkgbase TEXT NOT NULL, outcome INTEGER NOT NULL REFERENCES outcome_types(id),
        stage INTEGER REFERENCES stage_types(id), make_jobs INTEGER, duration INTEGER NOT NULL, disk_usage INTEGER,
        wrkobjdir TEXT, build_id TEXT, UNIQUE (build_id, pkgpath, pkgbase));
    CREATE TABLE wall_times (history_id INTEGER NOT NULL, stage INTEGER NOT NULL, duration INTEGER NOT NULL,
        PRIMARY KEY (history_id, stage));
    CREATE TABLE cpu_times (history_id INTEGER NOT NULL, stage INTEGER NOT NULL, duration INTEGER NOT NULL,
        PRIMARY KEY (history_id, stage));";

struct History {
    folder: tempfile::TempDir,
    connection: Connection,
}

impl History {
    fn new() -> History {
        let folder = tempfile::tempdir().unwrap();
        // Characters with a special meaning in a URI.
        let connection = Connection::open(folder.path().join("history #1?%41 ü.db")).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        History { folder, connection }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("history #1?%41 ü.db")
    }

    fn build(&self, at: &str, base: &str, outcome: u32, milliseconds: i64, cpu: &[i64]) {
        let sql = "INSERT INTO build_history (timestamp, pkgpath, pkgname, pkgbase, outcome, duration)
                   VALUES (1795306845, ?1, ?2 || '-1.0', ?2, ?3, ?4)";
        self.connection.execute(sql, (at, base, outcome, milliseconds)).unwrap();
        let build = self.connection.last_insert_rowid();
        for (stage, milliseconds) in cpu.iter().enumerate() {
            let sql = "INSERT INTO cpu_times VALUES (?1, ?2, ?3)";
            self.connection.execute(sql, (build, stage as i64, milliseconds)).unwrap();
        }
    }

    fn error(&self) -> String {
        last_builds(&self.path()).unwrap_err().to_string()
    }
}

fn last(at: &str, base: &str, wall_seconds: f64, cpu_seconds: f64) -> BobBuild {
    BobBuild { location: at.into(), base: base.into(), wall_seconds, cpu_seconds }
}

#[test]
fn the_last_successful_build_of_each_package_counts() {
    let history = History::new();
    history.build("mail/mutt", "mutt", 8, 9_000, &[1_000]);
    history.build("lang/py", "py39-x", 8, 2_000, &[]);
    history.build("lang/py", "py310-x", 8, 3_000, &[500, 250]);
    history.build("mail/mutt", "mutt", 8, 8_000, &[4_000, 3_500]);
    history.build("mail/mutt", "mutt", 9, 1_000, &[100]);
    history.build("mail/mutt", "mutt", 7, 0, &[]);
    history.build("x/fails", "fails", 9, 1_000, &[100]);
    let expected = [
        last("lang/py", "py39-x", 2.0, 2.0),
        last("lang/py", "py310-x", 3.0, 0.75),
        last("mail/mutt", "mutt", 8.0, 7.5),
    ];
    // While bob is running, its latest data is only in the log.
    assert_eq!(last_builds(&history.path()).unwrap(), expected);
    let path = history.path();
    drop(history.connection);
    let names = || std::fs::read_dir(history.folder.path()).unwrap().count();
    assert_eq!(names(), 1);
    assert_eq!(last_builds(&path).unwrap(), expected);
    assert_eq!(names(), 1, "reading left files behind");
}

#[test]
fn a_history_without_a_build_has_no_times() {
    assert_eq!(last_builds(&History::new().path()).unwrap(), []);
}

#[test]
fn other_formats_are_rejected_by_number() {
    let history = History::new();
    for (version, found) in
        [("20260405", "20260405"), ("20260613", "20260613"), ("NULL", "Invalid column type Null")]
    {
        history.connection.execute_batch("DROP TABLE schema_version").unwrap();
        history.connection.execute_batch("CREATE TABLE schema_version (version INTEGER)").unwrap();
        history.connection.execute_batch(&format!("INSERT INTO schema_version VALUES ({version})")).unwrap();
        assert!(history.error().contains(found), "{}", history.error());
    }
    history.connection.execute_batch("DELETE FROM schema_version").unwrap();
    assert!(
        history.error().ends_with("of format 0; supported formats are 20260406 to 20260612"),
        "{}",
        history.error()
    );
}

#[test]
fn other_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let error = last_builds(&path).unwrap_err().to_string();
    assert!(error.contains("unable to open"), "{error}");
    assert!(!path.exists());
    std::fs::write(&path, "this is not a database, but it is long enough to check").unwrap();
    let error = last_builds(&path).unwrap_err().to_string();
    assert!(error.contains("not a database"), "{error}");
    std::fs::write(&path, "").unwrap();
    let error = last_builds(&path).unwrap_err().to_string();
    assert!(error.contains("no such table: schema_version"), "{error}");
}

#[test]
fn invalid_times_and_names_are_rejected() {
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for (at, base, milliseconds, cpu, what) in [
        ("a/b", "b", -1, &[][..], "a duration that is negative or longer than a year"),
        ("a/b", "b", MILLISECONDS_MAX + 1, &[], "a duration that is negative or longer than a year"),
        ("a/b", "b", 1, &[-7], "a duration that is negative or longer than a year"),
        ("", "b", 1, &[], "a name that is empty or too long"),
        ("a/b", &long, 1, &[], "a name that is empty or too long"),
    ] {
        let history = History::new();
        history.build(at, base, 8, milliseconds, cpu);
        assert!(history.error().ends_with(&format!("build 1 has {what}")), "{}", history.error());
    }
    let history = History::new();
    history.build("a/b", "b", 8, 1, &[i64::MAX, i64::MAX]);
    assert!(history.error().ends_with("integer overflow"), "{}", history.error());
    let history = History::new();
    history.build("a/b", "b", 8, 1, &[]);
    history.connection.execute("UPDATE build_history SET pkgbase = x'ff00'", []).unwrap();
    assert!(history.error().ends_with("a name that is not text"), "{}", history.error());
    history.connection.execute("UPDATE build_history SET pkgbase = 'b', duration = 'long'", []).unwrap();
    assert!(history.error().contains("Invalid column type Text"), "{}", history.error());
}
