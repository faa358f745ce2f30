//! Scans of a tree in a root, and the index that they make.

use crate::fixtures::{Packages, Shared, Trial, add_line, listing, settle};
use crate::support::Yard;
use crate::support::site::SiteMirror;
use crate::support::tree::{MiniTree, source};
use std::fs;

pub const CASES: &[Trial] = &[
    ("a_scan_writes_nothing_into_the_tree", a_scan_writes_nothing),
    ("only_changed_directories_are_scanned_again", only_changed_directories),
    ("options_of_other_directories_count", options_of_another),
    ("a_directory_whose_scan_fails_is_left_out", a_directory_whose_scan_fails),
    ("a_failed_scan_removes_nothing_from_the_repository", a_failed_scan_removes_nothing),
    ("a_scan_of_another_machine_refers_to_the_same_tree", a_scan_of_another_machine),
    ("a_truncated_journal_is_harmless", a_truncated_journal),
    ("a_hanging_directory_is_killed_and_left_out", a_hanging_directory),
    ("a_category_stands_for_its_directories", a_category),
    ("a_missing_or_truncated_index_is_remade", a_missing_or_truncated_index),
    ("packages_wait_for_files_that_a_person_has_to_get", files_that_a_person_gets),
];

fn tree() -> MiniTree {
    MiniTree::new(&[
        ("a/one", ""),
        ("a/two", "DEPENDS= one-[0-9]*:../../a/one"),
        ("b/three", "VERSIONS= 1.0 2.0"),
        ("b/four", "DEPENDS= two-[0-9]*:../../a/two"),
    ])
}

fn a_scan_writes_nothing(shared: &Shared) {
    let tree = tree();
    tree.package("a/one", "WRITTEN!= touch ${.CURDIR}/written ${.CURDIR}/../../written 2>&1; echo written");
    settle();
    let before = listing(&tree.path());
    let yard = shared.yard("writes", &tree, &[]);
    yard.run(&["scan"]).exits(0).says(&["4 directories: 4 scanned, 0 unchanged, 0 failed"]);
    yard.run(&["build"]).exits(0).says(&["5 built"]);
    assert_eq!(listing(&tree.path()), before);
    assert_eq!(tree.asked(), [""; 0], "a process wrote next to the tree");
    yard.is_clean();
}

fn only_changed_directories(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("asked", &tree, &[]);
    yard.run(&["scan"]).exits(0).says(&["4 scanned, 0 unchanged", "listing the categories"]);
    yard.run(&["scan"]).exits(0).says(&["0 scanned, 4 unchanged"]);
    add_line(&tree, "a/two/Makefile", "# changed");
    yard.run(&["scan"]).exits(0).says(&["1 scanned, 3 unchanged"]);
    // The same text with a new time is not a change. A change of a file that every package reads affects all of them.
    tree.write("b/four/Makefile", &fs::read_to_string(tree.path().join("b/four/Makefile")).unwrap());
    settle();
    yard.run(&["scan"]).exits(0).says(&["0 scanned, 4 unchanged"]);
    add_line(&tree, "mk/sites.mk", "# changed");
    yard.run(&["scan"]).exits(0).says(&["4 scanned, 0 unchanged"]);
    // A partial scan includes its dependencies, and shares its answers with a scan of the whole tree.
    yard.change("packages = \"all\"", "packages = [\"a/two\"]");
    yard.run(&["scan"]).exits(0).says(&["2 directories: 0 scanned, 2 unchanged"]);
    yard.change("packages = [\"a/two\"]", "packages = \"all\"");
    yard.run(&["scan"]).exits(0).says(&["4 directories: "]);
    assert_eq!(yard.to_build().len(), 5);
}

