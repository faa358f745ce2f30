//! A second server for the same yard, which continues runs when the first machine is gone. The store is a real database;
//! artifacts are in a folder that both see, or in a real server of object storage.

#[path = "../../../artifacts-object/tests/server/mod.rs"]
mod objects;

use crate::database::server::Server;
use crate::fixtures::{Fixture, Packages, Shared, Trial, good, processes, slow};
use crate::support::farm::{Far, Served, served as served_by};
use crate::support::{self, Yard, until};
use objects::{Kind, Server as Objects};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

pub const CASES: &[Trial] = &[
    ("a_standby_continues_the_run_of_a_killed_machine", killed),
    ("a_machine_that_ends_hands_its_run_over", handed_over),
    ("a_machine_lost_before_it_published_has_another_publish", unpublished),
    ("a_standby_continues_the_run_of_a_target", of_targets),
    ("a_standby_builds_the_targets_that_are_left", targets_left),
    ("workers_near_the_store_check_outputs", checked),
    ("a_machine_that_hangs_loses_its_run_and_says_so", hangs),
];

/// What the trial with object storage lacks.
pub fn missing() -> Option<String> {
    Kind::S3Proxy.find().err()
}

/// The folder of workers.
const FAR: &str = "workers";

/// A yard in a database, and an empty folder for another machine.
struct Two {
    server: Server,
    one: Yard,
    two: Yard,
    /// The URL of the database.
    store: String,
    /// The options with which the second server finds the artifacts.
    artifacts: Vec<String>,
}

impl Two {
    /// Artifacts are in a folder.
    fn with_folder(shared: &Shared, name: &str, set: &[Fixture]) -> Two {
        let artifacts = shared.path(&format!("{name}-artifacts"));
        fs::create_dir(&artifacts).unwrap();
        let artifacts = format!("file://{}", artifacts.display());
        let table = format!("url = \"{artifacts}\"\n");
        Two::new(shared, name, set, &table, vec!["--artifacts".to_owned(), artifacts])
    }

    /// Artifacts are in a bucket.
    fn with_bucket(shared: &Shared, name: &str, set: &[Fixture], objects: &Objects) -> Two {
        objects.bucket("farm");
        let (url, endpoint) = ("s3://farm/one", objects.endpoint());
        let credentials = shared.path(&format!("{name}-credentials")).display().to_string();
        let text = format!("key-id = \"{}\"\nsecret = \"{}\"\n", objects.key_id, objects.secret);
        fs::write(&credentials, text).unwrap();
        let table = format!(
            "url = \"{url}\"\nendpoint = \"{endpoint}\"\nregion = \"us-east-1\"\ncredentials-file = \"{credentials}\"\ndirect = true\n"
        );
        let options = [
            ("--artifacts", url),
            ("--endpoint", &endpoint),
            ("--region", "us-east-1"),
            ("--credentials-file", &credentials),
        ];
        let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]);
        Two::new(shared, name, set, &table, options.collect())
    }

    fn new(shared: &Shared, name: &str, set: &[Fixture], table: &str, artifacts: Vec<String>) -> Two {
        let server = Server::start().unwrap();
        server.database("farm").unwrap();
        let one = shared.yard(name, set);
        // The table `store` is the last one, after `artifacts`.
        let text = one.read("kilnyard.toml");
        let (before, after) = text.split_once("\n[store]").unwrap();
        let url = server.url("farm");
        one.configure(&format!("{before}{table}\n[store]{after}url = \"{url}\"\n"));
        let two = Yard { folder: shared.path(&format!("{name}-standby")) };
        Two { server, one, two, artifacts, store: url }
    }

    /// The options of the second server.
    fn options(&self) -> Vec<&str> {
        let own = ["--standby", "--store", &self.store];
        own.into_iter().chain(self.artifacts.iter().map(String::as_str)).collect()
    }

    /// Starts the second server, and waits until it has the yard.
    fn standby(&self) -> Served {
        let served = Served::start_with(&self.two, "127.0.0.1:0", &self.options());
        until("the standby has the base root", || {
            self.two.names("layers").iter().any(|name| name.ends_with(".manifest"))
        });
        served
    }
}

