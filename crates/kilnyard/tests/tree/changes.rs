//! Which packages are rebuilt after a change, and which are not.

use crate::fixtures::{ALL, Packages, Shared, Trial, add_line, begin, processes, said, serve, settle};
use crate::support::server::Server;
use crate::support::site::SiteMirror;
use crate::support::tree::{MiniTree, source};
use crate::support::{Ended, Yard, until};
use std::fs;
use std::process::Command;

pub const CASES: &[Trial] = &[
    ("missing_and_truncated_files_are_noticed", missing_and_truncated_files),
    ("a_damaged_package_that_fails_again_does_not_block_others", broken_for_good),
    ("a_build_that_outgrew_its_memory_gets_more", outgrown),
    ("a_recipe_change_rebuilds_only_affected_packages", a_recipe_change),
    ("a_rules_change_rebuilds_everything", a_rules_change),
    ("a_setting_affects_only_the_packages_that_it_concerns", affected_by_a_setting),
    ("a_new_version_replaces_the_old_one", a_new_version),
    ("a_base_root_change_keeps_a_kit_that_still_runs", another_base),
    ("the_requested_set_can_grow_and_shrink", the_requested_set),
    ("a_part_of_a_tree_is_planned_and_built_alone", a_part),
    ("an_interrupted_forced_run_is_resumed", a_forced_run),
    ("run_results_are_distinguished", run_results),
    ("a_run_of_a_part_leaves_the_report_of_the_whole_set", a_report_of_a_part),
    ("a_failed_recipe_that_was_fixed_is_tried_again", a_fixed_recipe),
    ("a_retry_rereads_a_recipe_fixed_during_the_run", a_recipe_fixed_during_the_run),
    ("a_truncated_distfile_is_fetched_again", a_truncated_distfile),
    ("distfiles_come_from_the_mirror_of_the_site_and_go_to_it", a_mirror_of_the_site),
    ("a_benchmark_does_not_touch_its_yard", a_benchmark),
    ("a_patch_of_the_tree_is_tried_beside_the_yard", a_tried_patch),
];

/// A chain of three packages, one package with a source, and one without dependencies.
pub fn tree() -> MiniTree {
    let tree = MiniTree::new(&[
        ("chain/base", "do-build:\n\t@if test -f files/greeting; then cat files/greeting; fi\n"),
        ("chain/lib", "BUILD_DEPENDS= base-[0-9]*:../../chain/base"),
        ("chain/app", "DEPENDS= lib>=1.0:../../chain/lib"),
        ("lone/alone", "PKG_OPTIONS_VAR= PKG_OPTIONS.alone"),
        ("lone/single", "DISTFILES= single-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content"),
    ]);
    tree.distfile("lone/single", "single-1.0.tar.gz", &source("single-1.0", "a source\n"));
    settle();
    tree
}

const EVERYTHING: [&str; 5] = ["chain/app", "chain/base", "chain/lib", "lone/alone", "lone/single"];

/// A yard in which the whole tree is built.
fn built(shared: &Shared, name: &str, tree: &MiniTree) -> Yard {
    let yard = shared.yard(name, tree, &[]);
    yard.build().exits(0).says(&["5 built", "repository (published, 5 packages)"]);
    yard
}

/// A patch of a file of the tree, for `patch -p1`.
fn patch(tree: &MiniTree, file: &str, change: impl Fn(&str) -> String) -> String {
    let (path, changed) = (tree.path().join(file), tree.path().join("changed"));
    fs::write(&changed, change(&fs::read_to_string(&path).unwrap())).unwrap();
    let labels = ["--label", &format!("a/{file}"), "--label", &format!("b/{file}")];
    let ended = Command::new("diff").arg("-u").args(labels).arg(path).arg(&changed).output();
    fs::remove_file(changed).unwrap();
    String::from_utf8(ended.expect("this trial needs diff").stdout).unwrap()
}