/// A package runs another make to get the options of a library; the files that this make reads are not reported.
fn options_of_another(shared: &Shared) {
    let tree = tree();
    tree.write(
        "mk/pkg-build-options.mk",
        "PKG_BUILD_OPTIONS.${pkgbase}!= cd ${BUILDLINK_PKGSRCDIR.${pkgbase}} && ${MAKE} show-var VARNAME=PKG_OPTIONS\n",
    );
    tree.package("a/one", ".sinclude \"options.mk\"");
    tree.write(
        "a/one/buildlink3.mk",
        "pkgbase= one\nBUILDLINK_PKGSRCDIR.one= ../../a/one\n.include \"../../mk/pkg-build-options.mk\"\n",
    );
    let skip = ".if !empty(PKG_BUILD_OPTIONS.one:Mgrand)\nSKIP= one is too grand\n.endif";
    tree.package("b/four", &format!(".include \"../../a/one/buildlink3.mk\"\n{skip}"));
    settle();
    let yard = shared.yard("options", &tree, &[]);
    yard.build().exits(0).says(&["4 scanned, 0 unchanged", "5 built"]);
    yard.run(&["scan"]).exits(0).says(&["0 scanned, 4 unchanged"]);
    // A new file: the answer of a/one itself did not depend on it, and stays the same.
    tree.write("a/one/options.mk", "PKG_OPTIONS= small\n");
    settle();
    yard.run(&["scan"]).exits(0).says(&["1 scanned, 3 unchanged"]);
    yard.run(&["scan"]).exits(0).says(&["0 scanned, 4 unchanged"]);
    tree.write("a/one/options.mk", ".include \"more.mk\"\n");
    tree.write("a/one/more.mk", "PKG_OPTIONS= small\n");
    settle();
    yard.run(&["scan"]).exits(0).says(&["1 scanned, 3 unchanged"]);
    tree.write("a/one/more.mk", "PKG_OPTIONS= grand\n");
    settle();
    yard.build().says(&["1 scanned, 3 unchanged"]);
    assert_eq!(yard.state("b/four"), "left-out");
    yard.run(&["why", "b/four"]).exits(0).says(&["one is too grand"]);
}

fn a_directory_whose_scan_fails(shared: &Shared) {
    let tree = tree();
    tree.write("a/one/Makefile", ".error this package is broken\n");
    tree.write("b/three/Makefile", "pbulk-index:\n\t@echo nonsense\n");
    tree.package("b/five", "");
    tree.write("b/Makefile", "SUBDIR= three four five gone\n.include \"../mk/subdir.mk\"\n");
    settle();
    let yard = shared.yard("broken", &tree, &[]);
    yard.build().exits(1).says(&["6 directories: 6 scanned, 0 unchanged, 3 failed", "1 built, 5 left-out"]);
    for (package, reason) in [
        ("a/one", "this package is broken"),
        ("b/three", "nonsense"),
        ("b/gone", "its scan failed"),
        ("a/two", "nothing matches one-[0-9]*; a/one offers nothing"),
        ("b/four", "it needs a/two, which is left out"),
    ] {
        assert_eq!(yard.state(package), "left-out", "{package}");
        yard.run(&["why", package]).exits(0).says(&[reason]);
    }
    assert_eq!(yard.published(), ["five-1.0"]);
    // Failed directories are scanned again each time, and their dependents become buildable with them.
    tree.package("a/one", "");
    settle();
    yard.build().exits(1).says(&["3 scanned, 3 unchanged, 2 failed", "3 built"]);
    assert_eq!(yard.published(), ["five-1.0", "four-1.0", "one-1.0", "two-1.0"]);
}

