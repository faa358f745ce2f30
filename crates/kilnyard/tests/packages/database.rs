//! A yard whose store is in a PostgreSQL database.

#[path = "../../../store-postgres/tests/server/mod.rs"]
pub mod server;

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::{Yard, until};
use server::Server;
use std::fs;

pub const CASES: &[Trial] = &[
    ("a_yard_builds_with_its_store_in_a_database", in_a_database),
    ("builds_continue_while_the_database_ends_and_starts", database_ends),
    ("a_store_moves_to_a_database_and_back", moves),
];

/// A yard with its store in this database.
fn yard_in(shared: &Shared, name: &str, set: &[Fixture], url: &str) -> Yard {
    let yard = shared.yard(name, set);
    // The table `store` is the last one.
    yard.configure(&(yard.read("kilnyard.toml") + &format!("url = \"{url}\"\n")));
    yard
}

fn in_a_database(shared: &Shared) {
    let server = Server::start().unwrap();
    server.database("farm").unwrap();
    let set = [good("lib", ""), good("app", "lib"), Fixture { needs: "lib", ..slow("broken", "false") }];
    let yard = yard_in(shared, "database", &set, &server.url("farm"));
    yard.run(&["build", "--no-scan"]).exits(1).says(&["2 built", "1 failed"]);
    assert!(!yard.path("state/kilnyard.db").exists());
    yard.run(&["status"]).exits(0).says(&["broken", "failed"]);
    yard.run(&["history", "app"]).exits(0).says(&["built"]);
    yard.run(&["why", "broken"]).exits(0).says(&["failed"]);
    yard.run(&["log", "broken"]).exits(0).says(&["dpkg-buildpackage"]);
    yard.run(&["store", "check"]).exits(0).says(&["is intact", "postgres://kiln@", "1 run", "number 3"]);
    let facts = yard.run(&["store", "check", "--json"]).exits(0).json();
    assert_eq!((&facts["runs"], &facts["highest_build"]), (&1.into(), &3.into()), "{facts}");
    // A request waits in the database for the next run.
    yard.run(&["retry", "broken"]).exits(0);
    yard.run(&["build", "--no-scan"]).exits(1).says(&["1 failed"]);
    yard.run(&["diff"]).exits(0);
    // Another yard does not take the store by mistake, but adopts it on request; its runs are those of the store then.
    let other = yard_in(shared, "database-too", &set, &server.url("farm"));
    other.run(&["status"]).exits(2).says(&["which this yard has not used before", "store adopt"]);
    other.run(&["store", "adopt"]).exits(0).says(&["this yard uses the store"]);
    other.run(&["status"]).exits(0).says(&["broken", "failed"]);
    // A schema of its own, a new store.
    let text = other.read("kilnyard.toml") + "schema = \"other\"\n";
    other.configure(&text);
    other.run(&["store", "check"]).exits(2).says(&["the store of another yard, or a new one"]);
    fs::remove_file(other.path("state/store-id")).unwrap();
    other.run(&["store", "check"]).exits(0).says(&["schema other", "0 runs"]);
    // An empty store would withdraw what the repository has.
    fs::remove_file(yard.path("state/store-id")).unwrap();
    yard.configure(&(yard.read("kilnyard.toml") + "schema = \"empty\"\n"));
    for arguments in [&["publish"][..], &["store", "adopt"]] {
        yard.run(arguments).exits(3).says(&["no records, but the repository has packages"]);
    }
    let text = yard.read("kilnyard.toml").replace("postgres://kiln@", "postgres://kiln:secret@absent");
    yard.configure(&text);
    let ended = yard.run(&["status"]).exits(3);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    server.end();
    assert!(yard.is_clean() && other.is_clean());
}

fn database_ends(shared: &Shared) {
    let server = Server::start().unwrap();
    server.database("farm").unwrap();
    let names = ["one", "two", "three", "four"];
    let set = names.map(|name| slow(name, "sleep 6"));
    let yard = yard_in(shared, "database-ends", &set, &server.url("farm"));
    let mut build = yard.start(&["build", "--no-scan"]);
    for _ in 0..3 {
        until("a build has begun", || yard.path("logs").exists());
        std::thread::sleep(std::time::Duration::from_secs(2));
        server.end();
        std::thread::sleep(std::time::Duration::from_secs(1));
        server.begin().unwrap();
    }
    build.end().exits(0).says(&["4 built"]);
    for name in names {
        let history = yard.run(&["history", name, "--json"]).exits(0).json();
        assert_eq!(history.as_array().map(Vec::len), Some(1), "{history}");
    }
    yard.run(&["store", "check"]).exits(0).says(&["is intact", "number 4"]);
    server.end();
    assert!(yard.is_clean());
}

fn moves(shared: &Shared) {
    let server = Server::start().unwrap();
    server.database("farm").unwrap();
    let yard = shared.yard("database-moves", &[good("lib", ""), good("app", "lib")]);
    yard.build().exits(0);
    let text = yard.read("kilnyard.toml");
    let history = |yard: &Yard| yard.run(&["history", "app", "--json"]).exits(0).json();
    let before = history(&yard);
    let url = server.url("farm");
    // The server asks for no password, but the URL may have one.
    let with_password = url.replace("kiln@", "kiln:secret@");
    let moved = yard.run(&["store", "move", "--to", &with_password]).exits(0);
    let moved = moved.says(&["all rows of", "build: 2 rows", "set url in the table"]);
    assert!(!moved.stderr.contains("secret") && !moved.stdout.contains("secret"), "{}", moved.stderr);
    yard.configure(&(text.clone() + &format!("url = \"{url}\"\n")));
    assert_eq!(history(&yard), before);
    yard.build().exits(0).says(&["nothing to do"]);
    yard.run(&["build", "--force", "app"]).exits(0);
    yard.run(&["store", "move", "--to", &url]).exits(2).says(&["already"]);
    // The file has its records still, which are older.
    yard.run(&["store", "move", "--to", "file"]).exits(3).says(&["runs or outputs of its own"]);
    fs::rename(yard.path("state/kilnyard.db"), yard.path("state/earlier.db")).unwrap();
    let now = history(&yard);
    yard.run(&["store", "move", "--to", "file"]).exits(0).says(&["remove the table"]);
    yard.configure(&text);
    assert_eq!(history(&yard), now);
    assert_ne!(now, before);
    yard.build().exits(0).says(&["nothing to do"]);
    yard.run(&["store", "check"]).exits(0).says(&["state/kilnyard.db is intact", "number 3"]);
    server.end();
}
