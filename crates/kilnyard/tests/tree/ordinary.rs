//! A tree built by an ordinary user.

use crate::fixtures::{ALL, Packages, Shared, Trial, serve};
use crate::support::Ended;
use crate::support::ordinary::User;
use crate::support::tree::{MiniTree, source};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

pub const CASES: &[Trial] = &[("an_ordinary_user_builds_a_tree", an_ordinary_user)];

fn an_ordinary_user(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/one", "DISTFILES= one-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content"),
        ("a/two", "DEPENDS= one-[0-9]*:../../a/one\ndo-build:\n\t@id -u"),
        (
            "a/as-root",
            "USE_DESTDIR= destdir\ndo-install:\n\t@test $$(id -u) = 0\n\t@install -o 1 -m 600 /dev/null ${DESTDIR}${PREFIX}/of-another",
        ),
    ]);
    tree.distfile("a/one", "one-1.0.tar.gz", &source("one-1.0", "a source\n"));
    let _server = serve(&tree);
    let yard = shared.yard("ordinary", &tree, &[]);
    // Root's builds have ids of their own. Who has just these can use the layers that are there.
    let base = yard.names("layers").into_iter().find(|name| name.starts_with("base-")).unwrap();
    let id = fs::metadata(yard.path("layers").join(base)).unwrap().uid();
    let user = User::with_range(&shared.path("user"), id);
    user.own(&yard, "layers/");
    user.run(&yard, &["build"]).exits(0).says(&["3 directories: 3 asked, 0 as before, 0 failed", "3 built"]);
    user.run(&yard, &["log", "a/one", "build"]).exits(0).says(&["a source"]);
    user.run(&yard, &["log", "a/two", "build"]).exits(0).says(&["\n1000\n"]);
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "-tvzf"]).arg(yard.path(ALL).join("as-root-1.0.tgz"));
    Ended::from(tar.output().unwrap()).exits(0).says(&["-rw------- 1/"]);
    assert_eq!(yard.published(), ["as-root-1.0", "one-1.0", "two-1.0"]);
    user.run(&yard, &["build"]).exits(0).says(&["nothing to do: 3 up-to-date"]);
    yard.is_clean();
    user.run(&yard, &["clean"]).exits(0);
}