/// The number of published packages.
fn published(yard: &Yard) -> usize {
    yard.published().iter().filter(|line| line.starts_with("Package: ")).count()
}

/// Whether a process of a yard's server waits for the run of another machine.
fn is_ready(yard: &Yard) -> bool {
    let folder = yard.folder.display().to_string();
    processes().iter().any(|(_, command)| command.contains("--continued") && command.contains(&folder))
}

/// The number of builds that have begun and not ended.
fn building(yard: &Yard) -> usize {
    let status = yard.run(&["status", "--json"]);
    // Before the run, there is nothing to show.
    if status.code == Some(0) { status.json()["building"].as_array().map_or(0, Vec::len) } else { 0 }
}

fn killed(shared: &Shared) {
    let set: Vec<Fixture> = ["one", "two", "three"]
        .map(|name| slow(name, "sleep 12"))
        .into_iter()
        .chain([good("last", "one")])
        .collect();
    let farm = Two::with_folder(shared, "standby-killed", &set);
    let mut served = Served::start(&farm.one);
    until("the yard is sent", || served_by(&farm.one).contains("others can take over"));
    let standby = farm.standby();
    let far = Far::join_without(&shared.path(FAR), &farm.one, &served, "far", &[&farm.two.folder]);
    let build = farm.one.start(&["build", "--no-scan", "--elsewhere"]);
    until("a build has ended, and another one has begun", || {
        farm.one.run(&["history", "one", "--json"]).stdout.contains("built") && building(&farm.one) > 0
    });
    // The machine is gone.
    let gone = Instant::now();
    build.signal(libc::SIGKILL);
    served.signal(libc::SIGKILL);
    until("the run continues", || served_by(&farm.two).contains("continues here"));
    assert!(gone.elapsed() < Duration::from_secs(30), "{:?}", gone.elapsed());
    until("the run has ended", || served_by(&farm.two).contains("has ended"));
    let said = served_by(&farm.two);
    assert!(said.contains("4 built"), "{said}\n{}", far.said());
    // Nothing was built twice: the worker's build went on, and its result arrived at the other server.
    for name in ["one", "two", "three", "last"] {
        let history = farm.two.run(&["history", name, "--json"]).exits(0).json();
        let of = |outcome: &str| {
            let all = history.as_array().unwrap().iter();
            all.filter(|build| build["outcome"] == outcome).cloned().collect::<Vec<_>>()
        };
        assert_eq!(of("built").len(), 1, "{name}: {history}\n{said}\n{}", far.said());
        // The server may have been killed before its worker had the lease: then nothing of it was built.
        let lost = of("lost");
        assert!(
            lost.iter().all(|build| build["stages"] == serde_json::json!([])),
            "{name}: {history}\n{said}"
        );
        assert_eq!(history.as_array().map(Vec::len), Some(1 + lost.len()), "{name}: {history}\n{said}");
    }
    assert_eq!(published(&farm.two), 4);
    // The first machine returns: it receives what happened meanwhile, and is a standby now.
    let again = Served::start(&farm.one);
    until("the first machine follows", || served_by(&farm.one).contains("the yard is here"));
    until("it has the repository", || published(&farm.one) == 4);
    farm.one.run(&["build", "--no-scan"]).exits(0).says(&["nothing to do"]);
    drop((again, standby, far));
    farm.server.end();
    assert!(farm.two.is_clean());
}