fn a_tried_patch(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = built(shared, "tried", &tree);
    let before = (yard.published(), yard.summary());
    let write = |name: &str, text: String| {
        let path = shared.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let recipe = |line: &str| patch(&tree, "chain/lib/Makefile", |text| format!("{line}\n{text}"));
    let better = write("better.patch", recipe("COMMENT= A better library"));
    yard.run(&["try", &better]).exits(0).says(&["making the try 1", "try 1: 1 package built, 1 unchanged"]);
    let of_try = Yard { folder: yard.path("tries/1") };
    assert!(of_try.summary().contains("COMMENT=A better library\n"));
    let broken = write("broken.patch", recipe("do-build:\n\t@false"));
    yard.run(&["try", "--name", "broken", &broken]).exits(1).says(&["newly failing: chain/app, chain/lib"]);
    // A patch of something else fits nothing, and is no try.
    let other = write("other.patch", recipe("COMMENT= x").replace("lib/", "none/"));
    yard.run(&["try", "--name", "other", &other]).exits(2).says(&["failed to apply"]);
    assert!(!yard.path("tries/other").exists());
    // The yard and its tree are as they were.
    assert_eq!((yard.published(), yard.summary()), before);
    yard.build().exits(0).says(&["nothing to do: 5 up-to-date"]);
    for name in ["1", "broken"] {
        yard.run(&["try", "--remove", name]).exits(0);
    }
    yard.is_clean();
}

/// The file in the store of a published package.
fn stored(yard: &Yard, package: &str) -> std::path::PathBuf {
    let hash = crate::support::archive::hex_of(&fs::read(yard.path(ALL).join(package)).unwrap());
    let folder = yard.path("distfiles").join(&hash[..2]);
    folder.join(hash)
}

fn missing_and_truncated_files(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = built(shared, "files", &tree);
    yard.build().exits(0).says(&["nothing to do: 5 up-to-date", "repository (unchanged, 5 packages)"]);
    let before = yard.summary();
    // A cached plan notices that the file is missing, and that it is back.
    let (path, aside) = (stored(&yard, "lib-1.0.tgz"), yard.path("aside"));
    fs::rename(&path, &aside).unwrap();
    assert_eq!(yard.to_build(), ["chain/app", "chain/lib"]);
    fs::rename(&aside, &path).unwrap();
    assert_eq!(yard.to_build(), [""; 0]);
    fs::remove_file(path).unwrap();
    // The repository has a hard link, which must not change.
    let path = stored(&yard, "alone-1.0.tgz");
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    yard.run(&["build", "--dry-run"]).exits(0).says(&["3 packages to build, 2 up to date"]);
    assert_eq!(yard.to_build(), ["chain/app", "chain/lib", "lone/alone"]);
    let reasons = yard.planned();
    assert!(reasons[1].2.contains("lib-1.0.tgz is missing or damaged"), "{reasons:?}");
    yard.build().exits(0);
    let builds: Vec<usize> = EVERYTHING.iter().map(|package| yard.builds(package)).collect();
    assert_eq!(builds, [1, 1, 2, 2, 1]);
    assert_eq!(yard.summary(), before);
    yard.build().exits(0).says(&["nothing to do: 5 up-to-date"]);
    yard.is_clean();
}

fn broken_for_good(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = built(shared, "broken-for-good", &tree);
    fs::remove_file(stored(&yard, "lib-1.0.tgz")).unwrap();
    tree.package("chain/lib", "BUILD_DEPENDS= base-[0-9]*:../../chain/base\ndo-build:\n\t@false");
    add_line(&tree, "lone/alone/Makefile", "COMMENT= Another alone");
    // The repository still has an intact file of the package.
    let said = ["lib-1.0.tgz is missing or damaged: it stays published as it is", "(published, 5"];
    yard.build().exits(1).says(&said);
    assert!(yard.summary().contains("COMMENT=Another alone\n"));
    assert_eq!(yard.published().len(), 5);
    yard.run(&["publish"]).exits(0).says(&["it stays published as it is", "unchanged"]);
    // Now the published file is damaged, too.
    let path = yard.path(ALL).join("lib-1.0.tgz");
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &bytes[1..]).unwrap();
    yard.run(&["publish"]).exits(0).says(&["it is not published", "published: 4 packages"]);
    assert_eq!(yard.published(), ["alone-1.0", "app-1.0", "base-1.0", "single-1.0"]);
}

/// A build that fails after it wrote more than could be expected.
fn outgrown(shared: &Shared) {
    let large = "do-build:\n\t@stat -f -c 'it works on %T' ${WRKDIR}\n\
                 \t@dd if=/dev/zero of=${WRKDIR}/large bs=1048576 count=100 2>/dev/null\n\t@false";
    let tree = MiniTree::new(&[("big/large", large)]);
    let yard = shared.yard("outgrown", &tree, &[]);
    let works_on = |kind: &str| {
        yard.build().exits(1).says(&["failed: big/large"]);
        yard.run(&["log", "big/large", "build"]).exits(0).says(&[&format!("it works on {kind}")]);
    };
    // The build started in memory, and was repeated on the disk.
    works_on("overlayfs");
    works_on("tmpfs");
    yard.is_clean();
    // The memory of a killed run is freed: no process holds its work folder any more.
    let folder = "do-build:\n\t@touch ${WRKDIR}/mark; sleep 60.75";
    tree.package("big/large", folder);
    settle();
    let mut started = begin(&yard, &[]);
    until("it is being built", || processes().contains(&"sleep 60.75".to_owned()));
    let holders = || sandboxes_in(&yard.folder);
    assert!(holders() > 1, "no process holds the folder in memory");
    started.signal(libc::SIGKILL);
    started.end();
    until("no process of the build runs", || {
        !processes().contains(&"sleep 60.75".to_owned()) && holders() == 0
    });
}

