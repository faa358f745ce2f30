//! A second server for the same yard, which continues runs when the first machine is gone. The store is a real database;
//! artifacts are in a folder that both see.

use crate::database::server::Server;
use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::farm::{Far, Served, served as served_by};
use crate::support::{Yard, until};
use std::fs;
use std::time::{Duration, Instant};

pub const CASES: &[Trial] = &[
    ("a_standby_continues_the_run_of_a_killed_machine", killed),
    ("a_machine_that_ends_hands_its_run_over", handed_over),
];

/// The folder of workers.
const FAR: &str = "workers";

/// A yard in a database, and an empty folder for another machine.
struct Two {
    server: Server,
    one: Yard,
    two: Yard,
    artifacts: String,
}

impl Two {
    fn new(shared: &Shared, name: &str, set: &[Fixture]) -> Two {
        let server = Server::start().unwrap();
        server.database("farm").unwrap();
        let artifacts = shared.path(&format!("{name}-artifacts"));
        fs::create_dir(&artifacts).unwrap();
        let artifacts = format!("file://{}", artifacts.display());
        let one = shared.yard(name, set);
        // The table `store` is the last one, after `artifacts`.
        let text = one.read("kilnyard.toml");
        let (before, after) = text.split_once("\n[store]").unwrap();
        let url = server.url("farm");
        one.configure(&format!("{before}url = \"{artifacts}\"\n\n[store]{after}url = \"{url}\"\n"));
        let two = Yard { folder: shared.path(&format!("{name}-standby")) };
        Two { server, one, two, artifacts }
    }

    /// Starts the second server, and waits until it has the yard.
    fn standby(&self) -> Served {
        let url = self.server.url("farm");
        let options = ["--standby", "--store", &url, "--artifacts", &self.artifacts];
        let served = Served::start_with(&self.two, "127.0.0.1:0", &options);
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

/// The number of builds that have begun and not ended.
fn building(yard: &Yard) -> usize {
    let status = yard.run(&["status", "--json"]).exits(0).json();
    status["building"].as_array().map_or(0, Vec::len)
}

fn killed(shared: &Shared) {
    let set: Vec<Fixture> = ["one", "two", "three"]
        .map(|name| slow(name, "sleep 12"))
        .into_iter()
        .chain([good("last", "one")])
        .collect();
    let farm = Two::new(shared, "standby-killed", &set);
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
        assert_eq!(history.as_array().map(Vec::len), Some(1), "{name}: {history}\n{said}\n{}", far.said());
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
    let farm = Two::new(shared, "standby-handed", &set);
    let mut served = Served::start(&farm.one);
    until("the yard is sent", || served_by(&farm.one).contains("others can take over"));
    let standby = farm.standby();
    let far = Far::join_without(&shared.path(FAR), &farm.one, &served, "far", &[&farm.two.folder]);
    let mut build = farm.one.start(&["build", "--no-scan", "--elsewhere"]);
    until("a build has begun", || building(&farm.one) > 0);
    std::thread::sleep(Duration::from_secs(3));
    build.signal(libc::SIGTERM);
    build.end().exits(0).says(&["another machine continues the run"]);
    served.signal(libc::SIGTERM);
    until("the run has ended", || served_by(&farm.two).contains("has ended"));
    let said = served_by(&farm.two);
    assert!(said.contains("has handed it over") && said.contains("2 built"), "{said}\n{}", far.said());
    for name in ["one", "two"] {
        let history = farm.two.run(&["history", name, "--json"]).exits(0).json();
        assert_eq!(history.as_array().map(Vec::len), Some(1), "{name}: {history}\n{said}\n{}", far.said());
    }
    drop((standby, far));
    farm.server.end();
    assert!(farm.two.is_clean());
}
