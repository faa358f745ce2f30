//! Yards that share the workers of a site.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::farm::{Far, Served, served};
use crate::support::{Yard, until};
use std::fs;
use std::time::Duration;

pub const CASES: &[Trial] = &[
    ("yards_share_the_workers_of_a_site", share),
    ("a_yard_that_has_used_its_day_starts_nothing_further", spent),
];

/// The folder of workers.
const FAR: &str = "workers";

const NAMES: [&str; 5] = ["one", "two", "three", "four", "five"];

/// The starts and ends of the builds of the last run, all of which this worker made.
fn times(yard: &Yard, worker: &str) -> Vec<(f64, f64)> {
    let of = |name: &str| {
        let history = yard.run(&["history", name, "--json"]).exits(0).json();
        let build = &history[0];
        assert_eq!(
            (build["outcome"].as_str(), build["worker"].as_str()),
            (Some("built"), Some(worker)),
            "{history}"
        );
        (build["started_seconds"].as_f64().unwrap(), build["ended_seconds"].as_f64().unwrap())
    };
    NAMES.iter().map(|name| of(name)).collect()
}

fn share(shared: &Shared) {
    let set = |pause: &'static str| -> Vec<Fixture> { NAMES.map(|name| slow(name, pause)).to_vec() };
    let (one, two) = (shared.yard("yards-one", &set("sleep 6")), shared.yard("yards-two", &set("sleep 6")));
    let template = one.read("kilnyard.toml");
    let configure = |yards: &str| {
        let text = template.replace("\n[repository]", &format!("\n{yards}\n[repository]"));
        fs::write(one.path("kilnyard.toml"), text).unwrap();
    };
    configure("[farm.yards.two]\npath = \"absent\"");
    one.run(&["serve", "--listen", "127.0.0.1:0"])
        .exits(2)
        .says(&["failed to serve the yard two", "no yard in"]);
    configure("[farm.yards.two]\npath = \".\"");
    one.run(&["serve", "--listen", "127.0.0.1:0"]).exits(2).says(&["the yard of the site itself"]);
    configure("[farm.yards.\"../two\"]\npath = \"x\"");
    one.run(&["status"]).exits(2).says(&["cannot name a yard"]);
    configure(&format!(
        "[farm.yards.two]\npath = \"{}\"\nweight = 1.0\nclass = \"rebuild\"",
        two.folder.display()
    ));
    let mut site = Served::start(&one);
    assert!(served(&one).contains("shares the workers: weight 1, class rebuild"), "{}", served(&one));
    // It is served.
    two.run(&["serve", "--listen", "127.0.0.1:0"]).exits(2).says(&["runs in this yard already"]);
    let far = Far::join_without(&shared.path(FAR), &one, &site, "far", &[&two.folder]);
    until("the worker takes part in both", || far.said().contains("yard two: takes part"));
    two.run(&["workers"]).exits(0).says(&["far"]);
    let arguments = ["build", "--no-scan", "--elsewhere"];
    let builds = [one.start(&arguments), two.start(&arguments)];
    until("the work of both is shown", || {
        let yards = one.run(&["workers", "--json"]).exits(0).json()["yards"].clone();
        let has_work = |at: usize| yards[at]["core_seconds"].as_f64().is_some_and(|work| work > 0.0);
        yards[0]["name"] == "" && yards[1]["name"] == "two" && has_work(0) && has_work(1)
    });
    one.run(&["workers"]).exits(0).says(&["this site's own yard (weight", "yard two (weight 1, rebuild): "]);
    for mut build in builds {
        build.end().exits(0).says(&["5 built"]);
    }
    let (of_one, of_two) = (times(&one, "far"), times(&two, "far"));
    // On one core, neither waits for the end of the other.
    let first = |times: &[(f64, f64)]| times.iter().map(|(began, _)| *began).fold(f64::INFINITY, f64::min);
    let last = |times: &[(f64, f64)]| times.iter().map(|(_, ended)| *ended).fold(0.0, f64::max);
    assert!(first(&of_one) < last(&of_two) && first(&of_two) < last(&of_one), "{of_one:?} {of_two:?}");
    // Two, as on a core of one yard; a third one only where it is the first of a yard that had had nothing.
    let all: Vec<(f64, f64)> = of_one.iter().chain(&of_two).copied().collect();
    let at_once = |time: f64| all.iter().filter(|(began, ended)| *began <= time && time < *ended).count();
    let firsts = [first(&of_one), first(&of_two)];
    for (began, _) in &all {
        let most = if firsts.contains(began) { 3 } else { 2 };
        assert!(at_once(*began) <= most, "{} at once: {of_one:?} {of_two:?}", at_once(*began));
    }
    // Files of one yard are not in the other's folder of the worker.
    assert!(far.folder.join("worker/yards/two/state").is_dir());
    site.signal(libc::SIGINT);
    assert!(!two.path("state/farm/site").exists(), "it can be served alone again");
    assert!(one.is_clean() && two.is_clean());
}

fn spent(shared: &Shared) {
    let (site, lab) = (shared.yard("quota", &[]), shared.yard("quota-lab", &[good("one", "")]));
    let template = site.read("kilnyard.toml");
    let bounded = |core_hours: &str| {
        let table = format!(
            "[farm.yards.lab]\npath = \"{}\"\ncore-hours-per-day = {core_hours}\n",
            lab.folder.display()
        );
        site.configure(&template.replace("\n[repository]", &format!("\n{table}\n[repository]")));
    };
    bounded("-1");
    site.run(&["status"]).exits(2).says(&["core-hours-per-day in [farm.yards.lab] must be 0 or more"]);
    bounded("0");
    let mut server = Served::start(&site);
    until("its day is spent", || served(&site).contains("yard lab has used 0.000 of 0 core-hours"));
    let mut far = Far::join_without(&shared.path(FAR), &site, &server, "far", &[&lab.folder]);
    until("the worker takes part", || far.said().contains("yard lab: takes part"));
    let mut build = lab.start(&["build", "--no-scan", "--elsewhere"]);
    let status = || site.run(&["workers", "--json"]).exits(0).json()["yards"][1].clone();
    until("it could start", || status()["ready"] == 1);
    // Longer than a worker takes that may start it.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!((&status()["ready"], &status()["running"]), (&1.into(), &0.into()));
    site.run(&["workers"]).exits(0).says(&["0.000 of 0 core-hours of a day used; it starts nothing further"]);
    // Who waits for the run learns why.
    lab.run(&["status"]).exits(0).says(&["waits: lab has used 0.000 of 0 core-hours"]);
    server.signal(libc::SIGINT);
    bounded("5");
    let url = server.url.trim_start_matches("https://").to_owned();
    drop(server);
    let server = Served::start_at(&site, &url);
    build.end().exits(0).says(&["1 built"]);
    until("what it used is known", || {
        status()["quota"]["used_core_hours"].as_f64().is_some_and(|used| 0.0 < used && used < 1.0)
    });
    far.signal(libc::SIGINT);
    drop(server);
    assert!(site.is_clean() && lab.is_clean());
}
