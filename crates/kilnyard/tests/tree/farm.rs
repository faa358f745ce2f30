//! Workers on other machines, without the tree and the yard.

use crate::fixtures::{Packages, Shared, Trial, serve, settle};
use crate::support::farm::{Far, Served};
use crate::support::tree::{MiniTree, source};
use crate::support::{Yard, until};
use kilnyard_store::{BuildRow, Store};
use kilnyard_store_sqlite::Sqlite;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub const CASES: &[Trial] = &[
    ("packages_of_a_tree_are_built_by_other_machines", build),
    ("a_tree_that_has_changed_reaches_other_machines_as_a_layer", changed),
    ("a_new_base_root_reaches_other_machines_as_a_patch", patched_base),
    ("directories_of_a_tree_are_scanned_by_other_machines", scan),
];

/// Directories of a tree that is large enough for other machines to help.
const DIRECTORIES: usize = 60;

const TARGET: &str = "pkgsrc/linux/bookworm/amd64";

fn store(yard: &Yard) -> Sqlite {
    Sqlite::open_to_read(&yard.path("state/kilnyard.db"), &TARGET.parse().unwrap()).unwrap()
}

/// The builds of the last run.
fn builds(yard: &Yard) -> Vec<BuildRow> {
    let store = store(yard);
    let run = store.last_run().unwrap().unwrap().number;
    store.builds_in(run).unwrap()
}

/// The contents of all outputs, by name.
fn contents(yard: &Yard) -> BTreeMap<String, String> {
    let outputs = store(yard).outputs().unwrap();
    outputs.into_iter().map(|row| (row.output.name, row.output.content)).collect()
}

fn build(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/base", ""),
        (
            "a/top",
            "DEPENDS= base>=1:../../a/base\nDISTFILES= top-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content",
        ),
        ("b/one", ""),
        ("b/other", ""),
    ]);
    tree.distfile("a/top", "top-1.0.tar.gz", &source("top-1.0", "a source\n"));
    let server = serve(&tree);
    let yard = shared.yard("farm", &tree, &[]);
    let served = Served::start(&yard);
    let far = Far::join_without(&shared.path("workers"), &yard, &served, "far", &[&tree.path()]);
    yard.run(&["build", "--elsewhere"]).exits(0).says(&["4 built"]);
    let all = builds(&yard);
    assert!(all.iter().all(|build| build.worker.as_deref() == Some("far")), "{all:?} {}", far.said());
    // What a machine with the tree builds is the same.
    let alone = shared.yard("farm-alone", &tree, &[]);
    alone.build().exits(0);
    assert_eq!(contents(&yard), contents(&alone));
    yard.run(&["provenance", "a/top"]).exits(0).says(&["built by far", "top-1.0.tar.gz", "tree"]);
    // A recipe that changes reaches the worker.
    tree.package("b/other", "VERSION= 2.0");
    yard.run(&["build", "--elsewhere"]).exits(0).says(&["1 built"]);
    until("the worker has logged it", || far.folder.join("worker/logs/2").exists());
    yard.run(&["log", "b/other", "build"]).exits(0);
    drop((server, served));
    yard.is_clean();
}

/// The archives in a folder, and their sizes, the smallest first.
fn archives(folder: &Path) -> Vec<u64> {
    let parts = fs::read_dir(folder).into_iter().flatten().flatten().map(|part| part.path());
    let files = parts.filter(|part| part.is_dir()).flat_map(|part| fs::read_dir(part).unwrap().flatten());
    let mut sizes: Vec<u64> = files.map(|file| file.metadata().unwrap().len()).collect();
    sizes.sort_unstable();
    sizes
}

