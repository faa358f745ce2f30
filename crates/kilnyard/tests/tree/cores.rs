//! How cores and memory are shared among builds.

use crate::fixtures::{Packages, Shared, Trial};
use crate::support::tree::MiniTree;
use std::collections::BTreeSet;

pub const CASES: &[Trial] = &[
    ("make_takes_its_jobs_from_the_jobserver_of_its_build", make_takes_its_jobs),
    ("a_jobserver_can_be_turned_off", a_jobserver_can_be_turned_off),
    ("a_build_that_needs_too_much_memory_is_retried_alone_and_then_reported", too_much_memory),
    ("a_build_that_fills_its_jobserver_does_not_block_others", a_filled_jobserver),
    ("packages_requested_first_are_built_first", packages_requested_first),
];

/// A makefile whose jobs print the options that make received; it uses as many jobs as the package may.
const JOBS: &str = "do-build:
\t@mkdir -p ${WRKSRC}
\t@printf 'all: a b c\\na b c d e: ; @echo \"$$@: $$(MAKEFLAGS)\"; sleep 0.4\\n' > ${WRKSRC}/Makefile
\t@/usr/bin/make -C ${WRKSRC} -j ${_MAKE_JOBS} all
\t@/usr/bin/gmake -C ${WRKSRC} -j${_MAKE_JOBS} d
\t@MAKEFLAGS=\"$$CARGO_MAKEFLAGS\" make -C ${WRKSRC} e
\t@echo cargo: $$CARGO_MAKEFLAGS
";

/// Fills memory, because the last process of the pipe does not read. It holds more than the limit of 262 MiB, but
/// less than the amount at which the kernel kills processes before they can be named.
const EATS: &str = "do-build:\n\t@head -c 285M /dev/zero | tail -n 1 | sleep 4\n";

fn log(yard: &crate::support::Yard, package: &str) -> String {
    yard.run(&["log", package, "build"]).exits(0).stdout
}

fn make_takes_its_jobs(shared: &Shared) {
    let one_job = format!("MAKE_JOBS_SAFE= no\n{JOBS}");
    let tree = MiniTree::new(&[("cores/parallel", JOBS), ("cores/serial", &one_job)]);
    let yard = shared.yard("jobserver", &tree, &[]);
    yard.build().exits(0).says(&["2 built"]);
    let text = log(&yard, "cores/parallel");
    // `gmake` is a link to make, and `e` is made by a make that gets cargo's flags.
    for job in ["a", "b", "c", "d", "e"] {
        let line = text.lines().find(|line| line.starts_with(&format!("{job}: ")));
        assert!(line.is_some_and(|line| line.contains("--jobserver-auth=9,9")), "{text}");
    }
    assert!(!text.contains("resetting jobserver mode") && !text.contains("unavailable"), "{text}");
    assert!(text.contains("cargo: -j --jobserver-auth=fifo:/kilnyard/tools/jobserver"), "{text}");
    // A package with MAKE_JOBS_SAFE=no does not see the jobserver, unless it reads cargo's flags.
    let text = log(&yard, "cores/serial");
    for job in ["a", "b", "c", "d"] {
        let line = text.lines().find(|line| line.starts_with(&format!("{job}: ")));
        assert!(line.is_some_and(|line| !line.contains("--jobserver-auth")), "{text}");
    }
    // The record shows that the build could use more than one core; the next plan uses this.
    let history = yard.run(&["history", "cores/parallel", "--json"]).exits(0).json();
    let stages = history[0]["stages"].as_array().unwrap();
    let build = stages.iter().find(|stage| stage["stage"] == "build").unwrap();
    let seconds = |key: &str| build[key].as_f64().unwrap();
    let parallel = seconds("parallel_seconds");
    assert!(parallel > 0.0 && parallel <= seconds("wall_seconds"), "{build}");
    assert_eq!(yard.names("tools/jobservers"), [""; 0]);
    yard.is_clean();
}

fn a_jobserver_can_be_turned_off(shared: &Shared) {
    let tree = MiniTree::new(&[("cores/parallel", JOBS)]);
    let yard = shared.yard("no-jobserver", &tree, &[]);
    yard.change("# jobserver = \"pipe\"", "jobserver = \"off\"");
    yard.build().exits(0).says(&["1 built"]);
    let text = log(&yard, "cores/parallel");
    assert!(text.contains("-j2") && !text.contains("--jobserver-auth=9,9"), "{text}");
    yard.change("jobserver = \"off\"", "jobserver = \"perhaps\"");
    yard.run(&["plan"]).exits(2).says(&["jobserver", "pipe"]);
}