fn handed_over(shared: &Shared) {
    let set: Vec<Fixture> = ["one", "two"].map(|name| slow(name, "sleep 12")).to_vec();
    let objects = Objects::start(Kind::S3Proxy).unwrap();
    let farm = Two::with_bucket(shared, "standby-handed", &set, &objects);
    let doctor = farm.one.run(&["doctor"]);
    doctor.says(&["PostgreSQL 1", "database durability", "s3://farm/one", "trials work"]);
    let mut served = Served::start(&farm.one);
    until("the yard is sent", || served_by(&farm.one).contains("others can take over"));
    let standby = farm.standby();
    let far = Far::join_without(&shared.path(FAR), &farm.one, &served, "far", &[&farm.two.folder]);
    let mut build = farm.one.start(&["build", "--no-scan", "--elsewhere"]);
    until("a build has begun", || building(&farm.one) > 0);
    until("the other machine is ready to continue", || is_ready(&farm.two));
    std::thread::sleep(Duration::from_secs(3));
    build.signal(libc::SIGTERM);
    build.end().exits(0).says(&["another machine continues the run"]);
    served.signal(libc::SIGTERM);
    until("the run has ended", || served_by(&farm.two).contains("has ended"));
    let said = served_by(&farm.two);
    assert!(said.contains("has handed it over") && said.contains("2 built"), "{said}\n{}", far.said());
    until("no process waits for a run that is over", || !is_ready(&farm.two));
    for name in ["one", "two"] {
        let history = farm.two.run(&["history", name, "--json"]).exits(0).json();
        assert_eq!(history.as_array().map(Vec::len), Some(1), "{name}: {history}\n{said}\n{}", far.said());
    }
    // Everything is where both machines share it.
    farm.two.run(&["artifacts", "check"]).exits(0).says(&["2 outputs intact"]);
    farm.two.run(&["artifacts", "clean"]).exits(0).says(&["0 artifacts of", "s3://farm/one"]);
    let backup = farm.two.path("backup.db").display().to_string();
    farm.two.run(&["store", "backup", &backup]).exits(0).says(&["all rows of"]);
    farm.two.run(&["store", "backup", &backup]).exits(2).says(&["exists"]);
    drop(standby);
    // The database is lost, and an output is damaged. What the backup has is there again.
    let published = farm.two.published();
    damage(&objects, &published, "two");
    let text = farm.two.read("kilnyard.toml");
    farm.two.configure(&text.replace("[store]", "[store]\nschema = \"restored\""));
    farm.two.run(&["store", "restore", "absent.db"]).exits(2).says(&["no backup"]);
    let restored = farm.two.run(&["store", "restore", &backup]).exits(3);
    restored.says(&["all rows of", "1 output intact", "two_1.0", "damaged, and removed"]);
    farm.two.run(&["store", "restore", &backup]).exits(3).says(&["runs or outputs of its own"]);
    let history = farm.two.run(&["history", "two", "--json"]).exits(0).json();
    assert_eq!(history.as_array().map(Vec::len), Some(1), "{history}");
    farm.two.run(&["build", "--no-scan"]).exits(0).says(&["1 built", "two"]);
    farm.two.run(&["artifacts", "check"]).exits(0).says(&["2 outputs intact"]);
    let builds = farm.two.run(&["store", "check", "--json"]).exits(0).json();
    assert!(builds["highest_build"].as_u64().unwrap() > 10_000, "a number is used twice: {builds}");
    drop(far);
    farm.server.end();
    assert!(farm.two.is_clean());
}

/// The machine is gone between the end of its run and the publication.
fn unpublished(shared: &Shared) {
    let farm = Two::with_folder(shared, "standby-unpublished", &[good("one", ""), slow("two", "sleep 8")]);
    farm.one.run(&["build", "--no-scan", "one"]).exits(0);
    let mut served = Served::start(&farm.one);
    until("the yard is sent", || served_by(&farm.one).contains("others can take over"));
    let standby = farm.standby();
    until("it has the repository", || published(&farm.two) == 1);
    let build = farm.one.start(&["build", "--no-scan"]);
    until("the build has begun", || building(&farm.one) > 0);
    // To publish, the current generation is read: this waits for a writer.
    let release = fs::canonicalize(farm.one.path("repository/dists/bookworm/Release")).unwrap();
    fs::remove_file(&release).unwrap();
    assert!(Command::new("mkfifo").arg(&release).status().unwrap().success());
    until("the run has ended", || {
        let status = farm.two.run(&["status", "--json"]).json();
        status["run"] == 2 && !status["ended_seconds"].is_null()
    });
    assert!(!served_by(&farm.two).contains("published here"), "the machine that built it is there");
    build.signal(libc::SIGKILL);
    served.signal(libc::SIGKILL);
    until("another machine publishes", || {
        served_by(&farm.two).contains("publication that was continued here has ended")
    });
    assert_eq!(published(&farm.two), 2, "{}", served_by(&farm.two));
    // Once.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(served_by(&farm.two).matches("is published here").count(), 1, "{}", served_by(&farm.two));
    drop(standby);
    farm.server.end();
    assert!(farm.two.is_clean());
}

