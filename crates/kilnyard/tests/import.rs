//! Moving from another builder of pkgsrc: a yard takes over its configuration and history.

mod support;

use std::path::{Path, PathBuf};
use support::{Ended, Yard, command, folder};

/// A folder with a tree, in which the other builder would be started; the yard is made in the same folder.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        let home = Home { folder: folder("import") };
        home.write("tree/mk/bsd.pkg.mk", "");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn yard(&self) -> Yard {
        Yard { folder: self.path("yard") }
    }

    /// Runs `init pkgsrc` in this folder, isolated from the user's files, and with a mirror that does not respond.
    fn init(&self, more: &[&str]) -> Ended {
        let mut command = command();
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).env_remove("XDG_DATA_HOME");
        let mirror = ["--mirror", "http://127.0.0.1:1/debian"];
        command.args(["--yard", "yard", "init", "pkgsrc"]).args(mirror).args(more).output().unwrap().into()
    }

    fn made(&self) -> toml::Table {
        self.yard().read("kilnyard.toml").parse().unwrap()
    }

    /// Writes a history in the format of bob 1.0. Each build has a directory, name, outcome, and wall and CPU times in
    /// milliseconds.
    fn history(&self, name: &str, builds: &[(&str, &str, u32, i64, i64)]) {
        self.write(name, "");
        let database = rusqlite::Connection::open(self.path(name)).unwrap();
        database.execute_batch(BOB_SCHEMA).unwrap();
        for (location, base, outcome, wall, cpu) in builds {
            let sql = "INSERT INTO build_history (timestamp, pkgpath, pkgname, pkgbase, outcome, duration)
                       VALUES (1795306845, ?1, ?2 || '-1.0', ?2, ?3, ?4)";
            database.execute(sql, (location, base, outcome, wall)).unwrap();
            let build = database.last_insert_rowid();
            database.execute("INSERT INTO wall_times VALUES (?1, 5, ?2)", (build, wall)).unwrap();
            database.execute("INSERT INTO cpu_times VALUES (?1, 5, ?2)", (build, cpu)).unwrap();
        }
    }

    /// The imported times in the yard's store.
    fn imported(&self) -> Vec<(String, f64, f64)> {
        let store = rusqlite::Connection::open(self.path("yard/state/kilnyard.db")).unwrap();
        let mut rows =
            store.prepare("SELECT package, wall, cpu FROM imported_duration ORDER BY package").unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(|row| row.unwrap()).collect()
    }
}

