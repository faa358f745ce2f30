//! The changes that make a package a different one.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use kilnyard_ecosystem::pkgsrc::package_file;

use crate::support::{Package, TOOLS, lacks, run};

#[test]
fn time_and_place_of_a_build_do_not_count() {
    if lacks("time_and_place_of_a_build_do_not_count", &TOOLS) {
        return;
    }
    let mut package = Package::new();
    let before = package.read();
    package.edit(
        "+BUILD_INFO",
        "BUILD_DATE=2026-11-21 23:57:23 +0000",
        "BUILD_DATE=2026-11-22 00:00:00 +0000",
    );
    package.edit("+BUILD_INFO", "BUILD_HOST=Linux yard", "BUILD_HOST=Linux elsewhere");
    package.edit("+BUILD_VERSION", "v 1.3", "v 1.4");
    for name in package.names.clone() {
        run(Command::new("touch").args(["--no-dereference", "--date=2001-02-03"]).arg(package.path(&name)));
    }
    // In a different order, the second name carries the bytes, and the first one links to it.
    package.names.reverse();
    package.names.sort_by_key(|name| !name.starts_with('+'));
    let path =
        package.build("xz", &["--format=pax", "--pax-option=SCHILY.ino:=77,LIBARCHIVE.creationtime:=1"]);
    let after = package_file::read(&path).unwrap();
    assert_eq!(after.content, before.content);
    assert_ne!((&after.sha256, &after.summary), (&before.sha256, &before.summary));
}

#[test]
fn everything_else_counts() {
    if lacks("everything_else_counts", &TOOLS) {
        return;
    }
    let mut seen = vec![("nothing", Package::new().read().content)];
    let mut changed = |what: &'static str, change: &dyn Fn(&mut Package), options: &[&str]| {
        let mut package = Package::new();
        change(&mut package);
        let content = package_file::read(&package.build("gzip", options)).unwrap().content;
        for (other, theirs) in &seen {
            assert_ne!(&content, theirs, "{what} is taken for {other}");
        }
        seen.push((what, content));
    };
    changed("a byte of a file", &|package| package.add("share/kiln/empty", b"x", 0o644), &[]);
    changed("a mode", &|package| package.add("share/kiln/empty", b"", 0o755), &[]);
    changed("a new file", &|package| package.add("share/kiln/new", b"", 0o644), &[]);
    changed("a lost file", &|package| drop(package.names.pop()), &[]);
    changed("owners", &|_| {}, &["--owner=7", "--group=7"]);
    changed(
        "a link",
        &|package| {
            fs::remove_file(package.path("bin/link")).unwrap();
            symlink("second", package.path("bin/link")).unwrap();
        },
        &[],
    );
    changed(
        "the packages that it was built with",
        &|package| package.edit("+CONTENTS", "fire-3.0", "fire-3.1"),
        &[],
    );
    changed("an option", &|package| package.edit("+BUILD_INFO", "CFLAGS=-O2", "CFLAGS=-O3"), &[]);
    changed("the description", &|package| package.edit("+DESC", "first", "best"), &[]);
    changed(
        "a script",
        &|package| {
            package.names.insert(3, "+INSTALL".into());
            package.add("+INSTALL", b"#!/bin/sh\n", 0o555);
        },
        &[],
    );
}
