//! Workers on other machines: processes in a mount namespace without the yard, which have only its address.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::farm::{Far, Served};
use crate::support::{Ended, Yard, until};
use kilnyard_model::order::Stage;
use kilnyard_model::result::BuildOutcome;
use kilnyard_store::{BuildRow, Store};
use kilnyard_store_sqlite::Sqlite;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

pub const CASES: &[Trial] = &[
    ("workers_on_other_machines_build_too", build_too),
    ("a_busy_worker_makes_the_root_of_its_next_build", prepared_ahead),
    ("builds_of_killed_workers_and_doors_are_repeated", killed),
    ("a_resumed_run_takes_over_builds_of_other_machines", taken_over),
    ("pools_and_roles_decide_which_worker_builds_and_tests", pools),
    ("a_worker_that_cannot_join_says_why", cannot_join),
    ("benchmarks_of_a_farm_do_not_touch_their_yard", benchmarks),
];

/// The folder of workers.
const FAR: &str = "workers";

const TARGET: &str = "debian/linux/bookworm/amd64";

/// The builds of the last run that ended with outputs, and the others.
fn builds(yard: &Yard) -> (Vec<BuildRow>, Vec<BuildRow>) {
    let store = Sqlite::open_to_read(&yard.path("state/kilnyard.db"), &TARGET.parse().unwrap()).unwrap();
    let run = store.last_run().unwrap().unwrap().number;
    store.builds_in(run).unwrap().into_iter().partition(|build| build.outcome == BuildOutcome::Built)
}

/// The worker of each build with outputs.
fn performers(yard: &Yard) -> Vec<String> {
    builds(yard).0.into_iter().filter_map(|build| build.worker).collect()
}

fn is_by_far(build: &BuildRow) -> bool {
    build.worker.as_deref() == Some("far")
}

const NAMES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

fn set(pause: &'static str) -> Vec<Fixture> {
    NAMES.map(|name| slow(name, pause)).to_vec()
}

fn build_too(shared: &Shared) {
    // The last package needs the first, wherever that was built.
    let set: Vec<Fixture> = set("sleep 3").into_iter().chain([good("after", "one, two, three")]).collect();
    let yard = shared.yard("farm", &set);
    let served = Served::start(&yard);
    let far = Far::join(&shared.path(FAR), &yard, &served, "far");
    yard.run(&["build", "--no-scan", "--slots", "1"]).exits(0).says(&["7 built"]);
    let workers = performers(&yard);
    let by_far = workers.iter().filter(|worker| *worker == "far").count();
    assert!((1..7).contains(&by_far), "{workers:?}: {}", far.said());
    for name in NAMES {
        yard.run(&["log", name, "build"]).exits(0).says(&["dpkg-buildpackage"]);
    }
    assert!(yard.is_clean());
    // The worker has what it was assigned, and no part of the yard.
    assert!(!far.folder.join("worker/state/kilnyard.db").exists());
    assert_eq!(yard.published().iter().filter(|line| line.starts_with("Package: ")).count(), 7);
    yard.build().exits(0).says(&["nothing to do"]);
    // Drained, it gets nothing.
    yard.run(&["workers", "drain", "far"]).exits(0).says(&["no more builds"]);
    yard.run(&["workers"]).exits(0).says(&["drained", "1 core"]);
    yard.run(&["workers", "resume", "far"]).exits(0).says(&["gets builds again"]);
    // Revoked, it cannot return, and what it made is built again, with what was built with that.
    let made: BTreeSet<String> =
        builds(&yard).0.into_iter().filter(is_by_far).map(|build| build.package).collect();
    yard.run(&["workers", "revoke", "far"]).exits(0).says(&["--rebuild"]);
    until("the worker ends", || far.said().contains("does not accept this worker"));
    yard.run(&["plan"]).exits(0).says(&["0 packages to build"]);
    yard.run(&["workers", "revoke", "far", "--rebuild"]).exits(0).says(&["rebuilds"]);
    let planned = yard.run(&["plan", "--json"]).exits(0).json();
    let due = planned["packages"].as_array().unwrap().iter().filter(|row| row["state"] != "up-to-date");
    let due: BTreeSet<String> = due.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    assert!(made.is_subset(&due), "{made:?} {due:?}");
    let needs_it = made.iter().any(|name| ["one", "two", "three"].contains(&name.as_str()));
    assert_eq!(due.contains("after"), needs_it || made.contains("after"), "{made:?} {due:?}");
    yard.run(&["plan"]).exits(0).says(&["far, which was revoked, made it"]);
    yard.build().exits(0);
    yard.run(&["why", made.first().unwrap()]).exits(0).says(&["far, which was revoked, made it"]);
    assert!(performers(&yard).iter().all(|worker| worker != "far"));
    yard.build().exits(0).says(&["nothing to do"]);
    yard.run(&["workers", "revoke", "absent"]).exits(2).says(&["no worker absent"]);
}