fn a_hanging_directory(shared: &Shared) {
    let tree = tree();
    tree.package("b/three", "WAIT!= exec sleep 60.25");
    settle();
    let yard = shared.yard("hangs", &tree, &[]);
    yard.change("# scan-minutes-max = 15", "scan-minutes-max = 0.1");
    let words = ["4 scanned, 0 unchanged, 1 failed", "left out: b/three: ", "did not finish within 6 s"];
    yard.build().exits(1).says(&words).says(&["3 built"]);
    yard.run(&["why", "b/three"]).exits(0).says(&["(scan-minutes-max in kilnyard.toml)"]);
    yard.is_clean();
    for (wrong, words) in [("0", "scan-minutes-max is 0"), ("nan", "scan-minutes-max is NaN")] {
        yard.change("scan-minutes-max = 0.1", &format!("scan-minutes-max = {wrong}"));
        yard.run(&["scan"]).exits(2).says(&[words, "(one second)"]);
        yard.change(&format!("scan-minutes-max = {wrong}"), "scan-minutes-max = 0.1");
    }
}

fn a_category(shared: &Shared) {
    let tree = tree();
    tree.package("b/hidden", "");
    settle();
    let yard = Yard { folder: shared.path("no-category") };
    shared.init(&yard, &tree, &["c"]).exits(2).says(&["c is not a category of", "there is no c/Makefile"]);
    assert!(!yard.folder.exists(), "a rejected init left something behind");
    let yard = shared.yard("category", &tree, &["b"]);
    yard.run(&["scan"]).exits(0).says(&["4 directories: 4 scanned"]);
    yard.build().exits(0).says(&["5 built"]);
    assert_eq!(yard.published(), ["four-1.0", "one-1.0", "three-1.0", "three-2.0", "two-1.0"]);
    // When its Makefile changes, the set changes, too.
    tree.write("b/Makefile", "SUBDIR= three hidden\n.include \"../mk/subdir.mk\"\n");
    settle();
    yard.build().exits(0).says(&["2 directories: 1 scanned, 1 unchanged", "1 built"]);
    assert_eq!(yard.published(), ["hidden-1.0", "three-1.0", "three-2.0"]);
    yard.build().exits(0).says(&["nothing to do: 3 up-to-date"]);
    // In a set, a category means its directories in the set; they can be forced, too.
    yard.change("  \"b\",\n", "  \"b\",\n  \"a/one\",\n");
    yard.run(&["build", "--dry-run", "b"]).exits(0).says(&["0 packages to build, 3 up to date"]);
    yard.run(&["build", "--force", "a"]).exits(0);
    yard.run(&["build", "--force", "b"]).exits(0).says(&["3 unchanged"]);
    assert_eq!((yard.builds("a/one"), yard.builds("b/hidden")), (2, 2));
    yard.run(&["build", "c"]).exits(2).says(&["this yard has no package c"]);
    // With an imported scan, a category has the directories that occur in the file.
    let file = tree.next_to("their-scan");
    yard.run(&["scan", "--export", &file]).exits(0);
    yard.run(&["scan", "--import", &file]).exits(0);
    yard.run(&["build", "--no-scan"]).exits(0).says(&["nothing to do: 4 up-to-date"]);
    yard.change("  \"b\",\n", "  \"c\",\n");
    yard.build().exits(2).says(&["c is not a category of", "a directory such as mail/mutt"]);
    yard.run(&["scan", "--import", &file]).exits(2).says(&["c is not a category of"]);
    yard.is_clean();
}

fn a_truncated_journal(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("journal", &tree, &[]);
    yard.run(&["scan"]).exits(0);
    let journal = fs::read(yard.path("index/scan")).unwrap();
    let index = yard.read("index/index.json");
    for part in [0, 1, 3, 5, 7, 9] {
        let mut bytes = journal[..journal.len() * part / 10].to_vec();
        fs::write(yard.path("index/scan"), &bytes).unwrap();
        yard.run(&["scan"]).exits(0).says(&["4 directories: ", " 0 failed"]);
        assert_eq!(yard.read("index/index.json"), index, "cut at {part} tenths");
        // A part that was not written completely may contain anything.
        bytes.extend([0, 255, b'\n'].repeat(1000));
        fs::write(yard.path("index/scan"), &bytes).unwrap();
        yard.run(&["scan"]).exits(0);
        assert_eq!(yard.read("index/index.json"), index, "nonsense at {part} tenths");
    }
    yard.run(&["scan"]).exits(0).says(&["0 scanned, 4 unchanged"]);
}

