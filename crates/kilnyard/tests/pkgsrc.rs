//! Commands on scans of pkgsrc: small scans, and that of the whole tree if it is available.

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use support::tree::MiniTree;
use support::{Ended, folder, has, kilnyard, trials, until};
use trials::case;

const SCAN: &str = "\
PKGNAME=top-1.0
PKG_LOCATION=a/top
ALL_DEPENDS=lib>=1:../../a/lib {old,new}-[0-9]*:../../a/old
PKG_SKIP_REASON=
PKG_FAIL_REASON=
SCAN_DEPENDS=../../mk/top.mk
PKGNAME=lib-1.2nb3
PKG_LOCATION=a/lib
ALL_DEPENDS=
PKG_SKIP_REASON=
PKG_FAIL_REASON=
PKGNAME=lib-2.0
PKG_LOCATION=a/lib2
ALL_DEPENDS=
PKG_SKIP_REASON=\"it is not for this system\"
PKG_FAIL_REASON=
PKGNAME=new-3
PKG_LOCATION=a/new
ALL_DEPENDS=gone-[0-9]*:../../a/gone
PKG_SKIP_REASON=
PKG_FAIL_REASON=
";

fn resolve(import: &Path, more: &[&str]) -> Ended {
    let import = import.to_str().unwrap();
    kilnyard(&[&["resolve", "--ecosystem", "pkgsrc", "--import", import], more].concat())
}

fn depends(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("DEPENDS=")).collect()
}

fn a_scan_is_resolved_and_reported() {
    let folder = folder("resolve");
    let path = folder.path().join("scan");
    std::fs::write(&path, SCAN).unwrap();
    let ours = resolve(&path, &["--verbose"]).exits(0).says(&[
        "lib>=1: lib-1.2nb3 is used, because lib-2.0 is not built",
        "warning: top-1.0: the best match for {old,new}-[0-9]* is new-3 in a/new, not in a/old",
        "new-3: nothing matches gone-[0-9]*; a/gone offers nothing",
        "left out: top-1.0 -> new-3",
        "4 packages: 1 can be built, 1 are left out by their own makefiles, 1 cannot be resolved",
    ]);
    assert_eq!(depends(&ours.stdout), ["DEPENDS=lib-1.2nb3 new-3"]);
    assert!(ours.stdout.contains("PKG_FAIL_REASON=\"could not resolve dependency \"gone-[0-9]*\"\"\n"));
    let theirs = resolve(&path, &["--pbulk-rules"]).exits(0);
    assert_eq!(depends(&theirs.stdout), ["DEPENDS=lib-2.0 new-3"]);
}

/// Members of a cycle are marked, and a scan with many bad dependencies prints only a limited number of lines.
fn cycles_are_marked_and_remarks_bounded() {
    let folder = folder("cycles");
    let path = folder.path().join("scan");
    let round = |one: &str, two: &str| {
        format!("PKGNAME={one}-1\nPKG_LOCATION=a/{one}\nALL_DEPENDS={two}-[0-9]*:../../a/{two}\n")
    };
    let bad: String = (0..500).map(|number| format!(" gone{number}-[0-9]*:../../a/gone")).collect();
    let bad = format!("PKGNAME=bad-1\nPKG_LOCATION=a/bad\nALL_DEPENDS={bad}\n");
    std::fs::write(&path, round("x", "y") + &round("y", "x") + &bad).unwrap();
    let ended = resolve(&path, &[])
        .exits(1)
        .says(&["cycle: ", "and 480 more unmet dependencies (--verbose lists them)"]);
    assert!(
        ended.stdout.contains("PKG_FAIL_REASON=\"it is in a cycle: x-1 -> y-1 -> x-1\"\n"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.lines().count() < 40, "{}", ended.stderr);
    resolve(&path, &["--verbose"]).exits(1).says(&["nothing matches gone499-[0-9]*"]);
}

fn a_packed_scan_is_the_same() {
    let folder = folder("packed");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("plain"), SCAN).unwrap();
    std::fs::write(path("zstd"), zstd::encode_all(SCAN.as_bytes(), 1).unwrap()).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(SCAN.as_bytes()).unwrap();
    std::fs::write(path("gzip"), gzip.finish().unwrap()).unwrap();
    let expected = resolve(&path("plain"), &[]).exits(0).stdout;
    for packed in ["zstd", "gzip"] {
        let out = path(&format!("{packed}-out"));
        resolve(&path(packed), &["--export", out.to_str().unwrap()]).exits(0);
        assert_eq!(std::fs::read_to_string(out).unwrap(), expected);
    }
    // Resolving the output again gives the same result.
    std::fs::write(path("again"), &expected).unwrap();
    assert_eq!(depends(&resolve(&path("again"), &[]).exits(0).stdout), depends(&expected));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 6, "temporary files are left over");
}

