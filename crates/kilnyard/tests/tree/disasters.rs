//! Disasters while Kilnyard scans, fetches and builds a tree.

use crate::fixtures::{Packages, Shared, Trial, begin, processes, serve, settle};
use crate::support::server::Manner;
use crate::support::tree::{MiniTree, source};
use crate::support::until;
use std::fs;
use std::time::Duration;

pub const CASES: &[Trial] = &[
    ("a_killed_run_resumes_with_the_same_result", a_killed_run_resumes),
    ("an_interrupted_build_resumes", an_interrupted_build_resumes),
    ("an_interrupted_scan_resumes", an_interrupted_scan_resumes),
    ("an_interrupted_fetch_resumes", an_interrupted_fetch_resumes),
    ("a_killed_kit_is_made_again", a_killed_kit),
    ("a_kit_with_owners_that_roots_lack_is_rejected", a_kit_of_other_owners),
];

/// How often a run is killed.
const KILLS: u64 = 10;

/// A chain of three packages, and three packages that fetch; two of these fetch the same file.
fn tree() -> MiniTree {
    let shared =
        "DISTFILES= shared-1.0.tar.gz\nWRKSRC= ${WRKDIR}/shared-1.0\ndo-build:\n\t@cat ${WRKSRC}/content";
    let tree = MiniTree::new(&[
        ("chain/base", ""),
        ("chain/lib", "DEPENDS= base-[0-9]*:../../chain/base"),
        ("chain/app", "DEPENDS= lib>=1.0:../../chain/lib"),
        ("distfile/single", "DISTFILES= single-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content"),
        ("distfile/shared-a", shared),
        ("distfile/shared-b", shared),
    ]);
    for (package, name) in [("single", "single"), ("shared-a", "shared"), ("shared-b", "shared")] {
        let source = source(&format!("{name}-1.0"), "a source\n");
        tree.distfile(&format!("distfile/{package}"), &format!("{name}-1.0.tar.gz"), &source);
    }
    tree
}

fn a_killed_run_resumes(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let whole = shared.yard("whole", &tree, &[]);
    let began = std::time::Instant::now();
    whole.build().exits(0).says(&["6 built"]);
    let whole_milliseconds = began.elapsed().as_millis() as u64;
    let yard = shared.yard("killed", &tree, &[]);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    eprintln!("seed of the kills: {seed}");
    let mut random = seed;
    for _ in 0..KILLS {
        // A linear congruential generator (Knuth, MMIX): its upper bits are good enough.
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut started = begin(&yard, &[]);
        std::thread::sleep(Duration::from_millis(50 + (random >> 33) % whole_milliseconds));
        started.signal(libc::SIGKILL);
        started.end();
        let path = yard.folder.display().to_string();
        until("no process is left", || !processes().iter().any(|line| line.contains(&path)));
    }
    yard.build().exits(0);
    assert_eq!(yard.summary(), whole.summary());
    assert_eq!(yard.names("distfiles/pkgsrc"), whole.names("distfiles/pkgsrc"));
    // A root left by a run that was killed after the last build is removed, too.
    fs::create_dir_all(yard.path("roots/99/upper")).unwrap();
    yard.build().exits(0).says(&["nothing to do: 6 up-to-date"]);
    yard.is_clean();
}

fn an_interrupted_build_resumes(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/one", ""),
        ("a/slow", "DEPENDS= one-[0-9]*:../../a/one\ndo-build:\n\t@sleep 5.25"),
        ("a/two", "DEPENDS= slow-[0-9]*:../../a/slow"),
    ]);
    let yard = shared.yard("interrupted", &tree, &[]);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut started = begin(&yard, &[]);
        until("the slow one is being built", || processes().contains(&"sleep 5.25".to_owned()));
        assert_eq!(yard.building(), ["a/slow"]);
        started.signal(signal);
        started.end().exits(130).says(&["interrupted", "1 built"]);
        assert!(!processes().contains(&"sleep 5.25".to_owned()));
        assert_eq!(yard.published(), ["one-1.0"]);
        yard.is_clean();
    }
    yard.build().exits(0).says(&["3 built"]);
    assert_eq!((yard.builds("a/one"), yard.builds("a/two")), (1, 1));
    let runs = yard.run(&["history", "--json"]).exits(0).json();
    assert_eq!(runs.as_array().map(Vec::len), Some(1), "it is one run");
}