/// A yard with two targets on two machines.
fn with_targets(shared: &Shared, name: &str) -> Two {
    let farm = Two::with_folder(shared, name, &[slow("one", "sleep 20"), good("two", "one")]);
    let one = &farm.one;
    let config = one.read("kilnyard.toml");
    one.configure(&format!("{config}\n[[target]]\n\n[[target]]\nrelease = \"trixie\"\n"));
    // The first target takes the base root that the trials share.
    let first = one.path("targets/bookworm-amd64");
    fs::create_dir_all(first.join("state")).unwrap();
    fs::copy(one.path("state/range"), first.join("state/range")).unwrap();
    support::copy("-al", &one.path("layers"), &first);
    support::copy("-a", &one.path("index"), &first);
    farm
}

/// The machine is gone while it builds the first of two targets.
fn targets_left(shared: &Shared) {
    let farm = with_targets(shared, "standby-left");
    let mut served = Served::start(&farm.one);
    until("the yard is sent", || served_by(&farm.one).contains("others can take over"));
    let standby = Served::start_with(&farm.two, "127.0.0.1:0", &farm.options());
    let build = farm.one.start(&["build"]);
    until("the other machine is ready to continue", || is_ready(&farm.two));
    build.signal(libc::SIGKILL);
    served.signal(libc::SIGKILL);
    until("both targets are built", || served_by(&farm.two).contains("has ended"));
    let said = served_by(&farm.two);
    for release in ["bookworm", "trixie"] {
        let packages = farm.two.read(&format!("repository/dists/{release}/main/binary-amd64/Packages"));
        assert!(packages.contains("Package: two\n"), "{release}: {packages}\n{said}");
    }
    drop(standby);
    farm.server.end();
    assert!(farm.two.is_clean());
}

/// The machine is gone while it builds the second of two targets.
fn of_targets(shared: &Shared) {
    let farm = with_targets(shared, "standby-targets");
    let one = &farm.one;
    let mut served = Served::start(one);
    until("the yard is sent", || served_by(one).contains("others can take over"));
    let standby = Served::start_with(&farm.two, "127.0.0.1:0", &farm.options());
    let build = one.start(&["build"]);
    // One after another, since each may take a while.
    until("the first target is published", || one.path("repository/dists/bookworm").exists());
    until("the second target has its base root", || {
        one.names("targets/trixie-amd64/layers").iter().any(|name| name.ends_with(".manifest"))
    });
    until("the second target is built", || {
        let status = one.run(&["status", "--target", "trixie", "--json"]);
        status.code == Some(0) && !status.json()["building"].as_array().is_none_or(Vec::is_empty)
    });
    until("the standby has the base root of that target", || {
        farm.two.names("targets/trixie-amd64/layers").iter().any(|name| name.ends_with(".manifest"))
    });
    build.signal(libc::SIGKILL);
    served.signal(libc::SIGKILL);
    until("the run has ended", || served_by(&farm.two).contains("has ended"));
    let said = served_by(&farm.two);
    assert!(said.contains("continues here") && said.contains("nothing to do"), "{said}");
    assert!(farm.two.path("repository/dists/bookworm").exists(), "{said}");
    let packages = farm.two.read("repository/dists/trixie/main/binary-amd64/Packages");
    assert!(packages.contains("Package: one\n") && packages.contains("Package: two\n"), "{packages}\n{said}");
    let built = |target: &str| {
        let history = farm.two.run(&["history", "one", "--target", target, "--json"]).exits(0).json();
        history.as_array().unwrap().iter().filter(|build| build["outcome"] == "built").count()
    };
    assert_eq!((built("bookworm"), built("trixie")), (1, 1), "{said}");
    // The log of a build that only the lost machine had a part in.
    assert!(!farm.two.path("targets/bookworm-amd64/logs/1").exists());
    farm.two.run(&["log", "one", "--target", "bookworm"]).exits(0).says(&["sleep 20"]);
    drop(standby);
    farm.server.end();
    assert!(farm.two.is_clean());
}