fn a_filled_jobserver(shared: &Shared) {
    let fills = "do-build:\n\t@! timeout 1 head -c 200000 /dev/zero > /kilnyard/tools/jobserver; sleep 1";
    let tree = MiniTree::new(&[("cores/fills", fills), ("cores/parallel", JOBS)]);
    let yard = shared.yard("filled", &tree, &[]);
    yard.build().exits(0).says(&["2 built"]);
    yard.is_clean();
}

fn too_much_memory(shared: &Shared) {
    let tree = MiniTree::new(&[("memory/eats", EATS), ("memory/modest", ""), ("memory/other", "")]);
    let yard = shared.yard("memory", &tree, &[]);
    yard.change("# memory = \"8G\"", "memory = \"300M\"");
    yard.build().exits(1).says(&["2 built", "1 failed"]);
    let history = yard.run(&["history", "memory/eats", "--json"]).exits(0).json();
    let builds = history.as_array().unwrap();
    assert_eq!(builds.len(), 2, "{history}");
    for build in builds {
        assert_eq!(build["failure"]["kind"], "memory", "{build}");
        let message = build["failure"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(
                "its processes held more than 262 MiB, the limit (`memory` of [limits] or [package])"
            ),
            "{message}"
        );
        assert!(message.contains("tail -n 1"), "{message}");
    }
    assert_eq!(yard.why("memory/eats")["state"], "failed");
    yard.is_clean();
}

/// Asserts that decisions are printed in order, each with complete ids.
fn has_whole_envelopes(events: &[serde_json::Value]) {
    let decisions: Vec<_> = events.iter().filter(|event| event["seq"].is_u64()).collect();
    assert!(decisions.is_sorted_by_key(|event| event["seq"].as_u64()));
    let kinds = |kind: &str| decisions.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((kinds("run-began"), kinds("run-ended")), (1, 1));
    assert_eq!((kinds("build-began"), kinds("build-ended")), (3, 3));
    assert!(decisions.iter().all(|event| event["epoch"] == decisions[0]["epoch"]));
    let (mut workers, mut attempts) = (BTreeSet::new(), BTreeSet::new());
    for ended in decisions.iter().filter(|event| event["type"] == "build-ended") {
        let ids = &ended["ids"];
        assert_eq!((&ids["package"], &ids["run"]), (&ended["package"], &ended["run"]));
        assert!(ids["target"].as_str().unwrap().starts_with("pkgsrc/linux/"), "{ids}");
        workers.insert(ids["worker"].as_str().unwrap().to_owned());
        attempts.insert(ids["attempt"].as_str().unwrap().to_owned());
    }
    assert_eq!((workers.len(), attempts.len()), (1, 3));
    assert!(
        decisions.iter().any(|event| event["type"] == "stage-ended" && event["result"]["stage"] == "build")
    );
}

fn packages_requested_first(shared: &Shared) {
    let tree = MiniTree::new(&[("one/a", ""), ("one/b", ""), ("one/c", "DEPENDS= b-[0-9]*:../../one/b")]);
    let yard = shared.yard("first", &tree, &[]);
    // `b` and `c` form the longest path.
    let arguments = ["build", "--force", "--json", "--slots", "1", "one/a", "one/b", "one/c"];
    let order = |more: &[&str]| {
        let ended = yard.run(&[&arguments[..], more].concat()).exits(0);
        let events =
            ended.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let events: Vec<_> = events.collect();
        has_whole_envelopes(&events);
        let events = events.iter();
        let building = events.filter(|event| event["event"] == "package" && event["state"] == "building");
        building.map(|event| event["package"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(order(&[]), ["one/b", "one/a", "one/c"].map(str::to_owned).to_vec());
    assert_eq!(order(&["--first", "one/a"])[0], "one/a");
    yard.change("# first = []", "first = [\"one/a\"]");
    assert_eq!(order(&[])[0], "one/a");
    assert_eq!(order(&["--first", "one/c"])[..2], ["one/b", "one/c"].map(str::to_owned));
}