fn pools(shared: &Shared) {
    let yard = shared.yard("farm-pools", &[good("lib", ""), good("app", "lib"), good("leaf", "")]);
    let template = yard.read("kilnyard.toml");
    let set_farm = |text: &str| {
        let farm = format!("{text}\n[repository]");
        fs::write(
            yard.path("kilnyard.toml"),
            template.replace("[farm]", "# farm").replace("[repository]", &farm),
        )
        .unwrap();
    };
    set_farm("[farm.pool.lab]\napprove = \"by-hand\"");
    let served = Served::start(&yard);
    yard.run(&["workers", "token", "--pool", "lba"]).exits(2).says(&["no pool lba", "default, lab"]);
    yard.run(&["workers", "token", "--roles", "cook"]).exits(2).says(&["scan, check, build or test"]);
    let far = Far::join_with(&shared.path(FAR), &yard, &served, "far", &["--pool", "lab"]);
    yard.run(&["workers"]).exits(0).says(&["not approved", "pool lab"]);
    yard.run(&["workers", "resume", "far"]).exits(2).says(&["never approved", "workers approve far"]);
    yard.run(&["workers", "approve", "far"]).exits(0).says(&["gets builds"]);
    yard.run(&["build", "--no-scan", "--elsewhere"]).exits(0).says(&["3 built"]);
    assert_eq!(performers(&yard), ["far"; 3], "{}", far.said());
    // It signed what it built.
    yard.run(&["provenance", "app"]).exits(0).says(&[
        "built by far of pool lab",
        "lib_",
        "signature is valid",
    ]);
    let envelope = yard.run(&["provenance", "lib", "--json"]).exits(0).json();
    assert_eq!(envelope["payloadType"], "application/vnd.in-toto+json");
    yard.run(&["provenance", "absent"]).exits(2);
    // Without trust, what others need is built again, and what none need is not.
    set_farm("[farm]\nverify = 1.0\n[farm.pool.lab]\ntrusted = false");
    let plan = yard.run(&["plan", "--all"]).exits(0);
    plan.says(&["far, whose pool is not trusted, made it"]);
    yard.run(&["build", "--no-scan"]).exits(0).says(&["1 built"]);
    yard.run(&["provenance", "lib"]).exits(0).says(&["of pool yard"]);
    let (built, others) = builds(&yard);
    let verified: Vec<&BuildRow> = others.iter().filter(|build| build.package == "lib").collect();
    assert!(built.iter().all(|build| !is_by_far(build)), "{built:?}");
    assert_eq!((verified.len(), &verified[0].outcome), (1, &BuildOutcome::Unchanged), "{others:?}");
    assert!(is_by_far(verified[0]));
    // What one worker built, another tests.
    yard.run(&["workers", "drain", "far"]).exits(0);
    set_farm("");
    let builder = Far::join_with(&shared.path(FAR), &yard, &served, "builder", &["--roles", "build"]);
    // The server, as if it were a proxy in front of itself: its file has a certificate and a key.
    let certificate = yard.path("state/farm/door.pem").display().to_string();
    let options = ["--roles", "test", "--certificate", &certificate];
    let tester = Far::join_with(&shared.path(FAR), &yard, &served, "tester", &options);
    yard.run(&["workers"]).exits(0).says(&["pool default; build", "pool default; test"]);
    yard.run(&["build", "--no-scan", "--elsewhere", "--force", "leaf"]).exits(0).says(&["leaf"]);
    let (built, others) = builds(&yard);
    let all: Vec<&BuildRow> = built.iter().chain(&others).collect();
    assert_eq!(all.len(), 1, "{all:?} {} {}", builder.said(), tester.said());
    assert_eq!(all[0].worker.as_deref(), Some("builder"));
    assert_eq!(all[0].stages.iter().filter(|stage| stage.stage == Stage::Test).count(), 1);
    yard.run(&["log", "leaf", "test"]).exits(0);
    assert!(tester.folder.join("worker/logs").exists(), "{}", tester.said());
    drop(served);
    assert!(yard.is_clean());
}

