//! Tries of changes, beside the yard.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::farm::{Far, Served, served};
use crate::support::until;
use std::fs;
use std::path::Path;
use std::process::Command;

pub const CASES: &[Trial] =
    &[("a_change_is_tried_beside_the_yard", tried), ("a_try_gets_workers_beside_a_full_run", beside)];

/// The folder of workers.
const FAR: &str = "workers";

fn tried(shared: &Shared) {
    let yard = shared.yard("tries", &[good("lib", ""), good("app", "lib"), good("other", "")]);
    yard.build().exits(0).says(&["3 built"]);
    let before = (yard.published(), yard.run(&["status", "--json"]).exits(0).json());
    let changes = shared.path("tries-changes");
    fs::create_dir(&changes).unwrap();
    let change = |fixture: Fixture| changes.join(fixture.write(&changes)).display().to_string();
    // A change of content affects what is built with it, and nothing else.
    let better = change(Fixture { content: "better", version: Some("2.0"), ..good("lib", "") });
    let ended = yard.run(&["try", &better]).exits(0);
    assert!(!ended.stdout.contains("failing"), "{}", ended.stdout);
    ended.says(&["making the try 1", "try 1: 1 package built, 1 unchanged", "repository:"]);
    let of_try = crate::support::Yard { folder: yard.path("tries/1") };
    assert!(of_try.published().iter().any(|line| line.starts_with("Version: 2.0")));
    of_try.run(&["why", "lib"]).exits(0).says(&["changed from 1.0 to 2.0"]);
    // One that does not build, and what it blocks.
    let broken = change(Fixture { build: "false", version: Some("3.0"), ..good("lib", "") });
    yard.run(&["try", "--name", "broken", "--author", "eve", &broken])
        .exits(1)
        .says(&["newly failing: app, lib"]);
    let json = yard.run(&["try", "--name", "json", "--json", &broken]).exits(1);
    assert_eq!(json.json()["newly_failing"], serde_json::json!(["app", "lib"]));
    // A branch of a repository, whose version is that of the yard.
    let dsc = Fixture { content: "branch", ..good("lib", "") }.write(&changes);
    let run = |folder: &Path, program: &str, arguments: &[&str]| {
        let ended = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
        assert!(ended.status.success(), "{program} {arguments:?}: {ended:?}");
    };
    run(&changes, "dpkg-source", &["--extract", &dsc, "repository"]);
    let repository = changes.join("repository");
    run(&repository, "git", &["init", "--quiet", "--initial-branch=wip"]);
    run(&repository, "git", &["add", "--all"]);
    let identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"];
    run(&repository, "git", &[&identity[..], &["commit", "--quiet", "--message=change"]].concat());
    let branch = format!("git:{}#wip", repository.display());
    yard.run(&["try", "--name", "branch", &branch]).exits(0).says(&["try branch: 1 package built"]);
    yard.run(&["try", &branch.replace("#wip", "#gone")])
        .exits(2)
        .says(&["has no branch, tag or commit gone"]);
    yard.run(&["try", "--remove", "branch"]).exits(0);
    // A new package has not failed before.
    let fresh = change(Fixture { build: "false", ..good("fresh", "") });
    yard.run(&["try", "--name", "fresh", &fresh]).exits(1).says(&["newly failing: fresh"]);
    yard.run(&["try", "--remove", "fresh"]).exits(0);
    // The yard is as it was.
    assert_eq!((yard.published(), yard.run(&["status", "--json"]).exits(0).json()), before);
    yard.build().exits(0).says(&["nothing to do"]);
    yard.run(&["try", "--list"]).exits(0).says(&["broken", "by eve"]);
    for (arguments, words) in [
        (&["try", "absent.dsc"][..], "there is no file"),
        (&["try", "hello"], "no change to try"),
        (&["try", "helo=2.10"], "helo cannot be built with this change"),
        (&["try", "hello=1:9.9"], "hello cannot be built with this change"),
        (&["try", "git:sources#gone"], "cannot be built with this change"),
        (&["try", "--", "-lib"], "no change to try"),
        (&["try", "--name", "broken", &better], "there is a try broken already"),
        (&["try", "--name", "../x", &better], "cannot name a try"),
        (&["try", "--remove", "absent"], "there is no try absent"),
        (&["try"], "required"),
    ] {
        yard.run(arguments).exits(2).says(&[words]);
    }
    let config = yard.read("kilnyard.toml");
    yard.configure(&config.replace("# most = 5 ", "most = 1 "));
    yard.run(&["try", "--author", "eve", &better]).exits(2).says(&["eve has 1 try already"]);
    // What was used before a try was removed still counts; the builds of the yard itself do not.
    let spent = config.replace("# core-hours-per-day = 20 ", "core-hours-per-day = 0.000001 ");
    yard.configure(&spent);
    yard.run(&["try", "--remove", "broken"]).exits(0);
    yard.run(&["try", "--author", "eve", &better])
        .exits(2)
        .says(&["eve has used", "core-hours within the last day"]);
    yard.run(&["try", "--author", "ann", "--name", "of-ann", &better]).exits(0);
    // A try that was killed while it was made is in nothing's way, and can be removed.
    fs::create_dir_all(yard.path("tries/2/state")).unwrap();
    yard.configure(&config);
    yard.run(&["try", &better]).exits(0).says(&["making the try 3"]);
    yard.run(&["try", "--remove", "3"]).exits(0);
    yard.run(&["try", "--remove", "2"]).exits(0);
    assert!(!yard.path("tries/2").exists());
    yard.run(&["try", "--remove", "of-ann"]).exits(0).says(&["is removed"]);
    assert!(!yard.path("tries/of-ann").exists() && !yard.path("tries/broken").exists());
    // Their time is over.
    let note = yard.path("tries/1/state/try.json");
    let text = fs::read_to_string(&note).unwrap();
    let (head, _) = text.split_once("\"ends_seconds\":").unwrap();
    fs::write(&note, format!("{head}\"ends_seconds\":1.0}}")).unwrap();
    yard.run(&["clean"]).exits(0);
    assert!(!yard.path("tries/1").exists() && yard.path("tries/json").exists());
    yard.run(&["try", "--remove", "json"]).exits(0);
    assert!(yard.is_clean());
}