/// Number of processes whose current folder is this one.
fn sandboxes_in(folder: &std::path::Path) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder)).count()
}

/// Builds again, and returns how often each package was built by that.
fn builds_of(yard: &Yard) -> Vec<usize> {
    let count = || EVERYTHING.iter().map(|package| yard.builds(package)).collect::<Vec<_>>();
    let before = count();
    yard.build().exits(0);
    count().iter().zip(before).map(|(after, before)| after - before).collect()
}

fn a_recipe_change(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = built(shared, "recipe", &tree);
    // A new file that does not change the content of the package: it is built, and is unchanged.
    tree.write("chain/base/files/greeting", "good morning\n");
    settle();
    assert_eq!(yard.to_build(), ["chain/app", "chain/base", "chain/lib"]);
    assert_eq!(yard.planned()[1].2, "source file files/greeting was added");
    assert_eq!(yard.planned()[2].2, "rebuilt if the content of chain/base changes");
    assert_eq!(builds_of(&yard), [0, 1, 0, 0, 0]);
    assert_eq!(
        yard.states(&EVERYTHING),
        ["up-to-date", "unchanged", "up-to-date", "up-to-date", "up-to-date"]
    );
    // A new content: its dependent is built and is unchanged, so the next dependent is not built.
    add_line(&tree, "chain/base/Makefile", "COMMENT= A base of another kind");
    assert_eq!(builds_of(&yard), [0, 1, 1, 0, 0]);
    assert_eq!(yard.states(&EVERYTHING), ["up-to-date", "built", "unchanged", "up-to-date", "up-to-date"]);
    assert!(yard.summary().contains("COMMENT=A base of another kind\n"));
    // A patch.
    tree.write(
        "lone/single/patches/patch-content",
        "$NetBSD$\n\n--- content.orig\n+++ content\n@@ -1 +1 @@\n-a source\n+a mended source\n",
    );
    settle();
    assert_eq!(builds_of(&yard), [0, 0, 0, 0, 1]);
    yard.run(&["log", "lone/single", "build"]).exits(0).says(&["a mended source"]);
    yard.build().exits(0).says(&["nothing to do: 5 up-to-date"]);
}

fn a_rules_change(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = built(shared, "rules", &tree);
    add_line(&tree, "mk/pkg.mk", "# nothing of importance");
    yard.run(&["scan"]).exits(0).says(&["5 directories: 5 scanned"]);
    assert_eq!(yard.to_build(), EVERYTHING);
    assert_eq!(yard.planned()[1].2, "source file mk changed");
    let before = yard.summary();
    assert_eq!(builds_of(&yard), [1; 5]);
    assert_eq!(yard.states(&EVERYTHING), ["unchanged"; 5]);
    assert_eq!(yard.summary(), before);
    yard.build().exits(0).says(&["nothing to do: 5 up-to-date"]);
}

fn affected_by_a_setting(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let settings = tree.next_to("mk.conf");
    fs::write(&settings, "# mine\n").unwrap();
    let yard = shared.yard("settings", &tree, &["--mk-conf", &settings]);
    yard.build().exits(0).says(&["5 built"]);
    fs::write(&settings, "# mine\nPKG_OPTIONS.absent= fast\n").unwrap();
    assert_eq!(builds_of(&yard), [0; 5]);
    fs::write(&settings, "# mine\nPKG_OPTIONS.absent= fast\nPKG_OPTIONS.alone= fast\n").unwrap();
    assert_eq!(yard.to_build(), ["lone/alone"]);
    assert!(yard.planned()[0].2.contains("mk.conf"), "{:?}", yard.planned());
    assert_eq!(builds_of(&yard), [0, 0, 0, 1, 0]);
    // A setting that names no package may affect all of them.
    fs::write(&settings, "# mine\nCOMMENT= by order of the house\n").unwrap();
    assert_eq!(builds_of(&yard), [1; 5]);
    assert_eq!(yard.summary().matches("COMMENT=by order of the house\n").count(), 5);
}

