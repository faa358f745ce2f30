//! One package for each kind of misbehavior, in one run: each gets the expected verdict, and the run continues.

use crate::fixtures::{Packages, Shared, Trial, processes};
use crate::support::tree::MiniTree;
use crate::support::until;
use std::fs;
use std::path::Path;

pub const CASES: &[Trial] = &[
    ("a_first_build_that_loops_is_ended_by_its_cpu_time", a_first_build_loops),
    ("each_way_to_misbehave_has_its_verdict", each_way_to_misbehave),
    ("a_build_killed_by_a_signal_is_retried_and_reported", killed_by_a_signal),
    ("files_left_in_the_prefix_fail_the_test", leaves_a_file),
    ("maintainer_scripts_of_the_base_run_in_their_own_root", base_scripts),
];

/// Location, and lines of the Makefile. The numbers of seconds identify the processes.
const PACKAGES: [(&str, &str); 20] = [
    ("bad/hangs-asleep", "do-build:\n\t@echo waiting; sleep 616101"),
    ("bad/spins", "do-build:\n\t@echo spinning; while :; do :; done"),
    (
        "bad/leaves-a-daemon",
        "do-build:\n\t@sh -c 'sleep 0.5; (setsid sleep 616102 > /dev/null 2>&1 &) ; exit 0'; sleep 0.6; echo done",
    ),
    ("bad/eats-memory", "do-build:\n\t@head -c 900M /dev/zero | tail -c 800M | sleep 616103"),
    ("bad/fills-shared-memory", "do-build:\n\t@head -c 1200M /dev/zero > /dev/shm/all-of-it"),
    ("bad/forks", "do-build:\n\t@sh -c 'while :; do sleep 616104 & done'"),
    ("bad/writes-outside", "do-build:\n\t@touch /usr/bin/kilnyard-was-here"),
    ("bad/wants-the-network", "do-build:\n\t@bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'"),
    ("bad/floods-the-log", "do-build:\n\t@head -c 20000000 /dev/zero | tr '\\0' x; echo; echo the end"),
    ("bad/ignores-the-end", "do-build:\n\t@trap '' TERM INT HUP; while :; do sleep 0.3; done"),
    ("bad/writes-too-much", "do-build:\n\t@head -c 300M /dev/zero > /tmp/all; sleep 616105"),
    ("bad/writes-and-leaves", "do-build:\n\t@head -c 300M /dev/zero > /tmp/all"),
    (
        "bad/opens-files",
        "do-build:\n\t@bash -c 'for i in $$(seq 200); do exec {a}</dev/null || exit 1; done'",
    ),
    ("bad/kills-itself", "do-build:\n\t@echo 'x.c:1: error: an old line'; echo 'the last line'; kill -9 -1"),
    ("bad/speaks-of-the-network", "do-build:\n\t@echo 'test: Network is unreachable'; exit 1"),
    ("bad/forks-and-sleeps", "do-build:\n\t@sleep 616106 & bash -c 'while :; do sleep 0.3; done' rolling"),
    ("bad/unpacks-to-much", "do-install:\n\t@head -c 60M /dev/zero > ${DESTDIR}${PREFIX}/zeros"),
    (
        "bad/has-many-files",
        "do-install:\n\t@mkdir ${DESTDIR}${PREFIX}/many; for i in $$(seq 600); do : > ${DESTDIR}${PREFIX}/many/$$i; done",
    ),
    ("good/one", ""),
    ("good/two", "DEPENDS= one-[0-9]*:../../good/one"),
];

