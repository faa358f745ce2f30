//! Two architectures in one suite: a target's publication does not change the packages of the other target.

use crate::support::Yard;
use crate::support::archive::hex_of;
use crate::support::tiny::Tiny;
use std::process::Command;

pub const CASES: &[(&str, fn())] = &[
    ("a_target_keeps_the_packages_of_another_published", kept),
    ("an_independent_package_is_withdrawn_by_the_target_that_makes_it", withdrawn),
    ("entries_of_another_target_that_lie_are_not_kept", lies),
    ("an_unreadable_index_of_another_target_stops_the_publication", unreadable),
];

const ARCHITECTURES: [&str; 2] = ["amd64", "i386"];

/// A yard with both architectures, its key, an empty repository, and an index of each target.
fn published(name: &str) -> Tiny {
    let mut tiny = Tiny::new(name);
    tiny.archive.more_architectures = vec![ARCHITECTURES[1]];
    tiny.server.serve(tiny.archive.files());
    select(&tiny, "goodsource");
    tiny.yard.make_signer();
    tiny.scan().exits(0);
    tiny.yard.run(&["publish"]).exits(0);
    tiny
}

fn select(tiny: &Tiny, package: &str) {
    tiny.configure(&format!("\"{package}\""), "");
    let text = tiny.yard.read("kilnyard.toml").replace("[debian]", "[debian]\nparts = \"all\"");
    tiny.yard.configure(&format!("{text}[[target]]\n[[target]]\narchitecture = \"{}\"\n", ARCHITECTURES[1]));
}

fn index_of(architecture: &str) -> String {
    format!("repository/dists/tiny/main/binary-{architecture}/Packages")
}

/// Makes a package of the source `goodsource`, as Kilnyard builds it, in the pool. Returns its entry in an index.
fn package(yard: &Yard, name: &str, architecture: &str) -> String {
    let scratch = yard.folder.parent().unwrap().join(format!("{name}-{architecture}"));
    let pool = yard.path("repository/pool/main/g/goodsource");
    std::fs::create_dir_all(scratch.join("DEBIAN")).unwrap();
    std::fs::create_dir_all(&pool).unwrap();
    let control = format!(
        "Package: {name}\nSource: goodsource (1.0-1)\nVersion: 1.0-1+bk1\nArchitecture: {architecture}\n\
         Maintainer: A <a@example.org>\nDescription: a test\n One.\n"
    );
    std::fs::write(scratch.join("DEBIAN/control"), &control).unwrap();
    let file = format!("{name}_1.0-1+bk1_{architecture}.deb");
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "--build"]).arg(&scratch).arg(pool.join(&file));
    assert!(command.output().unwrap().status.success());
    let bytes = std::fs::read(pool.join(&file)).unwrap();
    let path = format!("pool/main/g/goodsource/{file}");
    format!("{control}Filename: {path}\nSize: {}\nSHA256: {}\n\n", bytes.len(), hex_of(&bytes))
}

/// Publishes a package for each architecture, and one for both that the first target makes, and restores the stores of
/// both targets from that.
fn with_packages(name: &str) -> Tiny {
    let tiny = published(name);
    let independent = package(&tiny.yard, "good-doc", "all");
    for architecture in ARCHITECTURES {
        let own = package(&tiny.yard, "goodsource-bin", architecture);
        std::fs::write(tiny.yard.path(&index_of(architecture)), format!("{independent}{own}")).unwrap();
    }
    for architecture in ARCHITECTURES {
        let target = format!("tiny-{architecture}");
        std::fs::remove_dir_all(tiny.yard.path(&format!("targets/{target}/state"))).unwrap();
        tiny.yard.run(&["restore", "--target", &target]).exits(0);
    }
    // No build made them, so a person has to approve them.
    let refused = tiny.yard.run(&["publish", "--target", "amd64"]);
    refused.exits(3).says(&["goodsource-bin 1.0-1+bk1 (i386): no build explains it"]);
    tiny.yard.approve_all();
    tiny.yard.run(&["publish", "--target", "amd64"]).exits(0);
    tiny
}