fn a_new_version(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = built(shared, "version", &tree);
    let makefile = fs::read_to_string(tree.path().join("chain/lib/Makefile")).unwrap();
    tree.write("chain/lib/Makefile", &makefile.replace("VERSION= 1.0", "VERSION= 1.1"));
    settle();
    assert_eq!(builds_of(&yard), [1, 0, 1, 0, 0]);
    assert_eq!(yard.published(), ["alone-1.0", "app-1.0", "base-1.0", "lib-1.1", "single-1.0"]);
    assert!(!fs::read_to_string(yard.path(ALL).join("SHA512")).unwrap().contains("lib-1.0.tgz"));
    // Clients with the old index still find the file; the next repository no longer has it.
    assert!(yard.names(ALL).contains(&"lib-1.0.tgz".to_owned()));
    add_line(&tree, "lone/alone/Makefile", "COMMENT= Changed");
    yard.build().exits(0).says(&["1 built"]);
    assert!(!yard.names(ALL).contains(&"lib-1.0.tgz".to_owned()));
    // No package matches any more: this is reported, and the published package stays.
    tree.write("chain/lib/Makefile", &makefile.replace("VERSION= 1.0", "VERSION= 0.9"));
    settle();
    let words = ["left out: chain/app: nothing matches lib>=1.0; chain/lib offers lib-0.9", "1 built"];
    yard.build().exits(1).says(&words);
    // The signer has signed a later version, and wants to hear from a person that this one is meant.
    assert_eq!(yard.published(), ["alone-1.0", "app-1.0", "base-1.0", "lib-1.1", "single-1.0"]);
    yard.run(&["publish"]).exits(1).says(&[
        "the signer refuses lib-0.9",
        "1.1 was signed before",
        "keys approve",
    ]);
    yard.approve_all();
    yard.run(&["publish"]).exits(0);
    assert_eq!(yard.published(), ["alone-1.0", "app-1.0", "base-1.0", "lib-0.9", "single-1.0"]);
}

/// A package added to the base root does not affect the kit, as long as the kit runs there.
fn another_base(shared: &Shared) {
    let tree = MiniTree::new(&[("a/one", "")]);
    fs::create_dir_all(tree.path().join("bootstrap")).unwrap();
    fs::copy(tree.kit(), tree.path().join("bootstrap/kit.tar.gz")).unwrap();
    tree.write(
        "bootstrap/bootstrap",
        "tar -xzf /usr/pkgsrc/bootstrap/kit.tar.gz -C / && mkdir /usr/pkg/bin || exit 1\n\
         if test -x /usr/bin/bc; then cp /usr/bin/bc /usr/pkg/bin/calculator; fi\n",
    );
    settle();
    let yard = shared.yard("another-base", &tree, &[]);
    let config = yard.read("kilnyard.toml");
    let kit = config.lines().find(|line| line.starts_with("bootstrap-kit = ")).unwrap();
    yard.change(kit, "# bootstrap-kit");
    let first = yard.read("layers/base.json");
    let bootstraps = |ended: Ended| said(&ended.exits(0)).contains("making the bootstrap kit");
    assert!(bootstraps(yard.build()));
    let (with, without) = ("packages = [\"bc\", ", "packages = [");
    yard.change(without, with);
    let ended = yard.build();
    ended.clone().says(&["making the base root", "1 unchanged"]);
    assert!(!bootstraps(ended));
    yard.build().exits(0).says(&["nothing to do: 1 up-to-date"]);
    let second = yard.read("layers/base.json");
    assert_ne!(first, second);
    // A kit made in this base contains a program that needs the package removed next.
    fs::remove_file(yard.path("layers/kit.json")).unwrap();
    assert!(bootstraps(yard.build()));
    yard.change(with, without);
    fs::write(yard.path("layers/base.json"), &first).unwrap();
    let ended = yard.build();
    ended.clone().says(&["the bootstrap kit does not run in the new base root: ", "libreadline.so"]);
    assert!(bootstraps(ended));
    // The new kit runs in both bases.
    yard.change(without, with);
    fs::write(yard.path("layers/base.json"), &second).unwrap();
    assert!(!bootstraps(yard.build()));
    yard.is_clean();
}

