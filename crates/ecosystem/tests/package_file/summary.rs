//! The summary and the other facts about an intact package.

use std::fs;

use kilnyard_ecosystem::pkgsrc::{package_file, summary};
use sha2::{Digest as _, Sha256, Sha512};

use crate::support::{PACKERS, Package, TOOLS, lacks, read, small_package};

/// The output of `pkg_info -X` of pkg_install 20130902 for the package, except for the file's name and size and the
/// empty line at the end.
const PRINTED: &str = "CONFLICTS=kilnold-[0-9]*
PKGNAME=kiln-1.0nb2
DEPENDS=libkiln>=2.0
DEPENDS={fire,flame}-[0-9]*
COMMENT=Fires a package
SIZE_PKG=87635
BUILD_DATE=2026-11-21 23:57:23 +0000
CATEGORIES=misc fire
HOMEPAGE=http://kiln.example.org/?a=b
LICENSE=
MACHINE_ARCH=x86_64
OPSYS=Linux
OS_VERSION=6.1
PKGPATH=misc/kiln
PKGTOOLS_VERSION=20091115
PKG_OPTIONS=hot
PROVIDES=/usr/pkg/lib/libkiln.so.1
PROVIDES=/usr/pkg/lib/libkiln.so
REQUIRES=/lib/libc.so.6
SUPERSEDES=oldkiln<1
DESCRIPTION=The first line,
DESCRIPTION=and after an empty one
DESCRIPTION=
DESCRIPTION=  the last, with a = and blanks.  
";

#[test]
fn a_package_is_the_same_with_every_compression() {
    if lacks("a_package_is_the_same_with_every_compression", &TOOLS) {
        return;
    }
    let package = Package::new();
    let mut contents = Vec::new();
    for packer in PACKERS {
        let path = package.build(packer, &[]);
        let read = package_file::read(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        let hex = |hash: &[u8]| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(read.name, "kiln-1.0nb2");
        assert_eq!(read.sha256, hex(&Sha256::digest(&bytes)), "{packer}");
        assert_eq!(read.sha512, hex(&Sha512::digest(&bytes)), "{packer}");
        assert_eq!(read.size_bytes, bytes.len() as u64);
        assert_eq!(read.summary, PRINTED);
        assert_eq!(read.built_with, ["libkiln-2.1nb1", "fire-3.0"]);
        assert_eq!(read.restricted, None);
        let facts = package_file::read_recipe_facts(&path).unwrap();
        assert_eq!(facts.built_with, read.built_with);
        assert_eq!(facts.recipe_versions, read.recipe_versions);
        contents.push(read.content);
    }
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "{contents:?}");
}

#[test]
fn the_summary_is_a_valid_entry() {
    let entries = summary::entries(PRINTED).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.name).collect::<Vec<_>>(), ["kiln-1.0nb2"]);
}

#[test]
fn the_summary_has_the_fields_that_another_reader_finds() {
    if lacks("the_summary_has_the_fields_that_another_reader_finds", &TOOLS) {
        return;
    }
    let package = Package::new();
    let path = package.build("gzip", &[]);
    let theirs = pkgsrc::archive::BinaryPackage::open(&path).unwrap().to_summary().unwrap().to_string();
    let read = package_file::read(&path).unwrap();
    // That reader sorts the fields in its own order, and adds the publisher's fields.
    let sorted = |text: &str| {
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("FILE_")).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    assert_eq!(sorted(&read.summary), sorted(&theirs));
}

#[test]
fn a_restriction_is_reported() {
    if lacks("a_restriction_is_reported", &TOOLS) {
        return;
    }
    let mut package = Package::new();
    package.edit("+BUILD_INFO", "NO_BIN_ON_FTP=\n", "NO_BIN_ON_FTP= May not be sold\n");
    assert_eq!(package.read().restricted.as_deref(), Some("May not be sold"));
}

#[test]
fn optional_metadata_may_be_missing() {
    let read = read(&small_package(&[])).unwrap();
    assert_eq!(read.summary, "PKGNAME=kiln-1.0\nCOMMENT=Fires\nDESCRIPTION=Fires\n");
    assert_eq!((read.built_with, read.restricted), (Vec::<String>::new(), None));
}

#[test]
fn old_descriptions_need_not_be_utf_8() {
    if lacks("old_descriptions_need_not_be_utf_8", &TOOLS) {
        return;
    }
    let mut package = Package::new();
    package.add("+DESC", b"caf\xe9\r\nau lait", 0o444);
    let read = package.read();
    assert!(read.summary.ends_with("\nDESCRIPTION=caf\u{fffd}\r\nDESCRIPTION=au lait\n"), "{}", read.summary);
}