fn a_missing_or_truncated_index(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("index", &tree, &[]);
    yard.build().exits(0).says(&["5 built"]);
    let packed = yard.names("index").into_iter().find(|name| name.ends_with(".zst")).unwrap();
    let path = yard.path("index").join(packed);
    let nothing_to_do = || yard.build().exits(0).says(&["nothing to do: 5 up-to-date"]);
    // The scan file: the next scan makes it again.
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    yard.run(&["build", "--no-scan"]).exits(3).says(&["failed to read the index", " clean --index && "]);
    nothing_to_do();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    yard.run(&["build", "--no-scan"]).exits(3).says(&["failed to read the index", " clean --index && "]);
    yard.run(&["clean", "--index"]).exits(0);
    yard.run(&["scan"]).exits(0).says(&["4 scanned"]);
    nothing_to_do();
    // The index itself.
    let index = yard.read("index/index.json");
    for text in ["", &index[..index.len() / 2], "{}", "[1, 2"] {
        fs::write(yard.path("index/index.json"), text).unwrap();
        nothing_to_do();
        assert_eq!(yard.read("index/index.json"), index);
    }
    fs::remove_dir_all(yard.path("index")).unwrap();
    yard.run(&["build", "--no-scan"]).exits(2).says(&["has not been scanned yet", " scan"]);
    nothing_to_do();
    yard.is_clean();
}

fn a_failed_scan_removes_nothing(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("failed-scan", &tree, &["b/four", "b/three"]);
    yard.run(&["build"]).exits(0).says(&["5 built"]);
    let before = yard.names("repository/packages/All");
    // Without b/four, its dependencies are unknown, too; b/three makes two packages.
    for location in ["b/four", "b/three"] {
        let path = format!("{location}/Makefile");
        let good = fs::read_to_string(tree.path().join(&path)).unwrap();
        tree.write(&path, ".error this package is broken\n");
        settle();
        yard.run(&["build"]).exits(1);
        assert_eq!(yard.names("repository/packages/All"), before, "{location}");
        tree.write(&path, &good);
        settle();
    }
    // Dependents of a directory that could not be scanned show its error.
    tree.write("a/one/Makefile", ".error one is unknown\n");
    settle();
    yard.run(&["build"]).exits(1);
    yard.run(&["why", "a/two"]).exits(0).says(&["the scan of a/one failed", "one is unknown"]);
    assert_eq!(yard.names("repository/packages/All"), before);
    yard.is_clean();
}

fn a_scan_of_another_machine(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("imported", &tree, &[]);
    let file = tree.next_to("their-scan");
    yard.run(&["scan", "--export", &file]).exits(0);
    let ours = fs::read_to_string(&file).unwrap();
    let mut theirs = String::new();
    let mut location = "";
    for line in ours.lines() {
        location = line.strip_prefix("PKG_LOCATION=").unwrap_or(location);
        match line.strip_prefix("SCAN_DEPENDS=") {
            Some(files) => {
                let there = |file| format!("/home/them/pkgsrc/{location}/{file}");
                let files: Vec<String> = files.split(' ').map(there).collect();
                theirs.push_str(&format!("SCAN_DEPENDS={}\n", files.join(" ")));
            }
            None => theirs.push_str(&format!("{line}\n")),
        }
    }
    fs::write(&file, theirs).unwrap();
    yard.run(&["clean", "--index"]).exits(0);
    yard.run(&["scan", "--import", &file]).exits(0).says(&["a new index"]);
    yard.run(&["build", "--no-scan"]).exits(0).says(&["5 built"]);
    yard.run(&["build", "--no-scan"]).exits(0).says(&["nothing to do"]);
    // The files that the other machine's make read count here, too.
    add_line(&tree, "mk/sites.mk", "# changed");
    yard.run(&["build", "--no-scan", "--dry-run"]).exits(0).says(&["source file mk changed"]);
    yard.run(&["scan", "--import", &tree.next_to("nothing")]).exits(2).says(&["No such file"]);
    yard.is_clean();
}