/// Package, final state, kind of failure, and parts of the message.
const VERDICTS: [(&str, &str, &str, &[&str]); 20] = [
    ("bad/hangs-asleep", "failed", "hung", &["it hangs: for 3.0 s", "sleep 616101 (", "nanosleep"]),
    ("bad/spins", "failed", "spinning", &["it spins: for 6.0 s", "[runs"]),
    ("bad/leaves-a-daemon", "built", "", &[]),
    ("bad/eats-memory", "failed", "memory", &["more than 448 MiB", "`memory` of [limits]", "sleep 616103 ("]),
    ("bad/fills-shared-memory", "failed", "memory", &["more than 448 MiB", "`memory` of [limits]"]),
    ("bad/forks", "failed", "processes", &["`processes-max` of [build]"]),
    (
        "bad/writes-too-much",
        "failed",
        "disk-limit",
        &["it wrote ", "its limit is 200 MiB (`disk` of [limits] or [package])", "sleep 616105"],
    ),
    (
        "bad/writes-and-leaves",
        "failed",
        "disk-limit",
        &["its limit is 200 MiB (`disk` of [limits] or [package])"],
    ),
    ("bad/opens-files", "failed", "open-files", &["`open-files` of [limits]", "Too many open files"]),
    (
        "bad/kills-itself",
        "failed",
        "signal",
        &["SIGKILL (signal 9) ended the command; last line before it: the last line"],
    ),
    (
        "bad/unpacks-to-much",
        "failed",
        "outputs",
        &["unpacks to more than the limit of 41943040 bytes (`unpacked`"],
    ),
    (
        "bad/has-many-files",
        "failed",
        "outputs",
        &["its number of files is over the limit of 500 (`unpacked-files`"],
    ),
    ("bad/speaks-of-the-network", "failed", "command", &["Network is unreachable"]),
    ("bad/forks-and-sleeps", "failed", "silent", &["running at that time: bash -c while", "sleep 616106 ("]),
    ("bad/writes-outside", "failed", "command", &["Read-only file system"]),
    (
        "bad/wants-the-network",
        "failed",
        "no-network",
        &["which builds do not have", "Network is unreachable"],
    ),
    ("bad/floods-the-log", "built", "", &[]),
    ("bad/ignores-the-end", "failed", "silent", &["it is silent: for 6.0 s"]),
    ("good/one", "built", "", &[]),
    ("good/two", "built", "", &[]),
];

fn each_way_to_misbehave(shared: &Shared) {
    let tree = MiniTree::new(&PACKAGES);
    let yard = shared.yard("misbehaves", &tree, &[]);
    yard.change("# hung-minutes-min = 10", "hung-minutes-min = 0.05 #");
    yard.change("# silent-minutes-min = 60", "silent-minutes-min = 0.1 #");
    yard.change("# processes-max = 4096", "processes-max = 200 #");
    yard.change("# memory = \"8G\"", "memory = \"512M\" #");
    yard.change("# disk = \"32G\"", "disk = \"200M\" #");
    yard.change("# open-files = 16384", "open-files = 128 #");
    yard.change("# unpacked = \"20G\"", "unpacked = \"40M\" #");
    yard.change("# unpacked-files = 1000000", "unpacked-files = 500 #");
    let ended = yard.build().exits(1).says(&["4 built, 16 failed"]);
    for (package, state, kind, texts) in VERDICTS {
        let why = yard.why(package);
        assert_eq!(why["state"], state, "{package}: {why}\n{ended:?}");
        if state == "built" {
            continue;
        }
        let failure = &why["build"]["failure"];
        // A build that ends between two samples is measured with its outputs.
        let stage = match package {
            "bad/writes-and-leaves" | "bad/unpacks-to-much" | "bad/has-many-files" => "collect",
            _ => "build",
        };
        assert_eq!((&failure["stage"], &failure["kind"]), (&stage.into(), &kind.into()), "{why}");
        let message = failure["message"].as_str().unwrap();
        for text in texts {
            assert!(message.contains(text), "{package}: {text} is not in {message}");
        }
        yard.run(&["why", package]).exits(0).says(texts);
    }
    the_hang_is_shown(&yard);
    left_processes_are_listed(&yard);
    // Packages that ran out of memory were retried alone; packages at fault were not.
    let tries = |package: &str| yard.why(package)["attempts"].as_array().unwrap().len();
    assert_eq!(
        [
            "bad/eats-memory",
            "bad/fills-shared-memory",
            "bad/hangs-asleep",
            "bad/forks",
            "bad/writes-too-much"
        ]
        .map(tries),
        [2, 2, 1, 1, 1]
    );
    yard.run(&["why", "bad/eats-memory"]).exits(0).says(&["try 1, build ", "(memory)"]);
    let log = yard.run(&["log", "bad/floods-the-log", "build", "--all"]).exits(0).says(&["the end"]).stdout;
    assert!(log.len() < 4 << 20, "{} bytes", log.len());
    assert!(!Path::new("/usr/bin/kilnyard-was-here").exists());
    let left: Vec<String> = processes().into_iter().filter(|line| line.contains("61610")).collect();
    assert_eq!(left, [""; 0]);
    yard.is_clean();
}

