//! One run of every odd package: the result of each, and its messages.

use crate::fixtures::{ALL, Packages, Shared, Trial, processes};
use crate::support::{self, Ended};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

pub const CASES: &[Trial] = &[
    ("every_odd_package_has_the_expected_result", every_odd_package_has_the_expected_result),
    ("left_out_packages_are_explained_down_to_the_cause", left_out_packages_are_explained),
    ("failures_name_the_stage_and_the_reason", failures_name_the_stage_and_the_reason),
    ("packages_get_their_dependencies_and_settings", packages_get_their_dependencies_and_settings),
    ("misbehavior_is_bounded_and_reported", misbehavior_is_bounded_and_reported),
    ("a_distfile_is_fetched_once", a_distfile_is_fetched_once),
    ("the_repository_has_all_redistributable_packages", the_repository_has_all_redistributable_packages),
    ("reports_for_pbulk_agree_with_ours", reports_for_pbulk_agree_with_ours),
];

/// The state of every package that is not built.
const NOT_BUILT: [(&str, &str); 17] = [
    ("distfile/by-hand", "left-out"),
    ("fails/at-add", "failed"),
    ("fails/at-build", "failed"),
    ("fails/at-checksum", "failed"),
    ("fails/at-configure", "failed"),
    ("fails/at-delete", "failed"),
    ("fails/at-fetch", "failed"),
    ("fails/at-install", "failed"),
    ("fails/at-package", "failed"),
    ("fails/by-another", "blocked"),
    ("left-out/failed", "left-out"),
    ("left-out/on-missing", "left-out"),
    ("left-out/on-skipped", "left-out"),
    ("left-out/round-a", "left-out"),
    ("left-out/round-b", "left-out"),
    ("left-out/skipped", "left-out"),
    ("odd/not-parallel", "failed"),
];

/// Names and versions of the packages that are built.
const BUILT: [&str; 22] = [
    "app-1.0",
    "as-root-1.0",
    "base-1.0",
    "best-1.0",
    "best-2.0",
    "built-with-1.0",
    "leaves-a-process-1.0",
    "lib-1.0",
    "loud-1.0",
    "on-first-1.0",
    "on-old-1.0",
    "on-restricted-1.0",
    "on-second-1.0",
    "one-job-1.0",
    "patched-1.0",
    "restricted-1.0",
    "shared-a-1.0",
    "shared-b-1.0",
    "single-1.0",
    "user-1.0",
    "versions-1.0",
    "versions-2.0",
];

fn every_odd_package_has_the_expected_result(shared: &Shared) {
    let odd = shared.odd();
    odd.ended.clone().exits(1).says(&[
        "38 directories: 38 scanned, 0 unchanged, 0 failed",
        "22 built, 9 failed, 1 blocked, 7 left-out",
        "failed: fails/at-build: build failed: main.c:1: error: expected a program",
        "left out: left-out/skipped: it is skipped: it is not for this system",
    ]);
    let report: serde_json::Value =
        serde_json::from_str(&odd.yard.read("report/latest/report.json")).unwrap();
    let rows = |key: &str| report[key].as_array().unwrap_or_else(|| panic!("{report}")).clone();
    let name = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let in_run = rows("packages").into_iter().map(|row| (name(&row, "name"), name(&row, "state")));
    let left_out = rows("left_out").into_iter().map(|row| (name(&row, "package"), "left-out".to_owned()));
    let states: BTreeMap<String, String> = in_run.chain(left_out).collect();
    let not_built: Vec<(&str, &str)> = states
        .iter()
        .filter(|(_, state)| *state != "built")
        .map(|(name, state)| (name.as_str(), state.as_str()))
        .collect();
    assert_eq!(not_built, NOT_BUILT);
    assert_eq!(states.len(), 39);
    odd.yard.is_clean();
}

