//! Versions, patterns and `distinfo` files of pkgsrc, compared with the crate `pkgsrc`, which others resolve with.

use kilnyard_ecosystem::pkgsrc::distinfo::{self, Distfile};
use kilnyard_ecosystem::pkgsrc::pattern::{PackageName, Pattern};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use proptest::prelude::*;
use std::io::Write as _;

/// Texts that versions are made of, odd ones among them. Single letters are not: that crate takes their ASCII codes
/// for numbers, where pkg_install takes their places in the alphabet, as the tests of our own module do.
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
        // With a version behind the name: without one, that crate takes a pattern for a whole name, where
        // pkg_install tries it with `-[0-9]*` too.
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

/// Lines of a `distinfo` as pkgsrc writes them: files with and without folders, patches, and archives that are called
/// patches. Few names, so that the lines of one file come apart.
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

/// What the other crate reads: distfiles first, then patches, each in order.
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

/// Ours in their order; they know no order between distfiles and patches.
fn distfiles_first(mut files: Vec<Distfile>) -> Vec<Distfile> {
    files.sort_by_key(|file| file.is_patch);
    files
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn distinfo_files_say_the_same(text in distinfo_text()) {
        // That crate takes a second size or hash of a file for one more or the last; here it is an error.
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
            "skipped: every_pattern_of_a_real_tree_matches_the_same: the scan is not beside this repository"
        );
        return;
    };
    let text = zstd::decode_all(&packed[..]).unwrap();
    let file = ScanFile::parse(&text).unwrap();
    let words = file.stanzas.iter().flat_map(|stanza| stanza.all_depends.split_ascii_whitespace());
    let mut patterns: Vec<&str> = words.map(|word| word.rsplit_once(':').unwrap().0).collect();
    patterns.sort_unstable();
    patterns.dedup();
    // Each pattern with the packages that sort around it: those that match, and their neighbours.
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

/// Why that crate reads neither versions, patterns, scan files nor `distinfo` here (docs/pkgsrc.md). Where one of these
/// fails after an update of it, the page is to be read again.
#[test]
fn what_the_other_crate_lacks_is_still_so() {
    let both = |pattern: &str, name: &str| {
        let ours = Pattern::parse(pattern).unwrap().matches(&PackageName::new(name));
        (ours, pkgsrc::Pattern::new(pattern).unwrap().matches(name))
    };
    // Letters have their places in the alphabet for pkg_install, and words may be in upper case.
    assert_eq!(both("a>=1.0.5", "a-1.0b"), (false, true));
    assert_eq!(both("a<1.0", "a-1.0RC1"), (true, false));
    // Numbers have any length.
    assert_eq!(both("a>=1.0", "a-20250101000000000000000000"), (true, false));
    assert!(pkgsrc::Pattern::new("a>=20250101000000000000000000").is_err());
    // A name is tried with `-[0-9]*` behind it, a class may lack its end, and a name with a dot is hidden from a star.
    assert_eq!(both("foo", "foo-1.0"), (true, false));
    assert_eq!(both("*-1.0", ".a-1.0"), (false, true));
    assert!(Pattern::parse("foo-[0").is_ok() && pkgsrc::Pattern::new("foo-[0").is_err());
    // What cannot be understood of distfiles is an error with its line, never passed over or believed.
    let text = b"nonsense\nSHA1 (../a) = x\n";
    assert!(distinfo::parse(text).unwrap_err().to_string().starts_with("line 1:"));
    let read = pkgsrc::distinfo::Distinfo::from_bytes(text);
    assert_eq!(read.distfile("../a").unwrap().checksums()[0].hash, "x");
    // One reason in another encoding does not cost the package.
    let scan = b"PKGNAME=a-1\nPKG_LOCATION=a/b\nPKG_FAIL_REASON=\xe9\n";
    assert_eq!(ScanFile::parse(scan).unwrap().stanzas.len(), 1);
    assert!(pkgsrc::ScanIndex::from_reader(&scan[..]).any(|stanza| stanza.is_err()));
}