fn files_that_a_person_gets(shared: &Shared) {
    let licensed = |name: &str| {
        format!(
            "DISTFILES= {name}-1.0.tar.gz\nINTERACTIVE_STAGE= fetch\nFETCH_MESSAGE= \"Accept the licence of ${{DISTFILES}}\" \\\n\
             \t\"at https://licences.example/?{name}\"\n_FETCH_MESSAGE= ${{FETCH_MESSAGE}}"
        )
    };
    let (one, two) = (licensed("one"), licensed("two"));
    let tree = MiniTree::new(&[
        ("a/free", ""),
        ("a/one", &one),
        ("a/two", &two),
        ("b/needs", "DEPENDS= one-[0-9]*:../../a/one"),
    ]);
    for name in ["one", "two"] {
        let bytes = source(&format!("{name}-1.0"), "only for who accepts\n");
        tree.distfile(&format!("a/{name}"), &format!("{name}-1.0.tar.gz"), &bytes);
    }
    let aside = |name: &str| tree.sites().join(format!("{name}-1.0.tar.gz"));
    let yard = shared.yard("licensed", &tree, &[]);
    let mirror = SiteMirror::start(
        yard.path("site"),
        &format!("[distfiles]\nchecksums = [\"{}\"]\n", tree.path().display()),
    );
    yard.change("# url = \"http://mirror.example:3142\"", &format!("url = \"{}\"", mirror.url));
    yard.run(&["scan"]).exits(0);
    yard.run(&["plan"]).exits(0).says(&[
        "a/one",
        "it waits for what a person has to get: one-1.0.tar.gz (Accept the licence of one-1.0.tar.gz at https://licences.example/?one)",
    ]);
    // A set that grows by directories that are known waits for them, too.
    yard.change("packages = \"all\"", "packages = [\"a/free\"]");
    yard.run(&["scan"]).exits(0);
    yard.change("packages = [\"a/free\"]", "packages = \"all\"");
    yard.build().exits(1).says(&["1 built", "3 left-out"]);
    assert_eq!(yard.published(), ["free-1.0"]);
    yard.run(&["why", "b/needs"]).exits(0).says(&["it needs a/one, which is left out", "it waits for"]);
    // Another file of this name, on a mirror without checksums, is not taken.
    let other = shared.path("licensed-other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("one-1.0.tar.gz"), "another file").unwrap();
    let lying = SiteMirror::start(other.clone(), "[distfiles]\n");
    lying.run(&["add", "--unlisted", "one-1.0.tar.gz"]).exits(0);
    yard.change(&mirror.url, &lying.url);
    yard.run(&["scan"]).exits(0).says(&["one-1.0.tar.gz cannot be taken", "it is not what distinfo says"]);
    assert_eq!(yard.names("distfiles/pkgsrc"), Vec::<String>::new());
    yard.change(&lying.url, &mirror.url);
    // On the mirror, by its command.
    mirror.run(&["add", aside("one").to_str().unwrap()]).exits(0).says(&["added; for a/one"]);
    yard.build().exits(1).says(&["one-1.0.tar.gz is from the mirror", "2 built", "1 left-out"]);
    assert_eq!(yard.published(), ["free-1.0", "needs-1.0", "one-1.0"]);
    // In the folder of distfiles, by hand.
    fs::copy(aside("two"), yard.path("distfiles/pkgsrc/two-1.0.tar.gz")).unwrap();
    yard.build().exits(0).says(&["1 built"]);
    assert_eq!(yard.published(), ["free-1.0", "needs-1.0", "one-1.0", "two-1.0"]);
    yard.is_clean();
}
