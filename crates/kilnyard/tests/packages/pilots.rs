//! Pools whose workers are started on demand, by a program that plays the manager of a site's machines.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::farm::Served;
use crate::support::{self, Yard, until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub const CASES: &[Trial] = &[
    ("workers_are_started_for_work_and_given_back", on_demand),
    ("a_worker_whose_machine_is_taken_away_is_replaced_at_once", reclaimed),
];

/// Starts a process for each pilot in a folder of its own, and knows it by that. With a file `down`, it fails.
const MANAGER: &str = r#"#!/usr/bin/python3
import base64, json, os, shutil, signal, subprocess, sys
top = os.path.dirname(os.path.abspath(__file__))
asked, verb = json.load(sys.stdin), sys.argv[1]
if os.path.exists(f"{top}/down"):
    sys.exit("the manager is down for maintenance")
def pid_of(name):
    try:
        with open(f"{top}/pilots/{name}/pid") as file:
            pid = int(file.read())
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return None if file.read().split(") ")[1].startswith("Z") else pid
    except (OSError, ValueError):
        return None
if verb == "start":
    folder = f"{top}/pilots/{asked['name']}"
    os.makedirs(f"{folder}/files", mode=0o700)
    for name, content in asked["files"].items():
        with open(f"{folder}/files/{name}", "wb") as file:
            file.write(base64.b64decode(content))
    log = open(f"{folder}/log", "w")
    environment = {**os.environ, **asked["environment"]}
    process = subprocess.Popen(asked["command"], cwd=folder, env=environment, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with open(f"{folder}/pid", "w") as file:
        file.write(str(process.pid))
elif verb == "list":
    names = sorted(os.listdir(f"{top}/pilots"))
    there = [name for name in names if name.startswith(asked["prefix"] + "-") and pid_of(name)]
    print(json.dumps({"pilots": [{"name": name, "state": "running"} for name in there]}))
elif verb == "stop":
    if pid := pid_of(asked["name"]):
        os.kill(pid, signal.SIGTERM)
elif verb == "describe":
    print(json.dumps({"manager": "processes", "version": "1", "places": [], "notes": []}))
"#;

/// The manager, and what it started.
struct Site {
    folder: PathBuf,
}

impl Site {
    fn new(folder: PathBuf) -> Site {
        fs::create_dir_all(folder.join("pilots")).unwrap();
        fs::write(folder.join("manager"), MANAGER).unwrap();
        fs::set_permissions(folder.join("manager"), fs::Permissions::from_mode(0o755)).unwrap();
        Site { folder }
    }

    fn pilots(&self) -> Vec<String> {
        Yard { folder: self.folder.clone() }.names("pilots")
    }

    fn pid(&self, name: &str) -> i32 {
        fs::read_to_string(self.folder.join(format!("pilots/{name}/pid"))).unwrap().parse().unwrap()
    }

    /// Sends SIGTERM to a pilot.
    fn end(&self, name: &str) {
        let _ = std::process::Command::new("kill").args(["-TERM", &self.pid(name).to_string()]).output();
    }

    fn is_there(&self, name: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid(name)));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    }

    fn said(&self) -> String {
        let log = |name: &String| fs::read_to_string(self.folder.join(format!("pilots/{name}/log")));
        self.pilots().iter().filter_map(|name| log(name).ok()).collect()
    }

    /// Removes the layers of the workers, which belong to the ids of roots.
    fn clean(&self) {
        for name in self.pilots() {
            Yard { folder: self.folder.join(format!("pilots/{name}/work")) }.run(&["clean", "--base"]);
        }
    }
}

fn configured(yard: &Yard, site: &Path, least: u32, most: u32) {
    let text = yard.read("kilnyard.toml");
    let program = support::command().get_program().display().to_string();
    let manager = site.join("manager").display().to_string();
    yard.configure(&format!(
        "{text}\n[farm.pool.lab.demand]\ndriver = \"command\"\nleast = {least}\nmost = {most}\nidle-seconds = 4\ncores = 1\nmemory = \"2G\"\nprogram = [\"{program}\"]\n[farm.pool.lab.demand.command]\nprogram = [\"{manager}\"]\n"
    ));
}

/// The figures of the pool.
fn pool(yard: &Yard) -> Value {
    yard.run(&["pools", "--json"]).exits(0).json()[0].clone()
}