fn the_requested_set(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = shared.yard("asked-for", &tree, &["chain/lib", "lone/alone"]);
    yard.build().exits(0).says(&["3 directories: 3 scanned", "3 built"]);
    assert_eq!(yard.published(), ["alone-1.0", "base-1.0", "lib-1.0"]);
    // Add a directory to the list.
    yard.change("\"lone/alone\"", "\"lone/alone\", \"lone/single\"");
    yard.build().exits(0).says(&["4 directories: 1 scanned, 3 unchanged", "1 built"]);
    // Add a new directory of the tree, and remove another from the list.
    tree.package("lone/new", "DEPENDS= base>=1:../../chain/base");
    settle();
    yard.change("\"lone/alone\", \"lone/single\"", "\"lone/new\", \"lone/single\"");
    yard.build().exits(0).says(&["4 directories: 1 scanned, 3 unchanged", "1 built"]);
    assert_eq!(yard.published(), ["base-1.0", "lib-1.0", "new-1.0", "single-1.0"]);
    // Remove a directory from the list: nothing is built, but its package leaves the repository.
    yard.change("\"lone/new\", ", "");
    yard.build().exits(0).says(&["nothing to do", "repository (published, 3 packages)"]);
    assert_eq!(yard.published(), ["base-1.0", "lib-1.0", "single-1.0"]);
    yard.is_clean();
}

fn a_forced_run(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/one", ""),
        ("b/two", "BUILD_DEPENDS= one-[0-9]*:../../a/one\ndo-build:\n\t@sleep 4.25"),
    ]);
    let yard = shared.yard("forced", &tree, &[]);
    yard.build().exits(0).says(&["2 built"]);
    let interrupt = |arguments: &[&str]| {
        let mut build = begin(&yard, arguments);
        until("the second package is built", || yard.building() == ["b/two"]);
        build.signal(libc::SIGINT);
        build.end().exits(130).says(&["interrupted; the same command resumes it"]);
    };
    interrupt(&["--force", "a/one", "b/two"]);
    yard.run(&["status"]).exits(0).says(&["build continues from here"]);
    yard.build().exits(0).says(&["resuming run 2", "2 unchanged"]);
    assert_eq!((yard.builds("a/one"), yard.builds("b/two")), (2, 3));
    // The same command also resumes the run, and an interrupted partial run resumes that part.
    interrupt(&["--force", "a/one", "b/two"]);
    yard.run(&["build", "--force", "a/one", "b/two"]).exits(0).says(&["resuming run 3", "2 unchanged"]);
    interrupt(&["--force", "b/two"]);
    yard.build().exits(0).says(&["resuming run 4", "1 unchanged"]);
    assert_eq!((yard.builds("a/one"), yard.builds("b/two")), (3, 7));
    yard.build().exits(0).says(&["nothing to do: 2 up-to-date"]);
    // If the set changed, nothing is resumed: up-to-date packages stay up to date.
    interrupt(&["--force", "a/one", "b/two"]);
    add_line(&tree, "a/one/Makefile", "COMMENT= Another one");
    yard.build().exits(0).says(&["run 5 forced builds and was interrupted", "run 6"]);
    yard.is_clean();
}

fn run_results(shared: &Shared) {
    const TWO: &str = "BUILD_DEPENDS= one-[0-9]*:../../a/one";
    let tree = MiniTree::new(&[("a/one", "do-build:\n\t@false"), ("b/two", TWO), ("c/three", "")]);
    let yard = shared.yard("came-to", &tree, &[]);
    yard.build().exits(1).says(&["1 built, 1 failed, 1 blocked"]);
    assert_eq!(yard.why("c/three")["reason"], "first build");
    let number = yard.why("a/one")["build"]["build"].clone();
    let reason = format!("no outputs yet: build {number} in run 1 failed");
    assert_eq!(yard.planned()[0].2, reason);
    tree.package("a/one", "");
    tree.package("b/two", &format!("{TWO}\ndo-build:\n\t@false"));
    let three = tree.path().join("c/three/Makefile");
    let makefile = fs::read_to_string(&three).unwrap();
    tree.write("c/three/Makefile", &makefile.replace("VERSION= 1.0", "VERSION= 1.1"));
    settle();
    let ended = yard.build().exits(1);
    assert_eq!(
        (&yard.why("a/one")["state"], &yard.why("a/one")["reason"]),
        (&"built".into(), &reason.into())
    );
    let lines = ["newly fixed: a/one", "failed, was blocked: b/two: ", "new version: c/three: 1.1, was 1.0"];
    yard.run(&["diff"]).exits(0).says(&lines);
    yard.run(&["publish", "-n"]).exits(0).says(&["nothing to publish: the repository is up to date"]);
    // The estimated minimum is the same wherever it is printed.
    let minimum =
        |text: &str| text.split("minimum: ").nth(1).unwrap().split([';', '\n']).next().unwrap().to_owned();
    let status = yard.run(&["status"]).exits(0);
    assert_eq!(minimum(&ended.stderr), minimum(&status.stdout));
    assert!(minimum(&status.stdout).contains(" (measured)"));
}