const BOB_SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (20260612);
    CREATE TABLE outcome_types (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
    INSERT INTO outcome_types VALUES (8, 'success'), (9, 'failed');
    CREATE TABLE stage_types (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
    INSERT INTO stage_types VALUES (5, 'build');
    CREATE TABLE build_history (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, pkgpath TEXT NOT NULL,
        pkgname TEXT NOT NULL, pkgbase TEXT NOT NULL, outcome INTEGER NOT NULL REFERENCES outcome_types(id),
        stage INTEGER REFERENCES stage_types(id), make_jobs INTEGER, duration INTEGER NOT NULL, disk_usage INTEGER,
        wrkobjdir TEXT, build_id TEXT, UNIQUE (build_id, pkgpath, pkgbase));
    CREATE TABLE wall_times (history_id INTEGER NOT NULL, stage INTEGER NOT NULL, duration INTEGER NOT NULL,
        PRIMARY KEY (history_id, stage));
    CREATE TABLE cpu_times (history_id INTEGER NOT NULL, stage INTEGER NOT NULL, duration INTEGER NOT NULL,
        PRIMARY KEY (history_id, stage));";

const PBULK: &str = "\
base=kits
bootstrapkit=$base/bootstrap.tar.gz
limited_list=lists/minimal
pkgsrc=tree
prefix=/opt/pkg
make=${prefix}/bin/bmake
build_chroots=3
packages=`pwd`/packages
mail=:
";

#[test]
fn a_yard_is_made_from_a_pbulk_conf() {
    let home = Home::new();
    home.write("etc/pbulk.conf", PBULK);
    home.write("lists/minimal", "# ours\nmail/mutt\ndevel/gmake\n");
    home.init(&["--from-pbulk", "etc/pbulk.conf"]).exits(0).says(&[
        &format!("made the yard yard for the tree {}", home.text("tree")),
        "imported 7 settings from etc/pbulk.conf; 2 not imported:",
        "line 1, base: it is not a setting of pbulk",
        "line 8, packages: it runs a command",
        "next: kilnyard --yard yard build",
    ]);
    let made = home.made();
    let table = &made["pkgsrc"];
    assert_eq!(table["tree"].as_str(), Some(&home.text("tree")[..]));
    assert_eq!(table["bootstrap-kit"].as_str(), Some(&home.text("kits/bootstrap.tar.gz")[..]));
    assert_eq!(
        (table["prefix"].as_str(), table["make"].as_str()),
        (Some("/opt/pkg"), Some("/opt/pkg/bin/bmake"))
    );
    assert_eq!(made["packages-file"].as_str(), Some(&home.text("lists/minimal")[..]));
    assert_eq!(
        (made["packages"].as_array().map(Vec::len), made["build"]["slots"].as_integer()),
        (Some(0), Some(3))
    );
    let text = home.yard().read("kilnyard.toml");
    let (_, end) = text.split_once("\n\n# imported 7 settings from etc/pbulk.conf").unwrap();
    assert!(end.ends_with("\n# line 8, packages: it runs a command\n"), "{end}");
    home.yard().run(&["history"]).exits(0);
}

#[test]
fn the_command_line_overrides_the_file() {
    let home = Home::new();
    home.write("pbulk.conf", &PBULK.replace("pkgsrc=tree", "pkgsrc=/nowhere"));
    let options =
        ["--from-pbulk", "pbulk.conf", "--tree", "tree", "--prefix", "/usr/pkg", "--make", "/bin/bmake"];
    home.init(&[&options[..], &["--mk-conf", "mk.conf", "mail/mutt"]].concat()).exits(0).says(&[
        "imported 3 settings from pbulk.conf; 6 not imported:",
        "line 3, limited_list: overridden by the command line",
        "line 4, pkgsrc: overridden by --tree",
        "line 5, prefix: overridden by --prefix",
        "line 6, make: overridden by --make",
    ]);
    let made = home.made();
    assert_eq!(made["packages"], toml::Value::from(vec!["mail/mutt"]));
    assert!(!made.contains_key("packages-file"));
    let table = &made["pkgsrc"];
    assert_eq!(table["tree"].as_str(), Some(&home.text("tree")[..]));
    assert_eq!((table["prefix"].as_str(), table["make"].as_str()), (Some("/usr/pkg"), Some("/bin/bmake")));
    assert_eq!(table["mk-conf"].as_str(), Some(&home.text("mk.conf")[..]));
    assert_eq!(table["bootstrap-kit"].as_str(), Some(&home.text("kits/bootstrap.tar.gz")[..]));
}

#[test]
fn a_yard_is_made_from_a_config_lua_with_the_times_of_its_builds() {
    let home = Home::new();
    let config = "options = { build_threads = 2, dbdir = \"state\" }\npkgsrc = { basedir = \"tree\", pkgpaths = { \"mail/mutt\" } }\n";
    home.write("bob/config.lua", config);
    let builds = [("lang/py", "py39-x", 8, 9_000, 7_000), ("mail/mutt", "mutt", 8, 2_000, 1_500)];
    home.history("bob/state/history.db", &[&builds[..], &[("mail/mutt", "mutt", 9, 100, 100)]].concat());
    home.init(&["--from-bob", "bob/config.lua"]).exits(0).says(&[
        "imported 3 settings from bob/config.lua; 1 not imported:",
        "line 1, options.dbdir: it is in a folder of the yard",
        &format!("imported the times of 2 packages from {}", home.text("bob/state/history.db")),
    ]);
    let made = home.made();
    assert_eq!(made["packages"], toml::Value::from(vec!["mail/mutt"]));
    assert_eq!(made["pkgsrc"]["tree"].as_str(), Some(&home.text("tree")[..]));
    assert_eq!(made["build"]["slots"].as_integer(), Some(2));
    let expected = [
        ("lang/py", 9.0, 7.0),
        ("lang/py:py39-x", 9.0, 7.0),
        ("mail/mutt", 2.0, 1.5),
        ("mail/mutt:mutt", 2.0, 1.5),
    ];
    assert_eq!(home.imported(), expected.map(|(name, wall, cpu)| (name.to_owned(), wall, cpu)));
}

/// bob's configuration has make but no prefix, so the two may belong to different kits.
#[test]
fn doctor_reports_a_make_of_another_prefix() {
    let home = Home::new();
    home.write(
        "config.lua",
        "pkgsrc = { basedir = \"tree\", make = \"/opt/pkg/bin/bmake\", pkgpaths = { \"a/b\" } }\n",
    );
    home.init(&["--from-bob", "config.lua"]).exits(0);
    let yard = home.yard();
    let made = yard.read("kilnyard.toml");
    let (make, prefix) = ("make = \"/opt/pkg/bin/bmake\"", "# prefix = \"/usr/pkg\"");
    assert!(made.contains(make) && made.contains(prefix), "{made}");
    // The mirror does not respond, so the exit code is always 3.
    yard.run(&["doctor"]).exits(3).says(&[
        "MISS make: /opt/pkg/bin/bmake is neither in the prefix /usr/pkg nor a program of the base root",
        "try: make in kilnyard.toml: /usr/pkg/bin/bmake, or prefix, set to the prefix of the kit",
    ]);
    yard.configure(&made.replace(prefix, "prefix = \"/opt/pkg\""));
    yard.run(&["doctor"]).exits(3).says(&["ok   make: /opt/pkg/bin/bmake\n"]);
}

#[test]
fn a_missing_or_unreadable_history_is_only_reported() {
    let home = Home::new();
    home.write(
        "bob/config.lua",
        "pkgsrc = { basedir = \"tree\", pkgpaths = read_pkgpaths(os.getenv(\"LIST\")) }\n",
    );
    home.init(&["--from-bob", "bob/config.lua"]).exits(0).says(&[
        &format!("no history of bob found at {}", home.text("bob/db/history.db")),
        "line 1, pkgsrc.pkgpaths: ",
        "the set of packages is unknown: name them in yard/kilnyard.toml",
    ]);
    assert_eq!(home.made()["packages"].as_array().map(Vec::len), Some(0));
    for (name, words) in [
        ("bob/db/history.db", "cannot be read as a history of bob"),
        (".local/share/bob/history.db", "cannot be read as a history of bob"),
    ] {
        std::fs::remove_dir_all(home.path("yard")).unwrap();
        home.write(name, "this is not a database, but it is long enough to check");
        home.init(&["--from-bob", "bob/config.lua"]).exits(0).says(&[
            "warning: failed to import times",
            words,
            name,
        ]);
        std::fs::remove_file(home.path(name)).unwrap();
        assert_eq!(home.made()["pkgsrc"]["tree"].as_str(), Some(&home.text("tree")[..]));
    }
}

#[test]
fn times_of_bob_are_imported_later() {
    let home = Home::new();
    home.init(&["--tree", "tree", "mail/mutt"]).exits(0);
    home.history("history.db", &[("mail/mutt", "mutt", 8, 2_000, 1_500)]);
    let (yard, file) = (home.yard(), home.text("history.db"));
    yard.run(&["history", "--import-bob", &file]).exits(0).says(&["imported the times of 1 package from"]);
    assert_eq!(home.imported().len(), 2);
    home.history("newer.db", &[("mail/mutt", "mutt", 8, 4_000, 3_500)]);
    yard.run(&["history", "--import-bob", &home.text("newer.db")]).exits(0);
    assert_eq!(home.imported()[0], ("mail/mutt".to_owned(), 4.0, 3.5));
    yard.run(&["history"]).exits(0);

    yard.run(&["history", "--import-bob", "/nowhere/history.db"])
        .exits(2)
        .says(&["unable to open database file"]);
    yard.run(&["history", "--import-bob", &file, "mail/mutt"]).exits(2).says(&["cannot be used with"]);
    let lock = std::fs::File::open(yard.path("state/lock")).unwrap();
    lock.lock().unwrap();
    yard.run(&["history", "--import-bob", &file]).exits(2).says(&["another Kilnyard"]);
    lock.unlock().unwrap();
    assert_eq!(home.imported()[0], ("mail/mutt".to_owned(), 4.0, 3.5));

    let debian = Yard { folder: home.path("debian") };
    debian
        .run(&["init", "debian", "--release", "bookworm", "--mirror", "http://deb.example", "hello"])
        .exits(0);
    debian.run(&["history", "--import-bob", &file]).exits(2).says(&["this is a yard of Debian"]);
}

#[test]
fn a_configuration_that_cannot_be_imported_makes_no_yard() {
    let home = Home::new();
    home.write("open.conf", "make='/usr/pkg\n");
    home.write("list.conf", "pkgsrc=tree\nlimited_list=absent\n");
    home.write("tree.conf", "pkgsrc=/nowhere\n");
    home.write("make.conf", "pkgsrc=tree\nmake=bmake\n");
    home.write("names.conf", "pkgsrc=tree\nlimited_list=names\n");
    home.write("names", "../../etc\n");
    home.write("open.lua", "pkgsrc = {\n");
    std::fs::write(home.path("latin.conf"), b"# caf\xe9\n").unwrap();
    for (option, name, words) in [
        ("--from-pbulk", "open.conf", &["failed to read open.conf", "line 1: `'` is not closed"][..]),
        ("--from-pbulk", "absent.conf", &["failed to read absent.conf", "No such file"]),
        ("--from-pbulk", "latin.conf", &["failed to read latin.conf", "UTF-8"]),
        ("--from-pbulk", "tree", &["failed to read tree", "Is a directory"]),
        ("--from-pbulk", "list.conf", &["packages-file", "absent", "together with --from-pbulk"]),
        ("--from-pbulk", "names.conf", &["`../../etc` is not a package directory or category"]),
        ("--from-pbulk", "tree.conf", &["/nowhere is not a pkgsrc tree", "--tree with the folder"]),
        ("--from-pbulk", "make.conf", &["make `bmake` must be a path", "together with --from-pbulk"]),
        (
            "--from-bob",
            "open.lua",
            &["failed to read open.lua", "line 2: expected a value, found `the end of the file`"],
        ),
    ] {
        home.init(&[option, name]).exits(2).says(words);
        assert!(!Path::new(&home.text("yard")).exists(), "{name}");
    }
    home.init(&["--from-pbulk", "tree.conf", "--from-bob", "open.lua"])
        .exits(2)
        .says(&["cannot be used with"]);
    home.init(&["--tree", "/nowhere"]).exits(2).says(&["/nowhere is not a pkgsrc tree"]);
}
