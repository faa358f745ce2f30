//! Compares how versions, patterns and `distinfo` files of pkgsrc are read here with how the crate `pkgsrc`, which
//! other programs use, reads them.

use kilnyard_ecosystem::pkgsrc::distinfo::{self, Distfile};
use kilnyard_ecosystem::pkgsrc::pattern::{PackageName, Pattern};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use proptest::prelude::*;
use std::io::Write as _;

/// Versions, including odd ones. Single letters are left out: the crate converts them to their ASCII codes, whereas
/// pkg_install uses their positions in the alphabet, which our own module's tests check.
fn version() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[0-9]{1,4}",
        Just(".".to_owned()),
        Just("_".to_owned()),
        Just("alpha".to_owned()),
        Just("beta".to_owned()),
        Just("rc".to_owned()),
        Just("pre".to_owned()),
        Just("pl".to_owned()),
        "nb[0-9]{1,2}",
    ];
    proptest::collection::vec(part, 1..7).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_match_the_same(
        sign in prop_oneof![Just("<"), Just("<="), Just(">"), Just(">=")],
        bound in version(),
        upper in proptest::option::of(version()),
        found in version(),
    ) {
        let mut pattern = format!("name{sign}{bound}");
        if let Some(upper) = upper.filter(|_| sign.starts_with('>')) {
            pattern.push_str(&format!("<{upper}"));
        }
        let name = format!("name-{found}");
        let ours = Pattern::parse(&pattern).unwrap().matches(&PackageName::new(&name));
        let theirs = pkgsrc::Pattern::new(&pattern).unwrap().matches(&name);
        prop_assert_eq!(ours, theirs, "{} {}", pattern, name);
    }

    #[test]
    fn globs_and_alternatives_match_the_same(
        // Each pattern has a version after the name: without one, the crate treats it as a full name, whereas
        // pkg_install also tries it with `-[0-9]*` appended.
        pattern in "[ab]{1,2}([{](a|b|-c)?,(a|b)[}](-\\[0-9\\][*]|-[*])|(-[0-9][*]|-[*]|-\\[0-9\\][*]|[*]|-[0-9][.][0-9]))",
        name in "[ab]{1,3}(-c)?-[0-9]([.][0-9])?(nb[0-9])?",
    ) {
        let Ok(theirs) = pkgsrc::Pattern::new(&pattern) else { return Ok(()) };
        let ours = Pattern::parse(&pattern).unwrap().matches(&PackageName::new(&name));
        prop_assert_eq!(ours, theirs.matches(&name), "{} {}", pattern, name);
    }

    #[test]
    fn the_better_of_two_is_the_same(one in version(), two in version()) {
        let (one, two) = (format!("aa-{one}"), format!("ab-{two}"));
        let theirs = pkgsrc::Pattern::new("a?-*").unwrap();
        let Ok(Some(best)) = theirs.best_match_pbulk(Some(&one), &two) else { return Ok(()) };
        let ours = if PackageName::new(&one).compare(&PackageName::new(&two)).is_ge() { &one } else { &two };
        prop_assert_eq!(ours.as_str(), best, "{} {}", one, two);
    }
}

/// Lines of a `distinfo` as pkgsrc writes them: files with and without folders, patches, and archives that are
/// called patches. There are few names, so that lines about the same file are often not adjacent.
fn distinfo_text() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        "[a-c]{1,2}-[0-9][.]tar[.]gz",
        "(sub|patch-d)/[a-b][.]tgz",
        "patch-[a-c]{1,2}",
        Just("patch-2.7.tar.xz".to_owned()),
        Just("patch-local-a".to_owned()),
        Just("patch-aa.orig".to_owned()),
        Just("emul-linux-patch-aa".to_owned()),
        Just("mush/patch-7.2.6".to_owned()),
    ];
    let line = (name, 0..7_usize, "[0-9a-f]{128}", 0..u64::MAX).prop_map(|(name, kind, digits, size)| {
        match distinfo::Algorithm::ALL.get(kind) {
            Some(algorithm) => {
                format!("{} ({name}) = {}\n", algorithm.name(), &digits[..algorithm.digits()])
            }
            None => format!("Size ({name}) = {size} bytes\n"),
        }
    });
    proptest::collection::vec(line, 0..12).prop_map(|lines| {
        format!("$NetBSD: distinfo,v 1.1 2024/05/27 23:27:10 x Exp $\n\n{}", lines.concat())
    })
}

