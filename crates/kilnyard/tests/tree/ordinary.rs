//! A tree built by an ordinary user.

use crate::fixtures::{ALL, Packages, Shared, Trial, serve};
use crate::support::ordinary::User;
use crate::support::tree::{MiniTree, source};
use crate::support::{Ended, Yard};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

pub const CASES: &[Trial] = &[
    ("an_ordinary_user_builds_a_tree", an_ordinary_user),
    ("a_user_with_one_id_builds_a_tree", a_user_with_one_id),
];

/// Above all ids in use on this machine.
const ID: u32 = 0x7711_0000;

fn tree() -> MiniTree {
    let tree = MiniTree::new(&[
        ("a/one", "DISTFILES= one-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content"),
        ("a/two", "DEPENDS= one-[0-9]*:../../a/one\ndo-build:\n\t@id -u"),
        (
            "a/as-root",
            "USE_DESTDIR= destdir\ndo-install:\n\t@test $$(id -u) = 0\n\t@install -o 1 -m 600 /dev/null ${DESTDIR}${PREFIX}/of-another",
        ),
        (
            "a/hides",
            "do-build:\n\t@mkdir /tmp/closed; head -c 300M /dev/zero > /tmp/closed/all; chmod 0 /tmp/closed",
        ),
    ]);
    tree.distfile("a/one", "one-1.0.tar.gz", &source("one-1.0", "a source\n"));
    tree
}

fn an_ordinary_user(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = shared.yard("ordinary", &tree, &[]);
    // Root's builds have their own ids. A user with exactly these ids can use the existing layers.
    let base = yard
        .names("layers")
        .into_iter()
        .find(|name| yard.path("layers").join(name).join("usr").is_dir())
        .unwrap();
    let id = fs::metadata(yard.path("layers").join(base)).unwrap().uid();
    let user = User::with_range(&shared.path("user"), id);
    user.own(&yard, "layers/");
    builds(&user, &yard);
    user.run(&yard, &["clean"]).exits(0);
}

fn a_user_with_one_id(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = shared.yard("alone", &tree, &[]);
    // The existing layers belong to other ids.
    fs::remove_dir_all(yard.path("layers")).unwrap();
    fs::create_dir(yard.path("layers")).unwrap();
    let user = User::alone(&shared.path("alone-user"), ID);
    user.own(&yard, "nothing");
    builds(&user, &yard);
    // On the disk, too, each stage sees the files of the stages before it.
    yard.change("# work-in-memory = true", "work-in-memory = false");
    user.run(&yard, &["build", "--force", "a/as-root"]).exits(0);
    belongs_to_another(&yard);
    user.run(&yard, &["clean", "--base"]).exits(0);
}

fn builds(user: &User, yard: &Yard) {
    yard.change("# disk = \"32G\"", "disk = \"200M\" #");
    let build = ["build", "a/two", "a/as-root"];
    user.run(yard, &build).exits(0).says(&["4 directories: 4 scanned, 0 unchanged, 0 failed", "3 built"]);
    user.run(yard, &["log", "a/one", "build"]).exits(0).says(&["a source"]);
    user.run(yard, &["log", "a/two", "build"]).exits(0).says(&["\n1000\n"]);
    belongs_to_another(yard);
    assert_eq!(yard.published(), ["as-root-1.0", "one-1.0", "two-1.0"]);
    user.run(yard, &build).exits(0).says(&["nothing to do: 3 up-to-date"]);
    // The written files are measured at the end, wherever they are.
    let limit = "its limit is 200 MiB (`disk` of [limits] or [package])";
    user.run(yard, &["build", "a/hides"]).exits(1).says(&["1 failed", limit]);
    yard.is_clean();
}

/// Asserts that an owner set in one stage is packed by the next one.
fn belongs_to_another(yard: &Yard) {
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "-tvzf"]).arg(yard.path(ALL).join("as-root-1.0.tgz"));
    Ended::from(tar.output().unwrap()).exits(0).says(&["-rw------- 1/"]);
}