fn changed(shared: &Shared) {
    // Whether the directory of another package is there is what it builds.
    let looks = "do-build:\n\t@ls ${.CURDIR}/../../b | sort\n\t@cat ${.CURDIR}/DESCR";
    let tree = MiniTree::new(&[("a/looks", looks), ("b/gone", ""), ("b/stays", "")]);
    // More than what a change of some files needs.
    for number in 0..300_u32 {
        tree.write(
            &format!("doc/{number}"),
            &format!("{:x}\n", number.wrapping_mul(2_654_435_761)).repeat(40),
        );
    }
    tree.write("a/looks/DESCR", "the first text\n");
    let yard = shared.yard("farm-changed", &tree, &["a/looks"]);
    let served = Served::start(&yard);
    let far = Far::join_without(&shared.path("workers"), &yard, &served, "far", &[&tree.path()]);
    settle();
    let build = || yard.run(&["build", "--elsewhere"]).exits(0).says(&["1 built"]);
    build();
    let log = yard.run(&["log", "a/looks", "build"]).exits(0);
    log.says(&["gone\nstays\nthe first text"]);
    let kept = far.folder.join("worker/layers/archives");
    let (base, whole) = (archives(&kept), archives(&yard.path("state/trees")));
    // The tree, and what else of the machine packages see.
    assert!(!whole.is_empty());
    // Files are added, changed and removed.
    fs::remove_dir_all(tree.path().join("b/gone")).unwrap();
    tree.write("a/looks/DESCR", "the second text\n");
    tree.write("b/added/Makefile", "# none\n");
    tree.package("a/looks", &format!("{looks}\nVERSION= 2.0"));
    settle();
    build();
    yard.run(&["log", "a/looks", "build"]).exits(0).says(&["added\nstays\nthe second text"]);
    let now = archives(&kept);
    assert_eq!((now.len(), archives(&yard.path("state/trees"))), (base.len() + 1, whole.clone()));
    let new: u64 = now.iter().sum::<u64>() - base.iter().sum::<u64>();
    let largest = whole.iter().max().unwrap();
    assert!(new * 4 < *largest, "{new} bytes were sent of {whole:?}");
    // The same tree as it was: the layer is gone again.
    tree.write("a/looks/DESCR", "the third text\n");
    tree.package("a/looks", &format!("{looks}\nVERSION= 3.0"));
    tree.package("b/gone", "");
    fs::remove_dir_all(tree.path().join("b/added")).unwrap();
    settle();
    build();
    yard.run(&["log", "a/looks", "build"]).exits(0).says(&["gone\nstays\nthe third text"]);
    // When much is another, all of it is packed again, and the earlier archive is removed at the next run.
    for number in 0..250_u32 {
        tree.write(&format!("doc/{number}"), "another\n");
    }
    tree.package("a/looks", &format!("{looks}\nVERSION= 4.0"));
    // Files that were written in the same moment may be others later.
    std::thread::sleep(std::time::Duration::from_millis(200));
    build();
    assert_eq!(archives(&yard.path("state/trees")).len(), whole.len() + 1);
    tree.package("a/looks", &format!("{looks}\nVERSION= 5.0"));
    settle();
    build();
    assert_eq!(archives(&yard.path("state/trees")).len(), whole.len());
    drop((far, served));
    yard.is_clean();
}

