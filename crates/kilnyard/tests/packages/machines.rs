//! Packages built in virtual machines.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, processes, slow};
use crate::support::program;
use std::io::Write;
use std::process::{Command, Stdio};

pub const CASES: &[Trial] = &[
    ("a_package_from_a_virtual_machine_has_the_same_bytes", same_bytes),
    ("dependencies_are_installed_in_a_virtual_machine", dependencies),
    ("a_package_whose_builds_stall_all_cores_gets_one_alone", stalling),
];

/// Emulators execute what ARM's kernels emulate, so that nothing can be made to trap here: the counters are recorded ones.
fn stalling(shared: &Shared) {
    let yard = shared.yard("stalling", &[good("calm", ""), good("wild", "")]);
    yard.build().exits(0);
    yard.run(&["plan"]).exits(0).lacks(&["kept to one core"]);
    let store = rusqlite::Connection::open(yard.path("state/kilnyard.db")).unwrap();
    // A million in each second of the stage that compiles, as the store of a build on ARM has it.
    let stage = "json_set(result, '$.measures.traps', CAST(1000000 * max(json_extract(result, '$.wall_seconds'), 0.1) AS INTEGER))";
    let build = "(SELECT number FROM build WHERE package = 'wild')";
    let stages = format!(
        "UPDATE stage SET result = {stage} WHERE build = {build} AND json_extract(result, '$.stage') = 'build'"
    );
    assert_eq!(store.execute(&stages, []).unwrap(), 1);
    let measured =
        "UPDATE measured SET builds = json_set(builds, '$[0].traps_per_second', 1e6) WHERE package = 'wild'";
    assert_eq!(store.execute(measured, []).unwrap(), 1);
    drop(store);
    let said = [
        "kept to one core, in a virtual machine where there is one: build ",
        " traps of the kernel a second",
    ];
    yard.run(&["why", "wild"]).exits(0).says(&said);
    yard.run(&["why", "calm"]).exits(0).lacks(&["kept to one core"]);
    yard.run(&["root", "plan", "wild"]).exits(0).says(&["in a virtual machine of 1 core"]);
    // A machine is no condition: where there is none, the package is built on one core of this one.
    yard.run(&["build", "--force", "wild"]).exits(0).says(&["1 unchanged"]);
    // A build in a machine says nothing of what happens outside.
    yard.run(&["plan"]).exits(0).says(&["kept to one core", ": wild"]);
    yard.run(&["why", "wild"]).exits(0).says(&["kept to one core"]);
    // The yard's owner knows better.
    let config = yard.read("kilnyard.toml") + "\n[package.wild]\nmachine = \"none\"\n";
    std::fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.run(&["why", "wild"]).exits(0).lacks(&["kept to one core"]);
    yard.run(&["root", "plan", "wild"]).exits(0).lacks(&["virtual machine"]);
    assert!(yard.is_clean());
}

/// Layers of packages are unpacked and configured in a machine, which may write to a folder of its root alone.
fn dependencies(shared: &Shared) {
    let needing = Fixture { build: "test -e /usr/share/below/data", ..good("above", "below") };
    let yard = shared.yard("machine-depends", &[Fixture { binary: SAYING, ..good("below", "") }, needing]);
    let config = yard.read("kilnyard.toml") + "\n[package.above]\nmachine = \"vm\"\n";
    std::fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.build().exits(0).says(&["2 built"]);
    yard.run(&["log", "above", "depends"]).says(&["1 unpacked into layers", "1 stacked and configured"]);
    yard.run(&["log", "above", "depends"]).lacks(&["could not be configured", "by the package manager"]);
    // It was configured by another kernel than this one.
    let mut logs = Command::new("sh");
    let logs = logs.args(["-c", "zstdcat logs/*/above/*depends*.zst"]).current_dir(&yard.folder).output();
    let logs = String::from_utf8(logs.unwrap().stdout).unwrap();
    let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let booted = logs.lines().find_map(|line| line.strip_prefix("booted as "));
    assert!(booted.is_some_and(|id| id != own.trim()), "{logs}");
    // Layers are searched once, and merged ones not at all.
    let found = || yard.run(&["hazards", "--json"]).exits(1).stdout;
    let first = found();
    assert_eq!(found(), first);
    let layers = std::fs::read_dir(yard.path("layers/dependencies/packages")).unwrap().count();
    assert_eq!(layers, 1);
    assert!(yard.is_clean());
}