fn left_out_packages_are_explained(shared: &Shared) {
    let yard = &shared.odd().yard;
    for (package, reason) in [
        ("left-out/skipped", "it is skipped: it is not for this system"),
        ("left-out/failed", "it is known to fail: it needs a compiler that does not exist"),
        (
            "left-out/on-skipped",
            "it needs left-out/skipped, which is left out\nit is skipped: it is not for this system",
        ),
        ("left-out/on-missing", "nothing matches nowhere-[0-9]*; left-out/nowhere offers nothing"),
        ("left-out/round-a", "it is in a cycle: left-out/round-a -> left-out/round-b -> left-out/round-a"),
        ("left-out/round-b", "it is in a cycle: left-out/round-b -> left-out/round-a -> left-out/round-b"),
    ] {
        let why = yard.why(package);
        assert_eq!((&why["state"], &why["reason"]), (&"left-out".into(), &reason.into()), "{package}");
        let lines: Vec<&str> = reason.lines().collect();
        yard.run(&["why", package]).exits(0).says(&[&format!("{package} is left-out")]).says(&lines);
    }
    yard.run(&["why", "left-out/nowhere"]).exits(2).says(&["left-out/nowhere"]);
    // The explanation also appears if the package is requested by name, before anything is built.
    yard.run(&["build", "left-out/on-skipped"]).exits(2).says(&["it is not for this system"]);
}

/// Package, stage, kind of failure, and a part of the line that shows the cause.
const FAILURES: [(&str, &str, &str, &str); 9] = [
    ("fails/at-fetch", "fetch", "fetch", "ERROR: Could not fetch absent-1.0.tar.gz"),
    ("fails/at-checksum", "fetch", "fetch", "ERROR: Checksum SHA512 mismatch for other-1.0.tar.gz"),
    ("fails/at-configure", "configure", "command", "configure: error: no acceptable moon found"),
    ("fails/at-build", "build", "command", "main.c:1: error: expected a program"),
    ("fails/at-install", "install", "command", "cannot stat 'absent'"),
    ("fails/at-package", "package", "command", "share/at-package/absent"),
    ("fails/at-add", "test", "test", "install script returned error status"),
    ("fails/at-delete", "test", "test", "deinstall script returned error status"),
    ("odd/not-parallel", "build", "command", "2 jobs"),
];

fn failures_name_the_stage_and_the_reason(shared: &Shared) {
    let yard = &shared.odd().yard;
    for (package, stage, kind, line) in FAILURES {
        let failure = &yard.why(package)["build"]["failure"];
        assert_eq!((&failure["stage"], &failure["kind"]), (&stage.into(), &kind.into()), "{failure}");
        let message = failure["message"].as_str().unwrap();
        assert!(message.contains(line), "{package}: {message}");
        yard.run(&["log", package]).exits(0).says(&[line]);
        yard.run(&["why", package]).exits(0).says(&["is failed", line]);
    }
    let why = yard.why("fails/by-another");
    assert_eq!(
        (&why["blamed"], &why["chain"][0]["package"]),
        (&"fails/at-build".into(), &"fails/at-build".into())
    );
    yard.run(&["why", "fails/by-another"]).exits(0).says(&[
        "fails/by-another 1.0 is blocked",
        "fails/at-build is failed: build failed: main.c:1: error: expected a program",
    ]);
    yard.run(&["log", "fails/by-another"]).exits(2).says(&["has not been built yet"]);
    // The root of a failed package can be inspected, with the tree at its usual place.
    yard.run(&["shell", "fails/at-build", "--", "head", "-n", "2", "/usr/pkgsrc/fails/at-build/Makefile"])
        .exits(0)
        .says(&["NAME= at-build"]);
}

impl Shared {
    /// The content of a file in a published package.
    fn in_package(&self, package: &str, file: &str) -> String {
        let path = self.odd().yard.path(ALL).join(format!("{package}.tgz"));
        let read: Ended = Command::new("tar").args(["-xzOf"]).arg(path).arg(file).output().unwrap().into();
        read.exits(0).stdout
    }
}