/// Name and architecture of each package that an index lists.
fn listed(yard: &Yard, architecture: &str) -> Vec<String> {
    let text = yard.read(&index_of(architecture));
    let value = |stanza: &str, field: &str| {
        let mut lines = stanza.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
        lines.next().unwrap_or_default().to_owned()
    };
    let stanzas = text.split("\n\n").filter(|stanza| !stanza.trim().is_empty());
    let mut all: Vec<String> =
        stanzas.map(|stanza| [value(stanza, "Package"), value(stanza, "Architecture")].join(" ")).collect();
    all.sort();
    all
}

fn kept() {
    let tiny = with_packages("neighbours");
    for target in ["amd64", "i386", "amd64"] {
        tiny.yard.run(&["publish", "--target", target]).exits(0);
        for architecture in ARCHITECTURES {
            let own = format!("goodsource-bin {architecture}");
            assert_eq!(listed(&tiny.yard, architecture), ["good-doc all", &own], "after {target}");
        }
    }
}

fn withdrawn() {
    let tiny = with_packages("neighbours-gone");
    select(&tiny, "round-a");
    // The second target does not make the independent package, so it stays.
    tiny.yard.run(&["publish", "--target", "i386"]).exits(0);
    assert_eq!(listed(&tiny.yard, "amd64"), ["good-doc all", "goodsource-bin amd64"]);
    assert_eq!(listed(&tiny.yard, "i386"), ["good-doc all"]);
    tiny.yard.run(&["publish", "--target", "amd64"]).exits(0);
    assert_eq!(listed(&tiny.yard, "amd64"), [""; 0]);
    assert_eq!(listed(&tiny.yard, "i386"), [""; 0]);
    tiny.yard.run(&["publish"]).exits(0).says(&["unchanged: 0 packages"]);
}

fn lies() {
    let tiny = with_packages("neighbours-lies");
    let outside = tiny.yard.folder.parent().unwrap().join("outside.deb");
    std::fs::write(&outside, "a secret").unwrap();
    let entry = |name: &str, path: &str, bytes: &[u8]| {
        format!(
            "Package: {name}\nVersion: 1\nArchitecture: i386\nFilename: {path}\nSize: {}\nSHA256: {}\n\n",
            bytes.len(),
            hex_of(bytes)
        )
    };
    std::fs::write(tiny.yard.path("repository/pool/main/g/goodsource/changed.deb"), "changed").unwrap();
    let absolute = outside.display().to_string();
    let lies = [
        entry("up", "pool/../../../outside.deb", b"a secret"),
        entry("absolute", &absolute, b"a secret"),
        entry("absent", "pool/main/g/goodsource/absent.deb", b"absent"),
        entry("changed", "pool/main/g/goodsource/changed.deb", b"original"),
        entry("folder", "pool/main/g/goodsource", b""),
        "Package: none\nArchitecture: i386\n\n".to_owned(),
        "Architecture: i386\nFilename: pool/x\n\n".to_owned(),
    ];
    let index = tiny.yard.path(&index_of("i386"));
    let good = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, format!("{}{good}", lies.concat())).unwrap();
    tiny.yard.run(&["publish", "--target", "amd64"]).exits(0);
    assert_eq!(listed(&tiny.yard, "i386"), ["good-doc all", "goodsource-bin i386"]);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "a secret");
}

fn unreadable() {
    let tiny = with_packages("neighbours-unreadable");
    let index = tiny.yard.path(&index_of("i386"));
    std::fs::write(&index, b"Package: \xff\xfe\n").unwrap();
    let before = tiny.yard.read(&index_of("amd64"));
    let ended = tiny.yard.run(&["publish", "--target", "amd64"]).exits(3);
    ended.says(&["read the repository's index", "binary-i386/Packages"]);
    assert_eq!(tiny.yard.read(&index_of("amd64")), before);
    // Its own target does not mistake the repository for an empty one either.
    std::fs::remove_dir_all(tiny.yard.path("targets/tiny-i386/state")).unwrap();
    tiny.yard.run(&["plan", "--target", "i386"]).exits(3).says(&["but the repository has packages"]);
}