fn an_interrupted_scan_resumes(shared: &Shared) {
    let tree = MiniTree::new(&[("a/one", ""), ("a/two", ""), ("b/slow", "WAIT!= sleep 600.25; echo done")]);
    let yard = shared.yard("scan", &tree, &[]);
    for (signal, code) in [(libc::SIGINT, Some(130)), (libc::SIGKILL, None)] {
        let mut started = begin(&yard, &[]);
        let kept = || fs::read_to_string(yard.path("index/scan")).unwrap_or_default();
        until("all but the slow one are kept", || kept().matches("\nscan ").count() == 2);
        until("the slow one is asked", || processes().contains(&"sleep 600.25".to_owned()));
        started.signal(signal);
        let ended = started.end();
        assert_eq!(ended.code, code, "{ended:?}");
        until("its processes are gone", || !processes().contains(&"sleep 600.25".to_owned()));
        assert!(!yard.path("index/index.json").exists());
        if signal == libc::SIGINT {
            ended.says(&["interrupted; the same command resumes it"]);
            yard.is_clean();
        }
    }
    tree.package("b/slow", "");
    settle();
    yard.build().exits(0).says(&["3 directories: 1 scanned, 2 unchanged, 0 failed", "3 built"]);
    yard.is_clean();
}

fn an_interrupted_fetch_resumes(shared: &Shared) {
    let tree = tree();
    let server = serve(&tree);
    server.behave("/single-1.0.tar.gz", Some(Manner::Drip));
    let yard = shared.yard("fetch", &tree, &[]);
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let asked = server.answers("/single-1.0.tar.gz").len();
        let mut started = begin(&yard, &[]);
        until("the file is asked for", || server.answers("/single-1.0.tar.gz").len() > asked);
        until("everything else is built", || {
            yard.published().len() == 5 || {
                let counts = yard.run(&["status", "--json"]);
                serde_json::from_str::<serde_json::Value>(&counts.stdout)
                    .is_ok_and(|status| status["counts"]["built"] == 5)
            }
        });
        started.signal(signal);
        let ended = started.end();
        assert_eq!(ended.code, (signal == libc::SIGINT).then_some(130), "{ended:?}");
        let kept = yard.names("distfiles/pkgsrc");
        assert_eq!(kept, ["shared-1.0.tar.gz"], "a partial file is left");
    }
    server.behave("/single-1.0.tar.gz", None);
    yard.build().exits(0);
    assert_eq!(yard.published().len(), 6);
    assert_eq!(server.answers("/shared-1.0.tar.gz"), [200]);
    yard.is_clean();
}

/// tar prints a line for each file, but the error shows only a few.
fn a_kit_of_other_owners(shared: &Shared) {
    let tree = MiniTree::new(&[("a/one", "")]);
    let yard = shared.yard("owners", &tree, &[]);
    fs::remove_file(yard.path("layers/kit.json")).unwrap();
    let kit = tree.kit();
    let config = yard.read("kilnyard.toml");
    let line = config.lines().find(|line| line.starts_with("bootstrap-kit")).unwrap();
    yard.change(line, &format!("bootstrap-kit = \"{}\"", kit.display()));
    let script = "mkdir again; tar -xzf kit.tar.gz -C again; tar --owner=3000000 --group=3000000 --numeric-owner -czf kit.tar.gz -C again ./usr";
    let packed =
        std::process::Command::new("sh").args(["-ec", script]).current_dir(kit.parent().unwrap()).status();
    assert!(packed.unwrap().success());
    let ended = yard.build().exits(2).says(&["Cannot change ownership", "more lines", "--owner=0 --group=0"]);
    assert!(ended.stderr.lines().count() < 20, "{}", ended.stderr);
    tree.kit();
    yard.build().exits(0).says(&["1 built"]);
}

fn a_killed_kit(shared: &Shared) {
    let tree = MiniTree::new(&[("a/one", "")]);
    let yard = shared.yard("killed-kit", &tree, &[]);
    fs::remove_file(yard.path("layers/kit.json")).unwrap();
    let is_begun = || yard.names("layers").iter().any(|name| name.contains(".part"));
    let mut started = begin(&yard, &[]);
    until("the kit is being unpacked", is_begun);
    started.signal(libc::SIGKILL);
    assert_eq!(started.end().code, None);
    assert!(is_begun(), "it was killed too late");
    // The copy of the archive normally exists only for a moment.
    fs::write(yard.path("layers/kit-1.part.tar"), "half of it").unwrap();
    yard.build().exits(0).says(&["unpacking the bootstrap kit", "1 built"]);
    let left: Vec<String> = yard.names("layers").into_iter().filter(|name| name.contains(".part")).collect();
    assert_eq!(left, [""; 0]);
    yard.is_clean();
}