fn beside(shared: &Shared) {
    let names = ["one", "two", "three", "four", "five", "six"];
    let set: Vec<Fixture> = names.map(|name| slow(name, "sleep 8")).to_vec();
    let yard = shared.yard("tries-farm", &set);
    let site = Served::start(&yard);
    let far = Far::join(&shared.path(FAR), &yard, &site, "far");
    let mut build = yard.start(&["build", "--no-scan", "--elsewhere"]);
    until("a build has begun", || {
        let status = yard.run(&["status", "--json"]);
        status.code == Some(0) && !status.json()["building"].as_array().is_none_or(Vec::is_empty)
    });
    let changes = shared.path("tries-farm-changes");
    fs::create_dir(&changes).unwrap();
    let change = changes.join(good("new", "").write(&changes)).display().to_string();
    yard.run(&["try", &change]).exits(0).says(&["1 package built"]);
    // It did not wait for the end of the run.
    let status = yard.run(&["status", "--json"]).exits(0).json();
    assert_eq!(status["state"], "running", "{status}\n{}\n{}", served(&yard), far.said());
    build.end().exits(0).says(&["6 built"]);
    let history = crate::support::Yard { folder: yard.path("tries/1") }.run(&["history", "new", "--json"]);
    assert_eq!(history.exits(0).json()[0]["worker"], "far", "{}", far.said());
    yard.run(&["try", "--remove", "1"]).exits(0);
    drop(site);
    assert!(yard.is_clean());
}