fn a_report_of_a_part(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = built(shared, "report-of-a-part", &tree);
    let whole = yard.read("report/latest/report.json");
    // Reports of the same minute share a folder, as in pbulk.
    let folders = || yard.names("report/pbulk").into_iter().filter(|name| name != "report.txt");
    let first = yard.path("report/pbulk").join(folders().next().unwrap());
    fs::rename(&first, yard.path("report/pbulk/20010203.0405")).unwrap();
    yard.run(&["build", "--force", "lone/single"]).exits(0).says(&["1 unchanged", "report/2/index.html"]);
    assert_eq!(yard.read("report/latest/report.json"), whole);
    let part: serde_json::Value = serde_json::from_str(&yard.read("report/2/report.json")).unwrap();
    assert_eq!((&part["run"], &part["counts"]["total"]), (&2.into(), &1.into()));
    // Its links lead to its own files, of which the logs of what was built are none by default.
    assert!(part["packages"][0]["stages"][0]["log"].is_null(), "{part}");
    assert_eq!(fs::read_link(yard.path("report/latest")).unwrap(), std::path::Path::new("1"));
    let folders: Vec<String> = folders().collect();
    assert_eq!((folders.len(), &*folders[0]), (2, "20010203.0405"));
    let report = yard.read(&format!("report/pbulk/{}/meta/report", folders[1]));
    assert_eq!(report.matches("BUILD_STATUS=done\n").count(), 5, "{report}");
    // A new version of a built package is open again.
    let makefile = fs::read_to_string(tree.path().join("lone/alone/Makefile")).unwrap();
    tree.write("lone/alone/Makefile", &makefile.replace("VERSION= 1.0", "VERSION= 1.1"));
    settle();
    yard.run(&["build", "--force", "lone/single"]).exits(0);
    let report = yard.read(&format!("report/pbulk/{}/meta/report", yard.names("report/pbulk")[1]));
    assert_eq!(report.matches("BUILD_STATUS=open\n").count(), 1, "{report}");
}

fn a_part(shared: &Shared) {
    let tree = tree();
    let server = serve(&tree);
    let yard = shared.yard("part", &tree, &[]);
    // Without an index, the dry run makes one, and nothing else.
    yard.run(&["build", "--dry-run"]).exits(0).says(&["5 packages to build"]);
    let part = yard.run(&["build", "--dry-run", "chain/lib"]).exits(0).says(&["2 packages to build"]);
    assert!(!part.stdout.contains("lone/alone"), "{}", part.stdout);
    assert!(!yard.path(ALL).exists() && server.answers("/single-1.0.tar.gz").is_empty());
    let plan = yard.run(&["plan", "--json"]).exits(0).json();
    let rows = plan["packages"].as_array().unwrap();
    let app = rows.iter().find(|row| row["name"] == "chain/app").unwrap();
    assert_eq!((&app["state"], &app["version"]), (&"waiting".into(), &"1.0".into()));
    assert_eq!(app["dependencies"], serde_json::json!(["chain/lib"]));
    assert_eq!(plan["path"], serde_json::json!(["chain/base", "chain/lib", "chain/app"]));
    assert_eq!(yard.run(&["deps", "chain/app"]).exits(0).stdout, "chain/lib\n");
    let tree_of = yard.run(&["deps", "chain/app", "--tree"]).exits(0).stdout;
    assert_eq!(tree_of, "chain/app\n  chain/lib\n    chain/base\n");
    assert_eq!(yard.run(&["rdeps", "chain/base", "--all"]).exits(0).stdout, "chain/app\nchain/lib\n");
    let impact = yard.run(&["impact", "chain/base", "--json"]).exits(0).json();
    let rebuilt: Vec<&str> =
        impact["rebuilt"].as_array().unwrap().iter().map(|row| row["package"].as_str().unwrap()).collect();
    assert_eq!(rebuilt, ["chain/lib", "chain/app"]);
    assert!(impact["path_seconds"].as_f64().unwrap() > 0.0, "{impact}");
    yard.run(&["impact", "chain/lib"]).exits(0).says(&["depends on chain/lib", "at most 2 packages of 5"]);
    yard.run(&["impact"]).exits(2).says(&["no packages given", "--commit REV"]);
    yard.run(&["rdeps", "chain/bas"]).exits(2).says(&["chain/bas is not a package", "chain/base"]);

    yard.run(&["build", "chain/app"]).exits(0).says(&["3 packages, ", "3 built"]);
    assert_eq!(yard.published(), ["app-1.0", "base-1.0", "lib-1.0"]);
    yard.run(&["build", "chain/nothing"])
        .exits(2)
        .says(&["this yard has no package chain/nothing", "plan lists them"]);
    yard.run(&["build", "--force", "chain/lib"]).exits(0).says(&["1 unchanged"]);
    assert_eq!((yard.builds("chain/base"), yard.builds("chain/lib")), (1, 2));
    yard.run(&["build", "--check-reproducible", "lone/alone"]).exits(0);
    yard.build().exits(0).says(&["1 built"]);
    yard.build().exits(0).says(&["nothing to do: 5 up-to-date"]);
}