fn a_bad_scan_is_reported_and_nothing_is_written() {
    let folder = folder("bad-scan");
    let (scan, out) = (folder.path().join("scan"), folder.path().join("out"));
    let out_text = out.to_str().unwrap();
    for (text, words) in [
        ("", "it has no packages"),
        ("PKGNAME=a-1\nPKG_LOCATION=../../etc\n", "line 2: PKG_LOCATION is `../../etc`"),
        ("nonsense\n", "line 1 belongs to no package"),
        ("\u{28}\u{fffd}", "line 1"),
    ] {
        std::fs::write(&scan, text).unwrap();
        resolve(&scan, &["--export", out_text]).exits(2).says(&[words]);
        assert!(!out.exists());
    }
    std::fs::write(&scan, &zstd::encode_all(SCAN.as_bytes(), 1).unwrap()[..60]).unwrap();
    resolve(&scan, &["--export", out_text]).exits(2).says(&["failed to read"]);
    resolve(&folder.path().join("absent"), &[]).exits(2).says(&["No such file"]);
    std::fs::write(&scan, SCAN).unwrap();
    resolve(&scan, &["--export", "/nowhere/out"]).exits(3).says(&["failed to write /nowhere/out"]);
    resolve(&scan, &["--export", "/dev/full"]).exits(3).says(&["No space left"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = support::command();
    command.args(["resolve", "--ecosystem", "pkgsrc", "--import"]).arg(&scan).stdout(full);
    let ended: Ended = command.output().unwrap().into();
    ended.exits(3).says(&["failed to write to standard output", "No space left"]);
}

fn one_package_is_found_in_an_index() {
    let folder = folder("index");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(
        path("summary"),
        "PKGNAME=a-1\nDEPENDS=b>=1\nDEPENDS=c-[0-9]*\nCOMMENT=an A\n\nPKGNAME=b-2\n",
    )
    .unwrap();
    kilnyard(&["index", "make", &path("summary"), &path("index")]).exits(0).says(&["2 packages"]);
    let found = kilnyard(&["index", "look-up", &path("index"), "a-1", "--json"]).exits(0).json();
    assert_eq!((&found["COMMENT"], &found["DEPENDS"][1]), (&"an A".into(), &"c-[0-9]*".into()));
    let plain = kilnyard(&["index", "look-up", &path("index"), "b-2"]).exits(0);
    assert_eq!(plain.stdout, "PKGNAME=b-2\n");
    kilnyard(&["index", "look-up", &path("index"), "c-1"]).exits(2).says(&["package c-1 not found in"]);
    kilnyard(&["index", "look-up", &path("summary"), "a-1"]).exits(2).says(&["failed to look up a-1"]);
    std::fs::write(path("summary"), "PKGNAME=a-1\n\nPKGNAME=a-1\n").unwrap();
    kilnyard(&["index", "make", &path("summary"), &path("other")]).exits(2).says(&["is a duplicate"]);
}

fn a_tree_is_measured() {
    let folder = folder("bench-tree");
    let path = folder.path().join("scan");
    let scan = SCAN
        .replace(
            "SCAN_DEPENDS=../../mk/top.mk",
            "SCAN_DEPENDS=Makefile /t/a/top/../../mk/top.mk ../lib/Makefile",
        )
        .replace("PKGNAME=lib-2.0", "SCAN_DEPENDS=Makefile ../../mk/top.mk\nPKGNAME=lib-2.0");
    std::fs::write(&path, zstd::encode_all(scan.as_bytes(), 1).unwrap()).unwrap();
    let bench = |more: &[&str]| {
        let mut command = support::command();
        command.args(["bench", "tree", "--pairs", "1", "--json"]).args(more).env("TMPDIR", folder.path());
        Ended::from(command.output().unwrap())
    };
    let found = bench(&["--scan", path.to_str().unwrap()]).exits(0).json();
    let facts = &found["facts"];
    assert_eq!(facts["packages"], 4);
    // a/lib is built before anything else, and nothing else can be built.
    assert_eq!(
        (&facts["first_build"]["packages"], &facts["first_build"]["package"]),
        (&1.into(), &"a/lib".into())
    );
    let rescan = &facts["rescan"];
    assert_eq!(rescan["is_correct"], true);
    // Two do not list the files that they read; of the others, one Makefile belongs to a single directory.
    assert_eq!((&rescan["directories"], &rescan["silent_directories"]), (&4.into(), &2.into()));
    assert_eq!((&rescan["files"], &rescan["changed"]), (&3.into(), &1.into()));
    assert_eq!((&rescan["asked_unchanged"], &rescan["asked_changed"]), (&2.into(), &3.into()));
    for figure in ["resolve_cpu_seconds", "first_build_wall_seconds", "starting_cpu_seconds"] {
        assert!(found["figures"][figure]["median"].as_f64().unwrap() > 0.0, "{figure}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the scan is left");
    bench(&[]).exits(2).says(&["--scan"]);
    bench(&["--scan", "/nonexistent"]).exits(2).says(&["failed to read /nonexistent"]);
}

fn scan(tree: &MiniTree, more: &[&str]) -> Ended {
    let path = tree.path();
    let (keep, export) = (tree.next_to("keep"), tree.next_to("scan"));
    let path = path.to_str().unwrap();
    let common = ["scan", "--trust-tree", "--ecosystem", "pkgsrc", "--tree", path, "--keep", &keep];
    let export = if more.contains(&"--json") { vec![] } else { vec!["--export", export.as_str()] };
    kilnyard(&[&common[..], &export, more].concat())
}

fn names(tree: &MiniTree) -> Vec<String> {
    let text = std::fs::read_to_string(tree.next_to("scan")).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("PKGNAME=")).map(str::to_owned).collect()
}

fn small_tree() -> MiniTree {
    MiniTree::new(&[
        ("a/top", "DEPENDS= lib>=1:../../b/lib tool-[0-9]*:../../b/tool"),
        ("a/many", "VERSIONS= 1.0 2.0"),
        ("a/skipped", "SKIP= it is not for this system"),
        ("b/lib", "DEPENDS= base-[0-9]*:../../b/base"),
        ("b/tool", ""),
        ("b/base", ""),
        ("b/alone", ""),
    ])
}

fn a_tree_is_scanned_and_only_changes_are_scanned_again() {
    let tree = small_tree();
    scan(&tree, &[]).exits(0).says(&["7 directories: 7 scanned, 0 unchanged, 0 failed"]);
    let all =
        ["top-1.0", "many-1.0", "many-2.0", "skipped-1.0", "lib-1.0", "tool-1.0", "base-1.0", "alone-1.0"];
    assert_eq!(names(&tree), all);
    let text = std::fs::read_to_string(tree.next_to("scan")).unwrap();
    assert!(text.contains(
        "PKGNAME=top-1.0\nPKG_LOCATION=a/top\nALL_DEPENDS=lib>=1:../../b/lib tool-[0-9]*:../../b/tool\n"
    ));
    assert!(text.contains("MAINTAINER=cache-yes") && !text.contains("MAINTAINER=cache-no"), "{text}");
    assert_eq!(tree.asked().len(), 7);
    let resolved =
        resolve(Path::new(&tree.next_to("scan")), &[]).exits(0).says(&["7 can be built, 1 are left out"]);
    assert!(depends(&resolved.stdout).contains(&"DEPENDS=lib-1.0 tool-1.0"));

    scan(&tree, &[]).exits(0).says(&["0 scanned, 7 unchanged"]);
    assert_eq!((tree.asked().len(), std::fs::read_to_string(tree.next_to("scan")).unwrap()), (0, text));
    // The same text with a new time is not a change; a new text is.
    tree.package("b/tool", "");
    tree.package("b/lib", "DEPENDS= base>=1:../../b/base");
    scan(&tree, &[]).exits(0).says(&["1 scanned, 6 unchanged"]);
    assert_eq!(tree.asked(), ["lib"]);
    // If a file that every package reads changes, every package is scanned again.
    let common = std::fs::read_to_string(tree.path().join("mk/pkg.mk")).unwrap();
    tree.write("mk/pkg.mk", &format!("# changed\n{common}"));
    scan(&tree, &["--json"]).exits(0);
    assert_eq!(tree.asked().len(), 7);
}

fn a_part_of_a_tree_includes_its_dependencies() {
    let tree = small_tree();
    scan(&tree, &["a/top"]).exits(0).says(&["4 directories: 4 scanned"]);
    assert_eq!(names(&tree), ["top-1.0", "base-1.0", "lib-1.0", "tool-1.0"]);
    // The scan of the whole tree uses the answers of the partial scan.
    scan(&tree, &[]).exits(0).says(&["7 directories: 3 scanned, 4 unchanged"]);
    scan(&tree, &["a/nothing"]).exits(2).says(&["a/nothing is not a directory"]);
    scan(&tree, &["nothing"])
        .exits(2)
        .says(&["nothing is not a category of", "there is no nothing/Makefile"]);
    // A category has the directories that its Makefile lists.
    scan(&tree, &["b", "a/skipped"]).exits(0).says(&["5 directories: 0 scanned, 5 unchanged"]);
    assert_eq!(names(&tree), ["skipped-1.0", "alone-1.0", "base-1.0", "lib-1.0", "tool-1.0"]);
    tree.write("b/Makefile", "SUBDIR= lib alone\n# SUBDIR+= tool\n.include \"../mk/subdir.mk\"\n");
    scan(&tree, &["b"]).exits(0).says(&["3 directories: "]);
    assert_eq!(names(&tree), ["alone-1.0", "base-1.0", "lib-1.0"]);
    tree.write("b/Makefile", ".error this category is broken\n");
    scan(&tree, &["b"])
        .exits(2)
        .says(&["failed to list the categories of the tree", "this category is broken"]);
    scan(&tree, &["../../etc"]).exits(2).says(&["is not a directory"]);
}

fn a_directory_that_cannot_be_scanned_is_reported_and_the_rest_continues() {
    let tree = small_tree();
    tree.write("b/tool/Makefile", ".error this package is broken\n");
    tree.write("b/base/Makefile", "pbulk-index:\n\t@echo nonsense\n");
    std::fs::remove_dir_all(tree.path().join("b/alone")).unwrap();
    let ended = scan(&tree, &[]).exits(1);
    ended.clone().says(&[
        "failed: b/tool: ",
        "this package is broken",
        "failed: b/base: ",
        "nonsense",
        "failed: b/alone: ",
    ]);
    assert_eq!(names(&tree), ["top-1.0", "many-1.0", "many-2.0", "skipped-1.0", "lib-1.0"]);
    let result = scan(&tree, &["--json"]).exits(1).json();
    assert_eq!((&result["asked"], &result["reused"]), (&3.into(), &4.into()));
    assert_eq!(result["failed"].as_array().map(Vec::len), Some(3), "{result}");
    tree.package("b/tool", "");
    scan(&tree, &[]).exits(1).says(&["2 failed"]);
    assert!(names(&tree).contains(&"tool-1.0".to_owned()));
}

fn a_killed_scan_resumes() {
    let tree = small_tree();
    // The last directory waits until the trial removes a file.
    tree.package(
        "b/alone",
        "WAIT!= touch ../../../waiting; while test -e ../../../wait; do sleep 0.05; done; echo done",
    );
    std::fs::write(tree.next_to("wait"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    for signal in [libc::SIGKILL, libc::SIGINT] {
        let path = tree.path();
        let mut command = support::command();
        command.args(["scan", "--trust-tree", "--ecosystem", "pkgsrc", "--jobs", "1", "--tree"]).arg(&path);
        command.args(["--keep", &tree.next_to("keep"), "--export", &tree.next_to("scan")]);
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let is_kept =
            || std::fs::read_to_string(tree.next_to("keep")).unwrap_or_default().matches("\nscan ").count();
        until("all but the last are kept", || is_kept() == 6);
        until("the last is asked", || std::fs::remove_file(tree.next_to("waiting")).is_ok());
        // SAFETY: no memory is touched, and the child was not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = child.wait().unwrap();
        assert_eq!(status.code(), (signal == libc::SIGINT).then_some(130));
        assert!(!Path::new(&tree.next_to("scan")).exists());
    }
    assert_eq!(tree.asked().len(), 6, "a finished directory was scanned again");
    std::fs::remove_file(tree.next_to("wait")).unwrap();
    scan(&tree, &[]).exits(0).says(&["1 scanned, 6 unchanged"]);
    assert_eq!(names(&tree).len(), 8);
}

fn a_hanging_directory_is_killed() {
    let tree = small_tree();
    tree.package("b/alone", "WAIT!= exec sleep 60.5");
    let limit = ["--scan-minutes-max", "0.02"];
    scan(&tree, &limit).exits(1).says(&[
        "failed: b/alone: ",
        "did not finish within 1 s (--scan-minutes-max)",
        "7 directories: 7 scanned, 0 unchanged, 1 failed",
    ]);
    assert_eq!(names(&tree).len(), 7);
    for wrong in ["0", "-1", "NaN", "much"] {
        scan(&tree, &[&format!("--scan-minutes-max={wrong}")[..]]).exits(2).says(&["--scan-minutes-max"]);
    }
}

fn makefiles_run_as_root_only_on_request() {
    if !support::is_root() {
        return eprintln!("skipped: only root needs --trust-tree");
    }
    let tree = MiniTree::new(&[("a/one", "OOPS!= touch ${.CURDIR}/was-run; echo")]);
    let path = tree.path();
    let scan =
        ["scan", "--ecosystem", "pkgsrc", "--keep", &tree.next_to("keep"), "--tree", path.to_str().unwrap()];
    kilnyard(&scan).exits(2).says(&[
        "would run as root of this machine",
        "--trust-tree",
        "kilnyard init pkgsrc",
    ]);
    assert!(!path.join("a/one/was-run").exists());
    kilnyard(&[&scan[..], &["--trust-tree"]].concat()).exits(0).says(&["on this machine, as root"]);
    assert!(path.join("a/one/was-run").exists());
}

fn folders_without_a_tree_are_rejected() {
    let folder = folder("no-tree");
    let path = folder.path().to_str().unwrap();
    let scan = ["scan", "--trust-tree", "--ecosystem", "pkgsrc", "--tree"];
    kilnyard(&[&scan[..], &[path]].concat()).exits(2).says(&["is not a pkgsrc tree"]);
    kilnyard(&[&scan[..], &["/nowhere"]].concat()).exits(2).says(&["No such file"]);
    let tree = small_tree();
    let with = |more: &[&str]| kilnyard(&[&scan[..], &[tree.path().to_str().unwrap()], more].concat());
    with(&["--make", "nomake"]).exits(3).says(&["program nomake not found", "apt-get install bmake"]);
    with(&["--keep", "/nowhere/keep"]).exits(3).says(&["failed to write /nowhere/keep"]);
    tree.write("Makefile", ".error no categories today\n");
    with(&["--keep", &tree.next_to("keep")]).exits(2).says(&["no categories today"]);
}

fn whole_tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pkgsrc/pscan.zst")
}

/// The counts are those of pbulk's resolver and of bob for the same scan.
fn the_whole_tree_gives_the_results_of_pbulk() {
    for rules in [&["--pbulk-rules"][..], &[]] {
        let ended = resolve(&whole_tree(), rules).exits(0);
        assert!(ended.stderr.contains(
            "29022 packages: 27370 can be built, 1323 are left out by their own makefiles, 6 cannot"
        ));
        assert_eq!(ended.stdout.len(), 161_866_033);
    }
}

fn main() {
    let of_trees: [(&'static str, fn()); 7] = [
        ("a_hanging_directory_is_killed", a_hanging_directory_is_killed),
        (
            "a_tree_is_scanned_and_only_changes_are_scanned_again",
            a_tree_is_scanned_and_only_changes_are_scanned_again,
        ),
        ("a_part_of_a_tree_includes_its_dependencies", a_part_of_a_tree_includes_its_dependencies),
        (
            "a_directory_that_cannot_be_scanned_is_reported",
            a_directory_that_cannot_be_scanned_is_reported_and_the_rest_continues,
        ),
        ("a_killed_scan_resumes", a_killed_scan_resumes),
        ("folders_without_a_tree_are_rejected", folders_without_a_tree_are_rejected),
        ("makefiles_run_as_root_only_on_request", makefiles_run_as_root_only_on_request),
    ];
    let has_bmake = has("bmake");
    let of_trees = of_trees.map(|(name, run)| case(name, run).needs(has_bmake, "bmake is not installed"));
    let mut cases = vec![
        case("a_scan_is_resolved_and_reported", a_scan_is_resolved_and_reported),
        case("cycles_are_marked_and_remarks_bounded", cycles_are_marked_and_remarks_bounded),
        case("a_packed_scan_is_the_same", a_packed_scan_is_the_same),
        case("a_bad_scan_is_reported_and_nothing_is_written", a_bad_scan_is_reported_and_nothing_is_written),
        case("one_package_is_found_in_an_index", one_package_is_found_in_an_index),
        case("a_tree_is_measured", a_tree_is_measured),
        case("the_whole_tree_gives_the_results_of_pbulk", the_whole_tree_gives_the_results_of_pbulk)
            .needs(whole_tree().exists(), "the scan of the whole tree is not available"),
    ];
    cases.extend(of_trees);
    trials::run(cases, 2, || {});
}