fn packages_get_their_dependencies_and_settings(shared: &Shared) {
    let yard = &shared.odd().yard;
    // Each gets its own one of two versions from the same directory.
    for (package, version) in [("on-first-1.0", "versions-1.0"), ("on-second-1.0", "versions-2.0")] {
        let contents = shared.in_package(package, "+CONTENTS");
        let built_with: Vec<&str> = contents.lines().filter(|line| line.starts_with("@blddep")).collect();
        assert_eq!(built_with, [format!("@blddep {version}")]);
    }
    for version in ["1.0", "2.0"] {
        assert_eq!(
            shared.in_package(&format!("versions-{version}"), "share/versions/version").trim(),
            version
        );
    }
    // The best match of two directories is used, not the directory that the dependency names.
    assert!(shared.in_package("on-old-1.0", "+CONTENTS").contains("@blddep best-2.0\n"));
    // A build dependency is not a runtime dependency.
    let contents = shared.in_package("built-with-1.0", "+CONTENTS");
    assert!(contents.contains("@blddep base-1.0\n") && !contents.contains("@pkgdep"), "{contents}");
    yard.run(&["log", "odd/user", "configure"]).exits(0).says(&["_user:x:"]);
    yard.run(&["log", "odd/one-job", "build"]).exits(0).says(&["1 jobs"]);
    yard.run(&["log", "odd/not-parallel", "build"]).exits(0).says(&["2 jobs"]);
    let path = yard.path(ALL).join("as-root-1.0.tgz");
    let listed: Ended =
        Command::new("tar").args(["--numeric-owner", "-tvzf"]).arg(path).output().unwrap().into();
    let of_another = listed.stdout.lines().find(|line| line.ends_with(" of-another")).unwrap().to_owned();
    assert!(of_another.starts_with("-rw------- 1/"), "{of_another}");
}

fn misbehavior_is_bounded_and_reported(shared: &Shared) {
    let yard = &shared.odd().yard;
    let log = yard.run(&["log", "odd/loud", "build", "--all"]).exits(0).stdout;
    assert!(log.contains("\n1: a line such as") && log.contains("\n60000: a line such as"));
    // The log has the beginning and the end, not all four megabytes.
    assert!(log.len() < (3 << 20) + 1000, "{} bytes", log.len());
    let history = yard.run(&["history", "odd/leaves-a-process", "--json"]).exits(0).json();
    let stages = history[0]["stages"].as_array().unwrap();
    let build = stages.iter().find(|stage| stage["stage"] == "build").unwrap();
    assert!(build["left_behind"].to_string().contains("sleep 1000"), "{build}");
    assert!(!processes().contains(&"sleep 1000".to_owned()));
}

fn a_distfile_is_fetched_once(shared: &Shared) {
    let odd = shared.odd();
    for (name, answers) in [
        ("single", &[200][..]),
        ("shared", &[200]),
        ("patched", &[200]),
        ("other", &[200]),
        ("absent", &[404]),
        ("by-hand", &[]),
    ] {
        assert_eq!(odd.server.answers(&format!("/{name}-1.0.tar.gz")), answers, "{name}");
    }
    // Files with a wrong hash are not kept.
    let kept = ["patched-1.0.tar.gz", "shared-1.0.tar.gz", "single-1.0.tar.gz"];
    assert_eq!(odd.yard.names("distfiles/pkgsrc"), kept);
    assert_eq!(
        fs::read(odd.yard.path("distfiles/pkgsrc/shared-1.0.tar.gz")).unwrap(),
        fs::read(odd.tree.sites().join("shared-1.0.tar.gz")).unwrap()
    );
    odd.yard.run(&["log", "distfile/single", "build"]).exits(0).says(&["a source"]);
    odd.yard.run(&["log", "distfile/patched", "build"]).exits(0).says(&["after"]);
}