fn a_first_build_loops(shared: &Shared) {
    let looping = [
        ("loops/silently", "do-build:\n\t@while :; do :; done"),
        ("loops/aloud", "do-build:\n\t@while :; do echo again; done"),
    ];
    let tree = MiniTree::new(&looping);
    let yard = shared.yard("loops", &tree, &[]);
    // Three seconds of CPU time; no other limit applies within an hour.
    yard.change("# cpu-minutes-min = 120", "cpu-minutes-min = 0.05 #");
    yard.build().exits(1).says(&["2 failed"]);
    for (package, _) in looping {
        let why = yard.why(package);
        let failure = &why["build"]["failure"];
        assert_eq!((&failure["stage"], &failure["kind"]), (&"build".into(), &"cpu-limit".into()), "{why}");
        assert!(failure["message"].as_str().unwrap().contains("more than 3.0 s of CPU time"), "{why}");
    }
    yard.is_clean();
}

/// Asserts that the log and the report show everything needed to see why a build hung.
fn the_hang_is_shown(yard: &crate::support::Yard) {
    let log = yard.run(&["log", "bad/hangs-asleep"]).exits(0);
    log.says(&["waiting\n", "kilnyard: it hangs: for 3.0 s", "sleep 616101 (", "kilnyard: last output:"]);
    let failure = &yard.why("bad/hangs-asleep")["build"]["failure"];
    let lines = failure["lines"].to_string();
    assert!(lines.contains("sleep 616101 (") && lines.contains("| in "), "{lines}");
    let number = failure["line_number"].as_u64().unwrap() as usize;
    let text = yard.run(&["log", "bad/hangs-asleep", "--all"]).exits(0).stdout;
    assert!(text.lines().nth(number - 1).unwrap().starts_with("kilnyard: it hangs"), "{text}");
    assert!(yard.read("report/latest/index.html").contains("it hangs: for 3.0 s"));
}

fn left_processes_are_listed(yard: &crate::support::Yard) {
    let history = yard.run(&["history", "bad/leaves-a-daemon", "--json"]).exits(0).json();
    let stages = history[0]["stages"].as_array().unwrap();
    let build = stages.iter().find(|stage| stage["stage"] == "build").unwrap();
    let left = build["left_behind"][0].as_str().unwrap();
    assert!(left.starts_with("sleep 616102 ("), "{left}");
    let measures = &build["measures"];
    assert!(measures["processes"].as_u64().unwrap() > 5, "{build}");
    // The CPU time is so short that the kernel may have counted none in user mode.
    let seconds = |which: &str| measures[which].as_f64().unwrap();
    assert!(seconds("user_seconds") + seconds("system_seconds") > 0.0, "{build}");
    yard.run(&["history", "bad/leaves-a-daemon", "--stages"]).exits(0).says(&[
        "  build ",
        " processes",
        "left behind: sleep 616102 (",
    ]);
    yard.run(&["log", "bad/leaves-a-daemon", "build"])
        .exits(0)
        .says(&["kilnyard: left behind and killed: sleep 616102"]);
    assert!(yard.read("report/latest/index.html").contains("Left behind by builds"));
}

