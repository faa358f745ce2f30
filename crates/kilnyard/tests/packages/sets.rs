//! Sets of several targets, against the archive, over all of a release, and with cycles.

use crate::fixtures::{Fixture, Packages, Shared, Trial, deb, good, slow, unpacked};
use crate::support::archive::Archive;
use crate::support::server::Server;
use crate::support::{self, until};
use kilnyard_sign::YardKey;
use std::fs;

pub const CASES: &[Trial] = &[
    ("two_releases_are_built_into_one_repository", two_releases),
    ("a_mass_rebuild_uses_the_archive_and_is_not_published", mass_rebuild),
    ("a_second_pass_builds_a_cycle_with_its_own_packages", second_pass),
    ("an_own_source_over_a_whole_release_is_built_alone", over_a_release),
];

/// Kills a build in its second target; a second one continues there, and builds nothing of the first again.
fn two_releases(shared: &Shared) {
    let yard = shared.yard("releases", &[slow("one", "sleep 6")]);
    let config = yard.read("kilnyard.toml");
    yard.configure(&format!("{config}\n[[target]]\n\n[[target]]\nrelease = \"trixie\"\n"));
    // The first target takes the base root that the trials share.
    let first = yard.path("targets/bookworm-amd64");
    fs::create_dir_all(first.join("state")).unwrap();
    fs::copy(yard.path("state/range"), first.join("state/range")).unwrap();
    support::copy("-al", &yard.path("layers"), &first);
    support::copy("-a", &yard.path("index"), &first);
    let mut started = yard.start(&["build"]);
    until("trixie's package is built", || {
        let status = yard.run(&["status", "--target", "trixie", "--json"]);
        status.code == Some(0) && !status.json()["building"].as_array().is_none_or(Vec::is_empty)
    });
    started.signal(libc::SIGKILL);
    let ended = started.end();
    let release = |name: &str| fs::read_to_string(yard.path(&format!("repository/dists/{name}/Release")));
    let (bookworm, trixie) = (release("bookworm"), release("trixie"));
    assert!(bookworm.is_ok() && trixie.is_err(), "{bookworm:?} {trixie:?} {ended:?}");
    let ended = yard.run(&["build"]).exits(0);
    ended.says(&["nothing to do", "1 built"]);
    for name in ["bookworm", "trixie"] {
        let packages = yard.read(&format!("repository/dists/{name}/main/binary-amd64/Packages"));
        assert!(packages.contains("Package: one\n"), "{packages}");
        let state = yard.run(&["why", "one", "--target", name, "--json"]).exits(0).json();
        assert_eq!(state["state"], "built");
        assert_eq!(
            state["attempts"].as_array().unwrap().iter().filter(|one| one["outcome"] == "built").count(),
            1
        );
    }
    let ended = yard.run(&["build"]).exits(0);
    assert_eq!(ended.stderr.matches("nothing to do").count(), 2, "{ended:?}");
    yard.run(&["log", "one", "--target", "trixie"]).exits(0);
    // A change is tried in both, or in one.
    let changes = shared.path("releases-changes");
    fs::create_dir(&changes).unwrap();
    let change = |fixture: Fixture| changes.join(fixture.write(&changes)).display().to_string();
    let better = change(Fixture { version: Some("2.0"), ..good("one", "") });
    yard.run(&["try", &better])
        .exits(0)
        .says(&["try 1, bookworm-amd64: 1 package built", "try 1, trixie-amd64: 1 package built"]);
    let broken = change(Fixture { version: Some("3.0"), build: "false", ..good("one", "") });
    let tried = yard.run(&["try", "--target", "trixie", "--json", &broken]).exits(1).json();
    assert_eq!(tried["targets"][0]["target"], "trixie-amd64");
    assert_eq!(tried["targets"][0]["newly_failing"], serde_json::json!(["one"]));
    assert_eq!(tried["targets"].as_array().unwrap().len(), 1);
    yard.run(&["try", "--target", "sid", &better]).exits(2).says(&["no target sid"]);
    assert!(yard.read("repository/dists/trixie/main/binary-amd64/Packages").contains("Version: 1.0"));
    yard.run(&["try", "--remove", "1"]).exits(0);
    yard.run(&["try", "--remove", "2"]).exits(0);
    assert!(!yard.path("tries/1").exists() && !yard.path("tries/2").exists());
    yard.run(&["clean", "--base"]).exits(0);
}

/// A package that records the version of another one, which its build uses.
fn records(name: &'static str, needs: &'static str, binary: &'static str) -> Fixture {
    Fixture { binary, ..good(name, needs) }
}

const RECORD_HELLO: &str = "dpkg-query -W -f '$${Version}' hello > debian/tmp/usr/share/user/used";
const HEADER_IS_GONE: &str = "printf '\\043include <gone.h>\\n' > gone.c; cc -c gone.c";