fn the_repository_has_all_redistributable_packages(shared: &Shared) {
    let yard = &shared.odd().yard;
    let may_go: Vec<&str> = BUILT.into_iter().filter(|name| !name.contains("restricted")).collect();
    assert_eq!(yard.published(), may_go);
    let files = yard.names(ALL).into_iter().filter_map(|name| name.strip_suffix(".tgz").map(str::to_owned));
    assert_eq!(files.collect::<Vec<_>>(), may_go);
    let packed = |name: &str| fs::read(yard.path(ALL).join(name)).unwrap();
    let mut of_gzip = String::new();
    let gzip = packed("pkg_summary.gz");
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut of_gzip).unwrap();
    assert_eq!(of_gzip.as_bytes(), zstd::decode_all(&packed("pkg_summary.zst")[..]).unwrap());
    for line in
        ["PKGPATH=many/versions", "DEPENDS=versions>=2.0", "FILE_NAME=app-1.0.tgz", "CATEGORIES=chain"]
    {
        assert!(of_gzip.lines().any(|other| other == line), "{line} is not in\n{of_gzip}");
    }
    let index = yard.path(ALL).join("index").display().to_string();
    support::kilnyard(&["index", "look-up", &index, "app-1.0"]).exits(0).says(&["PKGNAME=app-1.0"]);
    let in_repository = |script: &str| -> Ended {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).current_dir(yard.path(ALL));
        Ended::from(command.output().unwrap()).exits(0)
    };
    let checked = in_repository("sha512sum --strict -c SHA512; zcat SHA512.gz | cmp - SHA512").stdout;
    for file in yard.names(ALL).into_iter().filter(|name| !name.starts_with("SHA512")) {
        assert!(checked.contains(&format!("{file}: OK")), "{file} is not in\n{checked}");
    }
    if support::has("gpg") && support::has("gpgv") {
        in_repository(
            "key=$(mktemp); trap 'rm -f $key' EXIT\n\
             gpg --dearmor < ../kilnyard-archive-keyring.asc > $key; gpgv --keyring $key SHA512.asc SHA512",
        );
    }
}

fn reports_for_pbulk_agree_with_ours(shared: &Shared) {
    let yard = &shared.odd().yard;
    let folder = yard.names("report/pbulk").into_iter().find(|name| name != "report.txt").unwrap();
    let meta = format!("report/pbulk/{folder}/meta");
    assert_eq!(yard.names(&meta), ["report", "report.html", "report.xz", "status"]);
    let report = yard.read(&format!("{meta}/report"));
    let mut statuses: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for stanza in report.split("PKGNAME=").skip(1) {
        let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        statuses.entry(field("BUILD_STATUS=")).or_default().push(stanza.lines().next().unwrap());
    }
    statuses.values_mut().for_each(|names| names.sort_unstable());
    assert_eq!(statuses["done"], BUILT);
    let failed = NOT_BUILT.iter().filter(|(_, state)| *state == "failed");
    let mut failed: Vec<String> =
        failed.map(|(name, _)| format!("{}-1.0", name.split_once('/').unwrap().1)).collect();
    failed.sort_unstable();
    assert_eq!(statuses["failed"], failed);
    assert_eq!(statuses["indirect-failed"], ["by-another-1.0"]);
    assert_eq!(
        statuses["prefailed"],
        ["by-hand-1.0", "failed-1.0", "on-missing-1.0", "round-a-1.0", "round-b-1.0", "skipped-1.0"]
    );
    assert_eq!(statuses["indirect-prefailed"], ["on-skipped-1.0"]);
    let app = report.split("PKGNAME=").find(|stanza| stanza.starts_with("app-1.0\n")).unwrap();
    assert!(app.lines().any(|line| line == "DEPENDS=lib-1.0"), "{app}");
    let text = yard.read("report/pbulk/report.txt");
    let counts: Vec<String> = text
        .lines()
        .filter(|line| line.contains(": ") && line.ends_with(|last: char| last.is_ascii_digit()))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for count in [
        "Total number of packages: 39",
        "Successfully built: 22",
        "Failed to build: 9",
        "Depending on failed package: 1",
        "Explicitly broken or masked: 6",
        "of which invalid dependencies: 1",
        "Depending on masked package: 1",
    ] {
        assert!(counts.contains(&count.to_owned()), "{count} is not in\n{text}");
    }
}