fn a_fixed_recipe(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/broken", "do-build:\n\t@echo 'x.c:1: error: no' >&2; exit 1"),
        ("a/after", "DEPENDS= broken-[0-9]*:../../a/broken"),
    ]);
    let yard = shared.yard("mended", &tree, &[]);
    yard.build().exits(1);
    assert_eq!(yard.states(&["a/broken", "a/after"]), ["failed", "blocked"]);
    yard.run(&["retry", "a/after"]).exits(2).says(&["retry a/broken, which is to blame"]);
    yard.run(&["retry", "a/broken"]).exits(0).says(&["the next run"]);
    tree.package("a/broken", "");
    settle();
    yard.build().exits(0).says(&["2 built"]);
    assert_eq!(yard.published(), ["after-1.0", "broken-1.0"]);
    // If a new version fails, the working version stays published.
    tree.package("a/broken", "VERSION= 2.0\ndo-build:\n\t@false");
    settle();
    yard.build().exits(1).says(&["1 failed, 1 blocked"]);
    assert_eq!(yard.published(), ["after-1.0", "broken-1.0"]);
    yard.run(&["diff"]).exits(0).says(&["newly failing: a/broken"]);
}

fn a_recipe_fixed_during_the_run(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/broken", "do-build:\n\t@echo 'x.c:1: error: no' >&2; exit 1"),
        ("a/after", "DEPENDS= broken-[0-9]*:../../a/broken"),
        // Keeps the run open.
        ("b/slow", "do-build:\n\t@sleep 600.5"),
    ]);
    tree.distfile("a/broken", "broken-1.0.tar.gz", &source("broken-1.0", "a source\n"));
    let _server = serve(&tree);
    // The recipe does not list its source yet.
    fs::remove_file(tree.path().join("a/broken/distinfo")).unwrap();
    let yard = shared.yard("mended-meanwhile", &tree, &[]);
    let mut run = begin(&yard, &[]);
    let is = |states: [&str; 2]| yard.states(&["a/broken", "a/after"]) == states;
    until("the slow one is being built", || yard.building().contains(&"b/slow".to_owned()));
    until("it has failed", || yard.builds("a/broken") == 1 && is(["failed", "blocked"]));
    // Its dependencies now differ from those in the run's plan.
    tree.package("a/broken", "DEPENDS= slow-[0-9]*:../../b/slow");
    settle();
    yard.run(&["retry", "a/broken"]).exits(0).says(&["the current run"]);
    let is_reported =
        || yard.why("a/broken").to_string().contains("it now needs b/slow, which is not built yet");
    until("it is explained", is_reported);
    assert_eq!(yard.builds("a/broken"), 1);
    // A new version, with a source that is fetched first.
    tree.package("a/broken", "VERSION= 2.0\nDISTFILES= broken-1.0.tar.gz\nWRKSRC= ${WRKDIR}/broken-1.0\ndo-build:\n\t@cat ${WRKSRC}/content");
    tree.distfile("a/broken", "broken-1.0.tar.gz", &source("broken-1.0", "a source\n"));
    settle();
    yard.run(&["retry", "a/broken"]).exits(0);
    until("both are built", || is(["built", "built"]));
    yard.run(&["skip", "b/slow"]).exits(0);
    run.end().exits(0).says(&["2 built, 1 skipped"]);
    assert_eq!(yard.published(), ["after-1.0", "broken-2.0"]);
    assert_eq!((yard.builds("a/broken"), yard.builds("a/after")), (2, 1));
    // The next run computes the same key.
    tree.package("b/slow", "");
    settle();
    yard.build().exits(0).says(&["1 built, 2 up-to-date"]);
    assert_eq!((yard.builds("a/broken"), yard.builds("a/after")), (2, 1));
    yard.is_clean();
}