fn mass_rebuild(shared: &Shared) {
    let set = [
        good("hello", ""),
        records("user", "hello", RECORD_HELLO),
        slow("first-broken", HEADER_IS_GONE),
        slow("second-broken", HEADER_IS_GONE),
    ];
    let yard = shared.yard("mass", &set);
    let config = yard.read("kilnyard.toml");
    yard.configure(&config.replace("\n[build]\n", "\n[build]\nagainst = \"archive\""));
    let plan = yard.run(&["plan", "--json"]).exits(0).json();
    assert_eq!(plan["packages"].as_array().unwrap().len(), 4, "{plan}");
    let causes = "failed: 2 packages: build: a header is missing: gone.h: first-broken, second-broken";
    yard.build().exits(1).says(&["2 built", "2 failed", causes, "not published"]);
    assert!(!yard.path("repository/dists").exists());
    let report: serde_json::Value = serde_json::from_str(&yard.read("report/latest/report.json")).unwrap();
    let causes = &report["causes"];
    assert_eq!(causes[0]["packages"], serde_json::json!(["first-broken", "second-broken"]), "{causes}");
    assert!(yard.read("report/latest/index.html").contains("a header is missing: gone.h"));
    // Against the set, the package is built again, now with the set's hello.
    let ended = yard.run(&["build", "--no-scan", "--against", "set"]).exits(1);
    ended.says(&["built user"]);
    let used = unpacked(shared, &yard, "user", "usr/share/user/used");
    assert!(used.starts_with("1.0+"), "{used}");
    // Published on demand, against the archive again.
    yard.run(&["build", "--no-scan", "--publish"]).exits(1).says(&["built user"]);
    let used = unpacked(shared, &yard, "user", "usr/share/user/used");
    assert!(used.starts_with("2.10-"), "{used}");
    assert!(yard.is_clean());
}

fn second_pass(shared: &Shared) {
    let record = |other: &str| -> &'static str {
        let folder = if other == "one" { "two" } else { "one" };
        let command =
            format!("dpkg-query -W -f '$${{Version}}' {other} > debian/tmp/usr/share/{folder}/used");
        Box::leak(command.into_boxed_str())
    };
    let set = [records("one", "two", record("two")), records("two", "one", record("one"))];
    let yard = shared.yard("passes", &set);
    let scratch = shared.path("passes-scratch");
    fs::create_dir(&scratch).unwrap();
    let key = YardKey::generate("Bootstrap <bootstrap@example.org>").unwrap();
    fs::write(yard.path("bootstrap.gpg"), key.public_binary().unwrap()).unwrap();
    let (one, two) = (deb(&scratch, "one", "0.1"), deb(&scratch, "two", "0.1"));
    let archive = Archive {
        codename: "bootstrap".to_owned(),
        packages: format!("{}{}", one.0, two.0),
        sources: String::new(),
        ..Archive::default()
    };
    let signed = archive.files_signed_by(&key).into_iter();
    let moved = signed.map(|(path, bytes)| (path.replace("/tiny/", "/bootstrap/"), bytes));
    let pool = [("one", one.1), ("two", two.1)];
    let pool = pool.into_iter().map(|(name, bytes)| (format!("/pool/{name}_0.1_all.deb"), bytes));
    let server = Server::start(moved.chain(pool).collect());
    let config = yard.read("kilnyard.toml").replace("\n[build]\n", "\n[build]\npasses = 2");
    yard.configure(&format!(
        "{config}\n[[archive]]\nmirror = \"{}\"\nsuite = \"bootstrap\"\nkey = \"bootstrap.gpg\"\n",
        server.url()
    ));
    yard.run(&["scan"]).exits(0);
    yard.run(&["plan"])
        .exits(0)
        .says(&["cycle cut: one is built before two, with the archive's binary packages"]);
    let ended = yard.build().exits(0);
    let passes = ended.stderr.matches(" built ").count();
    for name in ["one", "two"] {
        let used = unpacked(shared, &yard, name, &format!("usr/share/{name}/used"));
        assert!(used.starts_with("1.0+"), "{name} used {used}: {ended:?}");
    }
    assert!(passes >= 3, "one of them is built twice: {ended:?}");
    yard.build().exits(0).says(&["nothing to do"]);
    assert!(yard.is_clean());
}

fn over_a_release(shared: &Shared) {
    let yard = shared.yard("release", &[good("only-ours", "hello")]);
    let config = yard.read("kilnyard.toml").replace("packages = [\n", "packages = [\n  \"all\",\n");
    yard.configure(&config);
    let says = ["sources are built: 1 own, 0 named, 0 that depend on them", "are used as they are"];
    yard.run(&["plan"]).exits(0).says(&says).says(&["1 package to build"]);
    yard.build().exits(0).says(&["1 built"]);
    assert_eq!(yard.published().iter().filter(|line| line.starts_with("Package: ")).count(), 1);
    yard.run(&["why", "hello"]).exits(2).says(&["the archive's packages are used"]);
    yard.build().exits(0).says(&["nothing to do"]);
    assert!(yard.is_clean());
}