/// Damages an output in the bucket.
fn damage(objects: &Objects, published: &[String], package: &str) {
    let package = format!("Package: {package}");
    let of_package = published.iter().skip_while(|line| **line != package);
    let hash = of_package.clone().find_map(|line| line.strip_prefix("SHA256: "));
    let damaged = objects.files("farm", hash.expect("it is published")).pop();
    fs::write(damaged.expect("the output is in the bucket"), "damaged").unwrap();
}

fn checked(shared: &Shared) {
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    let set: Vec<Fixture> = names.map(|name| good(name, "")).to_vec();
    let objects = Objects::start(Kind::S3Proxy).unwrap();
    let farm = Two::with_bucket(shared, "standby-checked", &set, &objects);
    farm.one.run(&["build", "--no-scan"]).exits(0).says(&["8 built"]);
    let served = Served::start(&farm.one);
    let far = Far::join(&shared.path(FAR), &farm.one, &served, "far");
    let check = |options: &[&str]| farm.one.run(&[&["artifacts", "check", "--json"], options].concat());
    let found = check(&[]).exits(0).json();
    assert_eq!(found["intact"], 8, "{found}");
    assert!(found["read_elsewhere"].as_u64() > Some(0), "{found}\n{}", far.said());
    assert_eq!(check(&["--here"]).exits(0).json()["read_elsewhere"], 0);
    // A worker finds what this machine has a copy of, and reads past that copy.
    damage(&objects, &farm.one.published(), "three");
    let build = farm.one.run(&["build", "--no-scan", "--check-outputs"]).exits(0);
    build.says(&["8 outputs checked", "0 missing, 1 damaged", "three_1.0", "is built again", "1 built"]);
    let found = check(&[]).exits(0).json();
    assert_eq!((&found["intact"], &found["damaged"]), (&8.into(), &serde_json::json!([])), "{found}");
    // Those of another role are not asked.
    drop(far);
    farm.one.run(&["workers", "remove", "far"]).exits(0);
    assert_eq!(check(&[]).exits(0).json()["read_elsewhere"], 0);
    drop(served);
    farm.server.end();
    assert!(farm.one.is_clean());
}

fn hangs(shared: &Shared) {
    let set: Vec<Fixture> = ["one", "two", "three"].map(|name| slow(name, "sleep 15")).to_vec();
    let farm = Two::with_folder(shared, "standby-hangs", &set);
    let served = Served::start(&farm.one);
    until("the yard is sent", || served_by(&farm.one).contains("others can take over"));
    let standby = farm.standby();
    let far = Far::join_without(&shared.path(FAR), &farm.one, &served, "far", &[&farm.two.folder]);
    let mut build = farm.one.start(&["build", "--no-scan", "--elsewhere"]);
    until("a build has begun", || building(&farm.one) > 0);
    // Its server still answers, but the run does not.
    build.signal(libc::SIGSTOP);
    // Until then, it could still show itself, and remain the leader.
    until("the run continues", || served_by(&farm.two).contains("resuming run"));
    build.signal(libc::SIGCONT);
    // What it writes comes too late.
    build.end().exits(3).says(&["another process is the leader"]);
    until("the run has ended", || served_by(&farm.two).contains("has ended"));
    let said = served_by(&farm.two);
    assert!(said.contains("3 built"), "{said}\n{}", far.said());
    for name in ["one", "two", "three"] {
        let history = farm.two.run(&["history", name, "--json"]).exits(0).json();
        assert_eq!(history.as_array().map(Vec::len), Some(1), "{name}: {history}\n{said}\n{}", far.said());
    }
    // The first server refers workers to the second, and follows it.
    until("the first server follows", || served_by(&farm.one).contains("the yard is here"));
    drop((served, standby, far));
    farm.server.end();
    assert!(farm.two.is_clean());
}
