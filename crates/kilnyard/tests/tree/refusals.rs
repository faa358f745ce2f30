//! Input that is wrong from the beginning, and its error messages.

use crate::fixtures::{Packages, Shared, Trial, serve};
use crate::support::tree::{MiniTree, source};
use crate::support::{self, Yard};
use std::fs;
use std::path::Path;
use std::process::Command;

pub const CASES: &[Trial] = &[
    ("folders_outside_a_tree_are_rejected", folders_outside_a_tree),
    ("an_invalid_kit_is_rejected", an_invalid_kit),
    ("invalid_settings_are_rejected", invalid_settings),
    ("distfiles_that_cannot_be_kept_are_reported", distfiles_that_cannot_be_kept),
];

fn tree() -> MiniTree {
    MiniTree::new(&[("a/one", "")])
}

fn folders_outside_a_tree(shared: &Shared) {
    let tree = tree();
    let yard = Yard { folder: shared.path("no-tree") };
    shared
        .init(&yard, &tree, &["../../etc"])
        .exits(2)
        .says(&["`../../etc` is not a package directory or category"]);
    let mut command = yard.command(&["init", "pkgsrc", "--tree", "/usr/lib"]);
    support::Ended::from(command.output().unwrap())
        .exits(2)
        .says(&["/usr/lib is not a pkgsrc tree: it has no mk"]);
    assert!(!yard.folder.exists(), "a rejected init left something behind");
    let yard = shared.yard("no-tree", &tree, &["a/one", "a/two"]);
    // A missing directory is left out, and the rest is built.
    yard.build().exits(1).says(&["1 built", "left out: a/two: ", "not a directory of"]);
    yard.change("  \"a/two\",\n", "");
    yard.build().exits(0).says(&["nothing to do: 1 up-to-date"]);
    yard.change("  \"a/one\",\n", "  \"a/three\",\n");
    yard.build().exits(2).says(&["a/three is not a directory of", "directories such as mail/mutt"]);
    yard.change("  \"a/three\",\n", "  \"a/one\",\n");
    fs::rename(tree.path().join("mk"), tree.path().join("km")).unwrap();
    yard.build().exits(2).says(&["is not a pkgsrc tree: it has no mk", "tree in kilnyard.toml"]);
    fs::rename(tree.path().join("km"), tree.path().join("mk")).unwrap();
    yard.build().exits(0).says(&["nothing to do: 1 up-to-date"]);
    tree.write("Makefile", ".error no categories today\n");
    yard.change("packages = [", "packages = \"all\"\n# [");
    yard.change("  \"a/one\",\n]", "");
    yard.build().exits(2).says(&["failed to list the categories of the tree", "no categories today"]);
    yard.is_clean();
}

/// Replaces the kit in a yard's configuration.
fn with_kit(yard: &Yard, kit: &Path) {
    let config = yard.read("kilnyard.toml");
    let line = config.lines().find(|line| line.starts_with("bootstrap-kit")).unwrap();
    yard.change(line, &format!("bootstrap-kit = \"{}\"", kit.display()));
}

fn an_invalid_kit(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("kit", &tree, &[]);
    let right = yard.read("kilnyard.toml");
    let kit = |name: &str| shared.path(name);
    with_kit(&yard, &kit("nowhere.tar.gz"));
    yard.build().exits(2).says(&["failed to read the bootstrap kit", "nowhere.tar.gz", "No such file"]);
    fs::write(kit("text.tar.gz"), "not an archive\n").unwrap();
    with_kit(&yard, &kit("text.tar.gz"));
    yard.build().exits(2).says(&["failed to unpack the bootstrap kit", "text.tar.gz", "tar: "]);
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(kit("other.tar.gz")).args(["-C", "/etc", "./hostname"]);
    assert!(tar.status().unwrap().success());
    with_kit(&yard, &kit("other.tar.gz"));
    yard.build().exits(2).says(&["the bootstrap kit has no /usr/pkg", "prefix in kilnyard.toml"]);
    // A second attempt gives the same error; nothing of the first is left.
    yard.build().exits(2).says(&["the bootstrap kit has no /usr/pkg"]);
    fs::write(yard.path("kilnyard.toml"), right.replace("make = \"/usr/bin/bmake\"", "")).unwrap();
    fs::remove_file(yard.path("layers/kit.json")).unwrap();
    yard.build().exits(2).says(&[
        "neither the bootstrap kit nor the base root has /usr/pkg/bin/bmake",
        "make in kilnyard.toml",
    ]);
    fs::write(yard.path("kilnyard.toml"), right).unwrap();
    yard.build().exits(0).says(&["unpacking the bootstrap kit", "1 built"]);
    let layers = yard.names("layers");
    assert!(!layers.iter().any(|name| name.contains(".part")), "{layers:?}");
    yard.is_clean();
}