/// A build that fails. The wrappers of clients of a jobserver are mounted into its root.
const BROKEN: &str =
    "uname -r\ntest -p /kilnyard/tools/jobserver && echo the jobserver is there\necho left > left\nfalse";

/// Scripts of a package that say which kernel runs them.
const SAYING: &str = "for script in postinst prerm; do printf '#!/bin/sh\\necho booted as `cat /proc/sys/kernel/random/boot_id`\\n' \
                      > debian/tmp/DEBIAN/$$script; chmod 755 debian/tmp/DEBIAN/$$script; done";

fn same_bytes(shared: &Shared) {
    let one =
        Fixture { binary: SAYING, ..slow("one", "echo booted as `cat /proc/sys/kernel/random/boot_id`") };
    let yard = shared.yard("machines", &[one, slow("broken", BROKEN)]);
    yard.build().exits(1);
    assert_eq!(yard.states(&["one", "broken"]), ["built", "failed"]);
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    yard.run(&["log", "broken", "build"]).exits(0).says(&[here.trim()]);
    let config = yard.read("kilnyard.toml");
    std::fs::write(
        yard.path("kilnyard.toml"),
        config.replace("[root]", "[root]\nmachine = \"vm\"\ncores = 2"),
    )
    .unwrap();
    yard.run(&["doctor"]).says(&["virtual machines: linux-image-", " boots by "]);
    let plan = yard.run(&["root", "plan", "one"]).exits(0).stdout;
    assert!(
        plan.starts_with("the root of one 1.0")
            && plan.contains("in a virtual machine of 2 cores and 2.0 GiB"),
        "{plan}"
    );
    yard.run(&["build", "--force", "one"]).exits(0).says(&["1 unchanged"]);
    // The commands of a root share a machine, which is not that of another root.
    let booted = |stage: &str| -> Vec<String> {
        let log = yard.run(&["log", "one", stage, "--all"]).exits(0).stdout;
        log.lines().filter_map(|line| line.strip_prefix("booted as ")).map(str::to_owned).collect()
    };
    let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (build, test) = (booted("build"), booted("test"));
    assert!(build.len() == 1 && test.len() == 2 && test[0] == test[1], "{build:?} {test:?}");
    assert!(build[0] != test[0] && ![&build[0], &test[0]].contains(&&own.trim().to_owned()));
    // A failed root is entered in a machine, too, also if it was made without one.
    let kernel = ["shell", "broken", "--", "uname", "-r"];
    assert!(yard.run(&kernel).exits(0).stdout.trim().ends_with("-cloud-amd64"));
    yard.run(&["build", "--force", "broken"]).exits(1);
    yard.run(&["log", "broken", "build"]).exits(0).says(&["-cloud-amd64", "the jobserver is there"]);
    let print = ["shell", "broken", "--", "cat", "/build/broken-1.0/left"];
    assert_eq!(yard.run(&print).exits(0).stdout, "left\n");
    let kernel = ["shell", "broken", "--", "sh", "-c", "cat; uname -r; exit 7"];
    let ended = yard.run(&kernel).exits(7);
    assert!(ended.stdout.trim().ends_with("-cloud-amd64"), "{}", ended.stdout);
    // With a terminal of this size.
    let shell = format!(
        "stty columns 97 rows 31; {} --yard {} shell broken -- sh -c 'stty size; read line; echo got $line'",
        program().display(),
        yard.folder.display()
    );
    let mut script = Command::new("script");
    script.args(["-qec", &shell, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.spawn().unwrap();
    script.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let shown = script.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("31 97\r\n") && text.contains("got typed\r\n"), "{text}");
    assert!(yard.is_clean());
    let folder = yard.folder.display().to_string();
    assert!(!processes().iter().any(|(_, line)| line.contains("qemu") && line.contains(&folder)));
}
