//! `kilnyard.lock`: the inputs that it fixes, when it changes, and the errors if it cannot be followed.

use crate::git::{changelog, commit, repository, write};
use crate::support::archive::{Archive, hex_of};
use crate::support::tiny::Tiny;
use std::collections::BTreeMap;

pub const CASES: &[(&str, fn())] = &[
    ("a_lock_repeats_sources_and_dependencies", repeats),
    ("a_lock_follows_changes_of_the_configuration", follows),
    ("locked_indexes_are_kept_or_fetched_by_hash", kept_or_fetched),
    ("a_damaged_lock_is_reported_with_its_line", damaged),
    ("a_lock_keeps_the_commit_of_a_repository", keeps_commits),
];

/// The test archive with every version one higher, a minute later.
fn newer(tiny: &Tiny) -> Archive {
    let mut archive = tiny.archive.clone();
    archive.date_seconds += 60;
    archive.sources = archive.sources.replace("Version: 1.0-1", "Version: 2.0-1");
    archive.packages = archive.packages.replace("Version: 1.5-1", "Version: 9.5-1");
    archive
}

fn version(tiny: &Tiny, name: &str) -> String {
    let plan = tiny.yard.run(&["plan", "--json"]).exits(0).json();
    let row = plan["packages"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned();
    let row = row.unwrap_or_else(|| panic!("{name} is not in {plan}"));
    if row["state"] == "left-out" {
        "left out".to_owned()
    } else {
        row["version"].as_str().unwrap().to_owned()
    }
}

fn repeats() {
    let tiny = Tiny::new("lock");
    // It is left out as long as tool is not newer.
    tiny.configure("\"goodsource\", \"needs-newer\"", "");
    tiny.yard.run(&["lock"]).exits(0).says(&["wrote ", "kilnyard.lock: ", "1 index"]);
    let lock = tiny.yard.read("kilnyard.lock");
    for words in [
        "version = 1",
        "suite = \"tiny\"",
        "name = \"goodsource\"",
        "version = \"1.0-1\"",
        "main/source/Sources.xz",
    ] {
        assert!(lock.contains(words), "{lock}");
    }
    tiny.yard.run(&["lock"]).exits(0).says(&["is up to date"]);
    tiny.server.serve(newer(&tiny).files());
    for _ in 0..2 {
        tiny.scan().exits(0).says(&["kilnyard.lock keeps the index of", "tiny: nothing new"]);
        assert_eq!(
            (version(&tiny, "goodsource"), version(&tiny, "needs-newer")),
            ("1.0-1".into(), "left out".into())
        );
        tiny.yard.run(&["build", "--locked", "--dry-run"]).exits(0).says(&["1 package to build"]);
    }
    assert_eq!(tiny.yard.read("kilnyard.lock"), lock);
    // The newer release was not requested.
    assert_eq!(tiny.server.answers(Archive::RELEASE_PATH), [200]);
    let update = tiny.yard.run(&["lock", "--update"]).exits(0);
    update.says(&["source goodsource: 1.0-1 (tiny) -> 2.0-1 (tiny)", "index tiny: ", "wrote "]);
    assert_eq!((version(&tiny, "goodsource"), version(&tiny, "needs-newer")), ("2.0-1".into(), "1-1".into()));
    // The files of the earlier lock are gone; the lock of another yard brings its own.
    assert_eq!(tiny.yard.names("index").iter().filter(|name| name.ends_with(".zst")).count(), 3);
    tiny.yard
        .run(&["lock", "--update", "goodsource"])
        .exits(2)
        .says(&["from tiny, whose packages are locked together"]);
    tiny.yard.run(&["lock", "--update", "absent"]).exits(2).says(&["kilnyard.lock has no package absent"]);
    std::fs::remove_file(tiny.yard.path("kilnyard.lock")).unwrap();
    tiny.yard
        .run(&["build", "--locked", "--dry-run"])
        .exits(2)
        .says(&["--locked needs kilnyard.lock", " lock"]);
    tiny.yard.run(&["lock", "goodsource"]).exits(2).says(&["--update"]);
}

fn follows() {
    let tiny = Tiny::new("lock-changes");
    tiny.yard.run(&["lock"]).exits(0);
    let lock = tiny.yard.read("kilnyard.lock");
    tiny.server.serve(newer(&tiny).files());
    tiny.configure("\"goodsource\", \"round-a\"", "");
    let strict = tiny.yard.run(&["build", "--locked", "--dry-run"]).exits(2);
    strict.says(&["would have to change", "source round-a: 1-1 (tiny), new"]);
    assert_eq!(tiny.yard.read("kilnyard.lock"), lock);
    // The new package comes from the locked index.
    tiny.yard.run(&["lock"]).exits(0).says(&["source round-a: 1-1 (tiny), new"]);
    assert_eq!(version(&tiny, "goodsource"), "1.0-1");
    tiny.yard.run(&["build", "--locked", "--dry-run"]).exits(0);
    // Another component needs another index.
    let config = tiny.yard.read("kilnyard.toml");
    tiny.yard.configure(&config.replace("[debian]", "[debian]\ncomponents = [\"contrib\"]"));
    tiny.scan().exits(2).says(&["lists no contrib"]);
    tiny.yard.configure(&config);
    // An index that is not the locked one is not taken for it.
    let other = tiny.yard.read("kilnyard.lock").replace(&lock_release(&tiny), &"b".repeat(64));
    std::fs::write(tiny.yard.path("kilnyard.lock"), other).unwrap();
    let ended = tiny.yard.run(&["build", "--locked", "--dry-run"]).exits(2);
    ended.says(&["index of tiny is not the one that kilnyard.lock names", " scan"]);
}

fn lock_release(tiny: &Tiny) -> String {
    let lock = tiny.yard.read("kilnyard.lock");
    lock.lines().find_map(|line| line.strip_prefix("release = \"")).unwrap().trim_matches('"').to_owned()
}

fn kept_or_fetched() {
    let tiny = Tiny::new("lock-files");
    tiny.yard.run(&["lock"]).exits(0);
    let files: Vec<String> =
        tiny.yard.names("index").into_iter().filter(|name| name.ends_with(".zst")).collect();
    let before = tiny.archive.files();
    tiny.server.serve(newer(&tiny).files());
    tiny.yard.run(&["clean", "--index"]).exits(0);
    let kept: Vec<String> = tiny.yard.names("index").into_iter().filter(|name| name != "git").collect();
    assert_eq!(kept, files);
    tiny.scan().exits(0);
    assert_eq!(version(&tiny, "goodsource"), "1.0-1");
    // A damaged file is not kept.
    let packages = files.iter().find(|name| name.contains("Packages")).unwrap();
    std::fs::write(tiny.yard.path(&format!("index/{packages}")), "no zstd").unwrap();
    tiny.yard.run(&["clean", "--index"]).exits(0);
    assert!(!tiny.yard.names("index").contains(packages));
    // It was removed, and no mirror has it.
    let words = ["kilnyard.lock names main/", "but the yard no longer has it", "snapshot", "lock --update"];
    tiny.scan().exits(3).says(&words);
    // A mirror that has it by its hash; a wrong file under that name is rejected.
    let lock = tiny.yard.read("kilnyard.lock");
    let mut served: BTreeMap<String, Vec<u8>> = newer(&tiny).files();
    for path in [Archive::PACKAGES_PATH, Archive::SOURCES_PATH] {
        let bytes = before[path].clone();
        let folder = path.rsplit_once('/').unwrap().0;
        assert!(lock.contains(&hex_of(&bytes)));
        served.insert(format!("{folder}/by-hash/SHA256/{}", hex_of(&bytes)), b"another file".to_vec());
    }
    tiny.server.serve(served.clone());
    tiny.scan().exits(3).says(&["but the yard no longer has it"]);
    for path in [Archive::PACKAGES_PATH, Archive::SOURCES_PATH] {
        let bytes = before[path].clone();
        let folder = path.rsplit_once('/').unwrap().0;
        served.insert(format!("{folder}/by-hash/SHA256/{}", hex_of(&bytes)), bytes);
    }
    tiny.server.serve(served);
    tiny.scan().exits(0).says(&["fetching main/"]);
    assert_eq!(version(&tiny, "goodsource"), "1.0-1");
    tiny.yard.run(&["build", "--locked", "--dry-run"]).exits(0);
}

fn damaged() {
    let tiny = Tiny::new("lock-damaged");
    tiny.yard.run(&["lock"]).exits(0);
    let good = tiny.yard.read("kilnyard.lock");
    let line = good.lines().position(|line| line.starts_with("release")).unwrap() + 1;
    for (from, to, words) in [
        ("release = \"", "release = \"../", format!("line {line}")),
        ("release = ", "release ", format!("line {line}")),
        ("main/source/Sources", "../../etc/Sources", "is not the path of an index file".to_owned()),
        ("suite = \"tiny\"", "suite = \"../../x\"", "is not a suite".to_owned()),
        ("version = 1\n", "version = 99\n", "has version 99".to_owned()),
    ] {
        std::fs::write(tiny.yard.path("kilnyard.lock"), good.replacen(from, to, 1)).unwrap();
        for arguments in [&["scan"][..], &["lock"], &["build", "--locked", "--dry-run", "--no-scan"]] {
            tiny.yard.run(arguments).exits(2).says(&["kilnyard.lock", &words]);
        }
    }
    std::fs::write(tiny.yard.path("kilnyard.lock"), &good).unwrap();
    tiny.scan().exits(0);
    assert_eq!(version(&tiny, "goodsource"), "1.0-1");
}

fn keeps_commits() {
    let tiny = Tiny::new("lock-git");
    let folder = repository(&tiny, "sample", "1", "3.0 (native)");
    tiny.configure("\"git:../sample\", \"goodsource\"", "");
    tiny.yard.run(&["lock"]).exits(0).says(&["2 sources, 1 index"]);
    let lock = tiny.yard.read("kilnyard.lock");
    assert!(lock.contains("from = \"git:../sample\"") && lock.contains("commit = \""), "{lock}");
    write(&folder, "debian/changelog", &changelog("sample", "2"));
    let second = commit(&folder);
    tiny.scan().exits(0);
    assert_eq!(version(&tiny, "sample"), "1");
    tiny.server.serve(newer(&tiny).files());
    // Only the named packages are renewed.
    let update = tiny.yard.run(&["lock", "--update", "sample"]).exits(0);
    update.says(&["source sample: 1 (git:../sample, commit", &second]);
    assert_eq!((version(&tiny, "sample"), version(&tiny, "goodsource")), ("2".into(), "1.0-1".into()));
    // A commit that no repository has is reported; the rest is in the plan.
    let gone = tiny.yard.read("kilnyard.lock").replace(&second, &"0".repeat(40));
    std::fs::write(tiny.yard.path("kilnyard.lock"), gone).unwrap();
    tiny.scan().exits(0).says(&["it has no commit 0000", "which kilnyard.lock names"]);
    assert_eq!((version(&tiny, "sample"), version(&tiny, "goodsource")), ("left out".into(), "1.0-1".into()));
}