fn killed_by_a_signal(shared: &Shared) {
    let tree = MiniTree::new(&[("odd/killed", "do-build:\n\t@echo killing; kill -9 $$PPID; sleep 1")]);
    let yard = shared.yard("signal", &tree, &[]);
    yard.change("# signal = 1", "signal = 1 #");
    yard.build().exits(1);
    let why = yard.why("odd/killed");
    let kinds: Vec<&str> = why["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|build| build["failure"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["signal", "signal"], "{why}");
    yard.change("signal = 1 #", "signal = 0 #");
    yard.run(&["build", "--force", "odd/killed"]).exits(1);
    assert_eq!(yard.why("odd/killed")["attempts"].as_array().unwrap().len(), 1);
    yard.change("signal = 0 #", "cancelled = 1 #");
    yard.run(&["plan"]).exits(2).says(&["retry", "cancelled"]);
    yard.is_clean();
}

/// A process that installs packages of the base, seen from outside.
struct Installer {
    spaces: Vec<String>,
    capabilities: u64,
    user: u32,
}

/// The descendant of `below` that runs maintainer scripts, if it runs now.
fn installer(below: u32) -> Option<Installer> {
    let text = |path: String| fs::read_to_string(path).ok();
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
        line.map(|value| value.split_whitespace().next().unwrap_or_default().to_owned())
    };
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find_map(|number| {
        let line = text(format!("/proc/{number}/cmdline"))?;
        if !line.starts_with("dpkg\0") || !line.contains("--force-depends") {
            return None;
        }
        let mut ancestor = number;
        while ancestor != below {
            let status = text(format!("/proc/{ancestor}/status"))?;
            ancestor = field(&status, "PPid")?.parse().ok().filter(|parent| *parent > 1)?;
        }
        let status = text(format!("/proc/{number}/status"))?;
        let space = |kind: &&str| fs::read_link(format!("/proc/{number}/ns/{kind}")).ok();
        let spaces: Option<Vec<_>> = SPACES.iter().map(space).collect();
        Some(Installer {
            spaces: spaces?.into_iter().map(|path| path.display().to_string()).collect(),
            capabilities: u64::from_str_radix(&field(&status, "CapBnd")?, 16).ok()?,
            user: field(&status, "Uid")?.parse().ok()?,
        })
    })
}

const SPACES: [&str; 6] = ["user", "mnt", "pid", "net", "ipc", "uts"];

/// `CAP_NET_ADMIN`, `CAP_SYS_MODULE`, `CAP_SYS_PTRACE` and `CAP_SYS_ADMIN` (capabilities(7)).
const POWERS: u64 = 1 << 12 | 1 << 16 | 1 << 19 | 1 << 21;

fn base_scripts(shared: &Shared) {
    let tree = MiniTree::new(&[("a/one", "")]);
    let yard = shared.yard("base-scripts", &tree, &["a/one"]);
    yard.run(&["clean", "--base"]).exits(0);
    let mut scan = yard.start(&["scan"]);
    let mut found = None;
    until("packages of the base are installed", || {
        found = installer(scan.child.id());
        assert!(found.is_some() || scan.is_running(), "{}", scan.stderr());
        found.is_some()
    });
    let found = found.unwrap();
    for (kind, inside) in SPACES.iter().zip(&found.spaces) {
        let own = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_ne!(*inside, own.display().to_string(), "scripts share the machine's {kind}");
    }
    assert_eq!(found.capabilities & POWERS, 0);
    // SAFETY: no preconditions.
    assert!(found.user != 0 || unsafe { libc::getuid() } != 0, "scripts run as root of the machine");
    scan.end().exits(0).says(&["base root: downloading packages", "base root: configuring packages"]);
}

fn leaves_a_file(shared: &Shared) {
    let tree = MiniTree::new(&[("a/leaves", ""), ("a/removes", "")]);
    let install = "case $2 in POST-INSTALL) echo x > \"$PKG_PREFIX/of-a-script\" ;; esac\n";
    tree.write("a/leaves/INSTALL", install);
    tree.write("a/removes/INSTALL", install);
    tree.write("a/removes/DEINSTALL", "case $2 in POST-DEINSTALL) rm \"$PKG_PREFIX/of-a-script\" ;; esac\n");
    let yard = shared.yard("leaves", &tree, &[]);
    yard.build().exits(1).says(&["1 built, 1 failed"]);
    yard.run(&["why", "a/leaves"]).exits(0).says(&["left behind by pkg_delete: /usr/pkg/of-a-script"]);
}