fn on_demand(shared: &Shared) {
    let set: Vec<Fixture> = ["one", "two", "three", "four"]
        .map(|name| slow(name, "sleep 5.05"))
        .into_iter()
        .chain([good("last", "one, two")])
        .collect();
    let yard = shared.yard("pilots", &set);
    let site = Site::new(shared.path("pilots-site"));
    configured(&yard, &site.folder, 0, 2);
    yard.run(&["pools"]).exits(2).says(&["no server starts workers now", " serve"]);
    fs::write(site.folder.join("down"), "").unwrap();
    let served = Served::start(&yard);
    let mut build = yard.start(&["build", "--no-scan", "--elsewhere"]);
    // The manager is down: nothing is started, and that is said.
    until("the trouble is shown", || pool(&yard)["troubles"].to_string().contains("down for maintenance"));
    assert!(site.pilots().is_empty());
    fs::remove_file(site.folder.join("down")).unwrap();
    until("both workers build", || pool(&yard)["busy"] == 2);
    let found = pool(&yard);
    assert_eq!((&found["wanted"], &found["there"]), (&2.into(), &2.into()), "{found}");
    // No other user of the machine can read the secret of a worker.
    let name = site.pilots().pop().unwrap();
    let token = site.folder.join(format!("pilots/{name}/files"));
    assert_eq!(fs::metadata(token).unwrap().permissions().mode() & 0o077, 0);
    build.end().exits(0).says(&["5 built"]);
    // Both are given back when they have been idle for long enough, and nothing is left of them.
    until("the workers are given back", || {
        let found = pool(&yard);
        found["there"] == 0 && found["ending"] == 0 && found["ended_total"] == 2
    });
    let found = pool(&yard);
    assert_eq!((&found["started_total"], &found["lost_total"]), (&2.into(), &0.into()), "{found}");
    let workers = || yard.run(&["workers", "--json"]).exits(0).json()["workers"].clone();
    until("their names are free", || workers().as_array().is_some_and(Vec::is_empty));
    assert!(!site.said().contains("error"), "{}", site.said());
    // A build that runs beside them changes nothing that was published.
    yard.run(&["build", "--no-scan"]).exits(0).says(&["nothing to do"]);
    drop(served);
    site.clean();
    assert!(yard.is_clean());
}

/// Whether a process of this machine has these arguments.
fn is_running(arguments: &[u8]) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    processes.map(|path| fs::read(path.join("cmdline"))).any(|read| read.is_ok_and(|read| read == arguments))
}

fn reclaimed(shared: &Shared) {
    let yard = shared.yard("reclaimed", &[slow("one", "sleep 17.17")]);
    let site = Site::new(shared.path("reclaimed-site"));
    configured(&yard, &site.folder, 2, 3);
    let served = Served::start(&yard);
    until("the least are there", || pool(&yard)["there"] == 2);
    let mut build = yard.start(&["build", "--no-scan", "--elsewhere"]);
    // What has not begun would be given back.
    until("one builds", || is_running(b"sleep\x0017.17\0") && pool(&yard)["busy"] == 1);
    let workers = yard.run(&["workers", "--json"]).exits(0).json()["workers"].clone();
    let mut workers = workers.as_array().unwrap().iter();
    let busy =
        workers.find(|worker| worker["builds"] != 0).and_then(|worker| worker["name"].as_str()).unwrap();
    // Its manager takes the machine away, with notice.
    site.end(busy);
    until("another one is started while it still builds", || {
        let found = pool(&yard);
        found["ending"] == 1 && found["started_total"] == 3
    });
    yard.run(&["workers"]).exits(0).says(&["ends soon: it takes no more builds"]);
    // What it had ends there, once.
    build.end().exits(0).says(&["1 built"]);
    let builds = yard.run(&["history", "one", "--json"]).exits(0).json();
    assert_eq!(builds.as_array().map(Vec::len), Some(1), "{builds}");
    until("it is gone, and two are there", || {
        let found = pool(&yard);
        found["there"] == 2 && found["ending"] == 0 && found["ended_total"] == 1
    });
    assert_eq!(pool(&yard)["lost_total"], 0);
    drop(served);
    let left = site.pilots();
    left.iter().for_each(|name| site.end(name));
    until("the others end", || left.iter().all(|name| !site.is_there(name)));
    site.clean();
    assert!(yard.is_clean());
}