fn a_truncated_distfile(shared: &Shared) {
    let tree = MiniTree::new(&[("a/one", "DISTFILES= one-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content")]);
    tree.distfile("a/one", "one-1.0.tar.gz", &source("one-1.0", "a source\n"));
    let server = serve(&tree);
    let yard = shared.yard("cut-distfile", &tree, &[]);
    let kept = yard.path("distfiles/pkgsrc/one-1.0.tar.gz");
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::write(&kept, "half of").unwrap();
    yard.run(&["build"]).exits(0).says(&["1 built"]);
    assert_eq!(fs::read(&kept).unwrap(), source("one-1.0", "a source\n"));
    drop(server);
    yard.is_clean();
}

fn a_mirror_of_the_site(shared: &Shared) {
    let recipe =
        |name: &str| format!("DISTFILES= {name}-1.0.tar.gz\ndo-build:\n\t@sleep 2; cat ${{WRKSRC}}/content");
    let (one, two) = (recipe("one"), recipe("two"));
    let tree = MiniTree::new(&[("a/one", &one), ("a/two", &two)]);
    for name in ["one", "two"] {
        let source = source(&format!("{name}-1.0"), "a source\n");
        tree.distfile(&format!("a/{name}"), &format!("{name}-1.0.tar.gz"), &source);
    }
    let server = serve(&tree);
    // The mirror's origin has the first one alone: the other one is fetched from the package's own site, and uploaded.
    let origin = Server::start([("/one-1.0.tar.gz".to_owned(), source("one-1.0", "a source\n"))].into());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokens"), "secret\n").unwrap();
    let configuration = format!(
        "[distfiles]\nurls = [\"{}\"]\ntokens = \"tokens\"\nchecksums = [\"{}\"]\n",
        origin.url(),
        tree.path().display()
    );
    let mut mirror = SiteMirror::start(folder.path().to_owned(), &configuration);
    let yard_with = |name: &str| {
        let yard = shared.yard(name, &tree, &[]);
        let text = yard.read("kilnyard.toml");
        let table = format!("[mirror]\nurl = \"{}\"\ntoken-file = \"token\"\n\n[repository]", mirror.url);
        fs::write(yard.path("token"), "secret\n").unwrap();
        fs::write(
            yard.path("kilnyard.toml"),
            text.replace("[mirror]", "# mirror").replace("[repository]", &table),
        )
        .unwrap();
        yard
    };
    let first = yard_with("site-first");
    let second = yard_with("site-second");
    let pins = || {
        let lists = fs::read_dir(folder.path().join("files/pins")).into_iter().flatten().flatten();
        lists.map(|list| fs::read_to_string(list.path()).unwrap_or_default()).collect::<String>()
    };
    let mut building = first.start(&["build"]);
    until("the sources of the run are pinned", || {
        let pinned = pins();
        pinned.contains("distfiles/one-1.0.tar.gz") && pinned.contains("distfiles/two-1.0.tar.gz")
    });
    building.end().exits(0).says(&["2 built", "1 distfile uploaded to the mirror"]);
    assert_eq!(pins(), "");
    assert_eq!(server.answers("/one-1.0.tar.gz"), [0_u16; 0]);
    assert_eq!(
        (server.answers("/two-1.0.tar.gz"), origin.answers("/one-1.0.tar.gz")),
        (vec![200], vec![200])
    );
    assert_eq!(mirror.paths(), ["distfiles/one-1.0.tar.gz", "distfiles/two-1.0.tar.gz"]);
    // For another yard, both are there.
    second.run(&["build"]).exits(0).says(&["2 built"]);
    assert_eq!(
        (server.answers("/two-1.0.tar.gz"), origin.answers("/one-1.0.tar.gz")),
        (vec![200], vec![200])
    );
    // Without the mirror, builds go on as before.
    mirror.kill();
    fs::remove_file(second.path("distfiles/pkgsrc/two-1.0.tar.gz")).unwrap();
    second.run(&["build", "--force", "a/two"]).exits(0);
    assert_eq!(server.answers("/two-1.0.tar.gz"), [200, 200]);
    first.is_clean();
    second.is_clean();
}

fn a_benchmark(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("benchmark", &tree, &["lone/alone"]);
    yard.run(&["scan"]).exits(0);
    let before = (yard.names("index"), yard.names("layers"));
    let measured = yard.run(&["bench", "overhead", "--pairs", "1", "--package", "lone/alone"]);
    assert!(measured.stdout.contains("Kilnyard's own"), "{measured:?}");
    // Its own yard is gone, and this one is unchanged.
    assert_eq!((yard.names("index"), yard.names("layers")), before);
    assert!(yard.names("").iter().all(|name| !name.starts_with(".bench-")), "{:?}", yard.names(""));
}