fn invalid_settings(shared: &Shared) {
    let tree = tree();
    let settings = tree.next_to("mk.conf");
    let yard = shared.yard("wrong", &tree, &["--mk-conf", &settings]);
    yard.build().exits(2).says(&["failed to read mk-conf", "No such file"]);
    fs::write(&settings, "").unwrap();
    let right = yard.read("kilnyard.toml");
    yard.change("/usr/bin/bmake", "/usr/bin/no-such-make");
    yard.build().exits(2).says(&["/usr/bin/no-such-make"]);
    for (from, to, words) in [
        ("make = \"/usr/bin/bmake\"", "make = \"bmake\"", "make `bmake` must be a path inside a root"),
        ("make = ", "prefix = \"/usr/../etc\"\nmake = ", "prefix `/usr/../etc` must be a path inside a root"),
        ("[pkgsrc.root]", "[pkgsrc.rot]", "rot"),
    ] {
        fs::write(yard.path("kilnyard.toml"), right.replacen(from, to, 1)).unwrap();
        yard.build().exits(2).says(&[words]);
    }
    fs::write(yard.path("kilnyard.toml"), right).unwrap();
    yard.build().exits(0).says(&["1 built"]);
    // Settings that break every scan do not affect the index and the published packages.
    fs::write(&settings, ".error a typing mistake\n").unwrap();
    yard.build().exits(1).says(&[
        "1 scanned, 0 unchanged, 1 failed",
        "no directory of the tree could be scanned",
        "a typing mistake",
    ]);
    assert!(yard.path("repository/packages/All/one-1.0.tgz").exists());
    fs::write(&settings, "").unwrap();
    yard.build().exits(0).says(&["nothing to do: 1 up-to-date"]);
    yard.is_clean();
}

fn distfiles_that_cannot_be_kept(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/one", ""),
        ("a/single", "DISTFILES= single-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content"),
    ]);
    tree.distfile("a/single", "single-1.0.tar.gz", &source("single-1.0", "a source\n"));
    let server = serve(&tree);
    let yard = shared.yard("distfiles", &tree, &[]);
    fs::write(yard.path("distfiles/pkgsrc"), "").unwrap();
    yard.build().exits(3).says(&["failed to make the folder of distfiles"]);
    fs::remove_file(yard.path("distfiles/pkgsrc")).unwrap();
    // A folder in place of the file has the same effect as a disk that cannot be written.
    fs::create_dir_all(yard.path("distfiles/pkgsrc/single-1.0.tar.gz/in-the-way")).unwrap();
    yard.build().exits(1).says(&["1 built, 1 failed", "failed to keep the fetched files"]);
    assert_eq!(yard.states(&["a/one", "a/single"]), ["built", "failed"]);
    assert_eq!(yard.why("a/single")["build"]["failure"]["kind"], "machine");
    fs::remove_dir_all(yard.path("distfiles/pkgsrc")).unwrap();
    yard.build().exits(0).says(&["1 built"]);
    assert!(!server.answers("/single-1.0.tar.gz").is_empty());
    // Another file with the same name and size: the mismatch is reported, and the file is not overwritten.
    let path = yard.path("distfiles/pkgsrc/single-1.0.tar.gz");
    let size = fs::metadata(&path).unwrap().len();
    fs::write(&path, vec![b'x'; size as usize]).unwrap();
    yard.run(&["build", "--force", "a/single"])
        .exits(1)
        .says(&["Checksum SHA512 mismatch for single-1.0.tar.gz"]);
    assert_eq!(fs::read(&path).unwrap()[..3], *b"xxx");
    // After it is removed, the file is fetched again.
    fs::remove_file(&path).unwrap();
    yard.run(&["build", "--force", "a/single"]).exits(0).says(&["1 unchanged"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    yard.is_clean();
}