fn benchmarks(shared: &Shared) {
    let yard = shared.yard("farm-benchmarks", &[good("lib", ""), good("app", "lib")]);
    // The benchmarks have yards of their own, to which relative paths do not lead.
    let sources = format!("\"{}/sources/", yard.folder.display());
    let config = yard.read("kilnyard.toml").replace("\"sources/", &sources);
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    let before = (yard.names("index"), yard.names("layers"));
    let measured = |arguments: &[&str]| {
        let report = yard.run(&[&["bench", "--json"], arguments].concat()).exits(0).json();
        assert!(report["is_met"].is_boolean(), "{report}");
        report
    };
    let positive = |figure: &Value| figure["median"].as_f64().is_some_and(|value| value > 0.0);
    let logs = measured(&["farm-logs", "--workers", "3", "--seconds", "3"]);
    assert!(positive(&logs["figures"]["late_p50_seconds"]), "{logs}");
    assert!(positive(&logs["figures"]["stored_bytes_per_second"]), "{logs}");
    let cost = measured(&["farm-cost", "--pairs", "1"]);
    assert_eq!(cost["facts"]["packages"], serde_json::json!(["app", "lib"]));
    assert!(positive(&cost["figures"]["cpu_ratio"]), "{cost}");
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        let split = measured(&["farm-split", "--pairs", "1"]);
        assert!(positive(&split["figures"]["quotient"]), "{split}");
    }
    // Their own yards are gone, and this one is unchanged.
    assert_eq!((yard.names("index"), yard.names("layers")), before);
    assert!(yard.names("").iter().all(|name| !name.starts_with(".bench-")), "{:?}", yard.names(""));
    assert!(yard.is_clean());
}

/// The names of the logs of a package on a worker.
fn logs_of(far: &Far, package: &str) -> Vec<String> {
    let runs = fs::read_dir(far.folder.join("worker/logs")).into_iter().flatten().flatten();
    let logs = runs.flat_map(|run| fs::read_dir(run.path().join(package)).into_iter().flatten().flatten());
    let names = logs.map(|log| log.file_name().into_string().unwrap());
    // Without the number of the build, and the extension of compression.
    names.map(|name| name.trim_start_matches(char::is_numeric).trim_end_matches(".zst").to_owned()).collect()
}