/// The crate's result: distfiles first, then patches, each in the order of the file.
fn theirs(bytes: &[u8]) -> Vec<Distfile> {
    let read = pkgsrc::distinfo::Distinfo::from_bytes(bytes);
    let of = |entry: &pkgsrc::distinfo::Entry| Distfile {
        name: entry.filename().to_str().unwrap().to_owned(),
        size_bytes: entry.size(),
        hashes: entry
            .checksums()
            .iter()
            .map(|sum| {
                let name = sum.digest.to_string();
                let same = distinfo::Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
                (same.unwrap(), sum.hash.clone())
            })
            .collect(),
        is_patch: entry.filetype() == pkgsrc::distinfo::EntryType::Patchfile,
    };
    read.distfiles().chain(read.patchfiles()).map(of).collect()
}

/// Our result in the crate's order, which moves patches to the end.
fn distfiles_first(mut files: Vec<Distfile>) -> Vec<Distfile> {
    files.sort_by_key(|file| file.is_patch);
    files
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn distinfo_files_are_read_alike(text in distinfo_text()) {
        // The crate adds a second size or hash of a file or replaces the first with it; here it is an error.
        match distinfo::parse(text.as_bytes()) {
            Ok(files) => prop_assert_eq!(distfiles_first(files), theirs(text.as_bytes())),
            Err(error) => prop_assert!(error.to_string().contains("already"), "{}", error),
        }
    }
}

#[test]
fn every_pattern_of_a_real_tree_matches_the_same() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pkgsrc/pscan.zst");
    let Ok(packed) = std::fs::read(&path) else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: every_pattern_of_a_real_tree_matches_the_same: the scan is not next to this repository"
        );
        return;
    };
    let text = zstd::decode_all(&packed[..]).unwrap();
    let file = ScanFile::parse(&text).unwrap();
    let words = file.stanzas.iter().flat_map(|stanza| stanza.all_depends.split_ascii_whitespace());
    let mut patterns: Vec<&str> = words.map(|word| word.rsplit_once(':').unwrap().0).collect();
    patterns.sort_unstable();
    patterns.dedup();
    // Each pattern with the packages that sort around it: its matches and their neighbours.
    let mut names: Vec<&str> = file.stanzas.iter().map(|stanza| stanza.name).collect();
    names.sort_unstable();
    let mut compared = 0;
    for pattern in &patterns {
        let (ours, theirs) = (Pattern::parse(pattern).unwrap(), pkgsrc::Pattern::new(pattern).unwrap());
        let at = names.partition_point(|name| name < pattern);
        for name in &names[at.saturating_sub(8)..(at + 8).min(names.len())] {
            assert_eq!(ours.matches(&PackageName::new(name)), theirs.matches(name), "{pattern} {name}");
            compared += 1;
        }
    }
    assert!(patterns.len() > 5_000 && compared > 80_000, "{} patterns, {compared}", patterns.len());
}

/// The reasons why the crate is not used here for versions, patterns, scan files or `distinfo` (docs/pkgsrc.md).
/// If one of these fails after an update of the crate, revise that page.
#[test]
fn the_other_crate_still_has_its_gaps() {
    let both = |pattern: &str, name: &str| {
        let ours = Pattern::parse(pattern).unwrap().matches(&PackageName::new(name));
        (ours, pkgsrc::Pattern::new(pattern).unwrap().matches(name))
    };
    // pkg_install orders letters by their position in the alphabet, and accepts words in upper case.
    assert_eq!(both("a>=1.0.5", "a-1.0b"), (false, true));
    assert_eq!(both("a<1.0", "a-1.0RC1"), (true, false));
    // Numbers have any length.
    assert_eq!(both("a>=1.0", "a-20250101000000000000000000"), (true, false));
    assert!(pkgsrc::Pattern::new("a>=20250101000000000000000000").is_err());
    // A name is also tried with `-[0-9]*` appended, a character class may lack its closing bracket, and a star does not
    // match a name that begins with a dot.
    assert_eq!(both("foo", "foo-1.0"), (true, false));
    assert_eq!(both("*-1.0", ".a-1.0"), (false, true));
    assert!(Pattern::parse("foo-[0").is_ok() && pkgsrc::Pattern::new("foo-[0").is_err());
    // A malformed line about distfiles is an error that names its number; it is never skipped or trusted.
    let text = b"nonsense\nSHA1 (../a) = x\n";
    assert!(distinfo::parse(text).unwrap_err().to_string().starts_with("line 1:"));
    let read = pkgsrc::distinfo::Distinfo::from_bytes(text);
    assert_eq!(read.distfile("../a").unwrap().checksums()[0].hash, "x");
    // A reason in another encoding does not invalidate the package.
    let scan = b"PKGNAME=a-1\nPKG_LOCATION=a/b\nPKG_FAIL_REASON=\xe9\n";
    assert_eq!(ScanFile::parse(scan).unwrap().stanzas.len(), 1);
    assert!(pkgsrc::ScanIndex::from_reader(&scan[..]).any(|stanza| stanza.is_err()));
}