fn scan(shared: &Shared) {
    // The make of each directory takes a while.
    let slow = "WAITED!= sleep 0.4; echo waited";
    let locations: Vec<String> = (0..DIRECTORIES).map(|number| format!("a/p{number:02}")).collect();
    let packages: Vec<(&str, &str)> = locations.iter().map(|location| (location.as_str(), slow)).collect();
    let tree = MiniTree::new(&packages);
    let yard = shared.yard("farm-scan", &tree, &[]);
    let served = Served::start(&yard);
    let far = Far::join_without(&shared.path("workers"), &yard, &served, "far", &[&tree.path()]);
    let builder = Far::join_with(&shared.path("workers"), &yard, &served, "builder", &["--roles", "build"]);
    let ended = yard.run(&["scan"]).exits(0).says(&["1 directories at once", "on other machines"]);
    assert!(ended.stderr.contains(&format!("{DIRECTORIES} directories")), "{} {}", ended.stderr, far.said());
    // Killed while it scans, it leaves its directories to others.
    for location in &locations {
        tree.package(location, &format!("{slow}\nVERSION= 2.0"));
    }
    let mut scanning = yard.start(&["scan"]);
    until("other machines scan", || scanning.stderr().contains("directories at once"));
    let mut far = far;
    far.signal(libc::SIGKILL);
    far.start(&yard, &[]);
    let counted = format!("{DIRECTORIES} directories: {DIRECTORIES} scanned");
    scanning.end().exits(0).says(&[&counted, "0 failed"]);
    // The same index as without help.
    let alone = shared.yard("farm-scan-alone", &tree, &[]);
    alone.run(&["scan"]).exits(0);
    let digest = |yard: &Yard| yard.read("index/index.json");
    assert_eq!(digest(&yard), digest(&alone));
    // A build scans, too, and then has the door to itself.
    for location in &locations {
        tree.package(location, &format!("{slow}\nVERSION= 3.0"));
    }
    let built = yard.run(&["build", "--elsewhere", "a/p00"]).exits(0);
    built.says(&["directories at once", "1 built"]);
    drop((builder, served));
    // Outputs of make are not kept, except those whose answer was lost.
    let folders = yard.names("distfiles").into_iter().filter(|name| name.len() == 2);
    let files: usize = folders.map(|folder| yard.names(&format!("distfiles/{folder}")).len()).sum();
    assert!(files < DIRECTORIES / 2, "{files} files");
    yard.is_clean();
}

/// A base root with one more package crosses the link as a patch, if the worker has the one before.
fn patched_base(shared: &Shared) {
    let tree = MiniTree::new(&[("a/one", "")]);
    let yard = shared.yard("farm-patch", &tree, &[]);
    let served = Served::start(&yard);
    let far = Far::join_without(&shared.path("workers"), &yard, &served, "patched", &[&tree.path()]);
    yard.run(&["build", "--elsewhere"]).exits(0).says(&["1 built"]);
    let base = |yard: &Yard| {
        let record: serde_json::Value = serde_json::from_str(&yard.read("layers/base.json")).unwrap();
        record["tree"]["sha256"].as_str().unwrap().to_owned()
    };
    let archive =
        |folder: &Path, hash: &str| folder.join(format!("layers/archives/{}/{hash}.zst", &hash[..2]));
    let before = base(&yard);
    // With workers, the archive of the base root stays, for the patch.
    yard.run(&["clean", "--base"]).exits(0);
    assert!(archive(&yard.folder, &before).is_file());
    yard.change("packages = [\"bmake\", \"make\"]", "packages = [\"bmake\", \"make\", \"bc\"]");
    yard.run(&["scan"]).exits(0);
    let patches: serde_json::Value = serde_json::from_str(&yard.read("state/patches.json")).unwrap();
    let (after, patch) = (base(&yard), &patches[0]);
    assert_eq!((&patch["from"]["sha256"], &patch["to"]), (&before.clone().into(), &after.clone().into()));
    let whole = archive(&yard.folder, &after);
    let (patch_bytes, whole_bytes) =
        (patch["artifact"]["size_bytes"].as_u64().unwrap(), fs::metadata(&whole).unwrap().len());
    println!("a patch of {patch_bytes} bytes in place of {whole_bytes}");
    assert!(patch_bytes * 10 < whole_bytes, "{patch_bytes} {whole_bytes}");
    yard.run(&["clean"]).exits(0);
    // The whole one cannot be had, so the worker has made it.
    fs::rename(&whole, yard.path("aside")).unwrap();
    yard.run(&["build", "--elsewhere", "--no-scan"]).exits(0);
    assert!(archive(&far.folder.join("worker"), &after).is_file(), "{}", far.said());
    fs::rename(yard.path("aside"), &whole).unwrap();
    drop(served);
    yard.is_clean();
}