fn prepared_ahead(shared: &Shared) {
    let long = Fixture { needs: "lib, other, third", ..slow("long", "sleep 30") };
    let libraries = ["lib", "other", "third"].map(|name| good(name, ""));
    let set: Vec<Fixture> = libraries.into_iter().chain([long, good("app", "lib, other")]).collect();
    let yard = shared.yard("farm-ahead", &set);
    yard.configure(&(yard.read("kilnyard.toml") + "\n[package.long]\npriority = 1\n"));
    let served = Served::start(&yard);
    let far = Far::join(&shared.path(FAR), &yard, &served, "far");
    let messages = yard.path("messages").display().to_string();
    let mut build =
        yard.start(&["build", "--no-scan", "--elsewhere", "--slots", "1", "--messages", &messages]);
    until("the root of app is made", || logs_of(&far, "app").contains(&"-ahead-depends.log".to_owned()));
    assert!(logs_of(&far, "app").iter().all(|log| log.starts_with("-ahead-")), "{:?}", logs_of(&far, "app"));
    build.end().exits(0).says(&["5 built"]);
    // It began with that root, as it was announced.
    yard.run(&["log", "app", "depends"]).exits(0).says(&["2 of 2 dependencies were installed together"]);
    let sent = yard.read("messages");
    let sent: Vec<Value> = sent.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let attempts_in = |kind: &str| -> Vec<String> {
        let leases = sent.iter().map(|line| &line["message"]["body"][kind]["lease"]);
        let of_app = leases.filter(|lease| lease["order"]["package"] == "app");
        of_app.map(|lease| lease["attempt"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(attempts_in("announce"), attempts_in("grant"));
    assert_eq!(attempts_in("grant").len(), 1);
    drop((far, served));
    assert!(yard.is_clean());
}

fn killed(shared: &Shared) {
    let yard = shared.yard("farm-killed", &set("sleep 4"));
    let mut served = Served::start(&yard);
    let mut far = Far::join(&shared.path(FAR), &yard, &served, "far");
    let mut build = yard.start(&["build", "--no-scan", "--slots", "1"]);
    let has_build = || {
        let status = yard.run(&["workers", "--json"]).exits(0).json();
        status["workers"][0]["builds"].as_u64().is_some_and(|builds| builds > 0)
    };
    until("the worker has a build", has_build);
    far.signal(libc::SIGKILL);
    // The same worker, started again, drops what it had.
    far.start(&yard, &[]);
    until("the worker has a build again", has_build);
    let before = performers(&yard);
    served.signal(libc::SIGKILL);
    // At the same address, with the same key; run and worker find it again.
    let served = Served::start_at(&yard, served.url.strip_prefix("https://").unwrap());
    build.end().exits(0).says(&["6 built"]);
    let later = &performers(&yard)[before.len()..];
    assert!(later.iter().any(|worker| worker == "far"), "{before:?} {later:?}");
    let others = builds(&yard).1;
    assert_eq!(others.len(), 1, "only the build of the killed worker is repeated: {others:?}");
    drop(served);
    assert!(yard.is_clean());
    assert_eq!(performers(&yard).len(), 6);
    yard.build().exits(0).says(&["nothing to do"]);
}

fn taken_over(shared: &Shared) {
    let pause = "echo it is running; sleep 20";
    let yard = shared.yard("farm-taken-over", &[slow("one", pause), slow("two", pause)]);
    let served = Served::start(&yard);
    let far = Far::join(&shared.path(FAR), &yard, &served, "far");
    let mut build = yard.start(&["build", "--no-scan", "--slots", "1"]);
    // The log of a build on another machine arrives while it is written.
    let is_running = |name: &str| {
        let log = yard.run(&["log", name, "build"]);
        log.code == Some(0) && log.stdout.contains("it is running")
    };
    until("both builds run", || is_running("one") && is_running("two"));
    let following = yard.command(&["log", "--follow", "one"]).stdout(Stdio::piped()).spawn().unwrap();
    build.signal(libc::SIGKILL);
    assert_eq!(build.end().code, None);
    Ended::from(following.wait_with_output().unwrap()).exits(0).says(&["it is running"]);
    let resumed = yard.run(&["build", "--no-scan", "--slots", "1"]).exits(0).says(&["2 built"]);
    // One is taken over with its reason, the other is repeated.
    resumed.says(&[": first build", ": no outputs yet: build "]);
    let (built, others) = builds(&yard);
    let by_far: Vec<&BuildRow> =
        built.iter().chain(&others).filter(|build| build.worker.as_deref() == Some("far")).collect();
    assert_eq!(by_far.len(), 1, "the build of the other machine is not repeated: {by_far:?} {}", far.said());
    assert_eq!(by_far[0].outcome, BuildOutcome::Built);
    assert_eq!((built.len(), others.len()), (2, 1), "{others:?}");
    assert!(
        by_far[0].stages.iter().any(|stage| stage.log.as_ref().is_some_and(|log| log.ends_with("build.log")))
    );
    drop(served);
    assert!(yard.is_clean());
    yard.build().exits(0).says(&["nothing to do"]);
}

fn cannot_join(shared: &Shared) {
    let yard = shared.yard("farm-refused", &[]);
    let served = Served::start(&yard);
    yard.run(&["serve"]).exits(2).says(&["runs in this yard already"]);
    let path = |name: &str| shared.path(name).display().to_string();
    let write = |name: &str, text: &str| fs::write(shared.path(name), text).unwrap();
    let token = yard.run(&["workers", "token"]).exits(0).stdout;
    write("farm-token", &token);
    write("farm-garbage", "not a token");
    let mut other = token.trim().to_owned();
    other.replace_range("kilnyard-join-1.".len().."kilnyard-join-1.".len() + 4, "0000");
    write("farm-other", &other);
    let folder = path("refused");
    let join = |url: &str, token: &str, more: &[&str]| {
        let token = path(token);
        yard.run(&[&["worker", "--folder", &folder, "--join", url, "--token-file", &token], more].concat())
    };
    yard.run(&["worker", "--folder", &folder]).exits(2).says(&["has not joined a yard", "kilnyard serve"]);
    join(&served.url, "farm-garbage", &[]).exits(2).says(&["begins with kilnyard-join-1"]);
    join(&served.url, "farm-other", &["--name", "w"]).exits(2).says(&["another certificate"]);
    join("http://127.0.0.1:1", "farm-token", &[]).exits(2).says(&["https://"]);
    join("https://127.0.0.1:1", "farm-token", &["--name", "w"])
        .exits(3)
        .says(&["no connection", "kilnyard serve"]);
    // The name of the yard's machine, which is this one.
    join(&served.url, "farm-token", &[]).exits(2).says(&["the yard's own machine", "--name"]);
    let garbage = path("farm-garbage");
    yard.run(&["workers", "token", "--certificate", &garbage]).exits(2).says(&["read the certificate"]);
    yard.run(&["workers", "remove", "absent"]).exits(2).says(&["no worker absent"]);
    yard.run(&["workers"]).exits(0).says(&["listening at", "no worker has joined"]);
    drop(served);
    yard.run(&["workers"]).exits(0).says(&["no door is open", " serve"]);
    assert!(!Path::new(&folder).join("state/membership.json").exists());
}
