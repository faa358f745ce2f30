//! The program on scans of pkgsrc: small ones, and that of the whole tree where it is at hand.

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use support::{Ended, folder, kilnyard, trials};
use trials::case;

const SCAN: &str = "\
PKGNAME=top-1.0
PKG_LOCATION=a/top
ALL_DEPENDS=lib>=1:../../a/lib {old,new}-[0-9]*:../../a/old
PKG_SKIP_REASON=
PKG_FAIL_REASON=
SCAN_DEPENDS=../../mk/top.mk
PKGNAME=lib-1.2nb3
PKG_LOCATION=a/lib
ALL_DEPENDS=
PKG_SKIP_REASON=
PKG_FAIL_REASON=
PKGNAME=lib-2.0
PKG_LOCATION=a/lib2
ALL_DEPENDS=
PKG_SKIP_REASON=\"it is not for this system\"
PKG_FAIL_REASON=
PKGNAME=new-3
PKG_LOCATION=a/new
ALL_DEPENDS=gone-[0-9]*:../../a/gone
PKG_SKIP_REASON=
PKG_FAIL_REASON=
";

fn resolve(import: &Path, more: &[&str]) -> Ended {
    let import = import.to_str().unwrap();
    kilnyard(&[&["resolve", "--ecosystem", "pkgsrc", "--import", import], more].concat())
}

fn depends(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("DEPENDS=")).collect()
}

fn a_scan_is_resolved_and_says_what_it_did() {
    let folder = folder("resolve");
    let path = folder.path().join("scan");
    std::fs::write(&path, SCAN).unwrap();
    let ours = resolve(&path, &["--verbose"]).exits(0).says(&[
        "lib>=1: lib-1.2nb3 is taken, since lib-2.0 is not built",
        "warning: top-1.0: the best match for {old,new}-[0-9]* is new-3 in a/new, not in a/old",
        "new-3: nothing matches gone-[0-9]*; a/gone offers nothing",
        "left out: top-1.0 -> new-3",
        "4 packages: 1 can be built, 1 are left out by their own word, 1 cannot be resolved",
    ]);
    assert_eq!(depends(&ours.stdout), ["DEPENDS=lib-1.2nb3 new-3"]);
    assert!(ours.stdout.contains("PKG_FAIL_REASON=\"could not resolve dependency \"gone-[0-9]*\"\"\n"));
    let theirs = resolve(&path, &["--pbulk-rules"]).exits(0);
    assert_eq!(depends(&theirs.stdout), ["DEPENDS=lib-2.0 new-3"]);
}

fn a_packed_scan_is_the_same() {
    let folder = folder("packed");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("plain"), SCAN).unwrap();
    std::fs::write(path("zstd"), zstd::encode_all(SCAN.as_bytes(), 1).unwrap()).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(SCAN.as_bytes()).unwrap();
    std::fs::write(path("gzip"), gzip.finish().unwrap()).unwrap();
    let expected = resolve(&path("plain"), &[]).exits(0).stdout;
    for packed in ["zstd", "gzip"] {
        let out = path(&format!("{packed}-out"));
        resolve(&path(packed), &["--export", out.to_str().unwrap()]).exits(0);
        assert_eq!(std::fs::read_to_string(out).unwrap(), expected);
    }
    // What was resolved can be resolved again, to the same.
    std::fs::write(path("again"), &expected).unwrap();
    assert_eq!(depends(&resolve(&path("again"), &[]).exits(0).stdout), depends(&expected));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 6, "nothing is left over");
}

fn a_bad_scan_is_named_and_nothing_is_written() {
    let folder = folder("bad-scan");
    let (scan, out) = (folder.path().join("scan"), folder.path().join("out"));
    let out_text = out.to_str().unwrap();
    for (text, words) in [
        ("", "there is no package in it"),
        ("PKGNAME=a-1\nPKG_LOCATION=../../etc\n", "line 2: PKG_LOCATION is `../../etc`"),
        ("nonsense\n", "line 1 belongs to no package"),
        ("\u{28}\u{fffd}", "line 1"),
    ] {
        std::fs::write(&scan, text).unwrap();
        resolve(&scan, &["--export", out_text]).exits(2).says(&[words]);
        assert!(!out.exists());
    }
    std::fs::write(&scan, &zstd::encode_all(SCAN.as_bytes(), 1).unwrap()[..60]).unwrap();
    resolve(&scan, &["--export", out_text]).exits(2).says(&["failed to read"]);
    resolve(&folder.path().join("absent"), &[]).exits(2).says(&["No such file"]);
    std::fs::write(&scan, SCAN).unwrap();
    resolve(&scan, &["--export", "/nowhere/out"]).exits(3).says(&["failed to write /nowhere/out"]);
    resolve(&scan, &["--export", "/dev/full"]).exits(3).says(&["No space left"]);
}

fn one_package_is_found_in_an_index() {
    let folder = folder("index");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(
        path("summary"),
        "PKGNAME=a-1\nDEPENDS=b>=1\nDEPENDS=c-[0-9]*\nCOMMENT=an A\n\nPKGNAME=b-2\n",
    )
    .unwrap();
    kilnyard(&["index", "make", &path("summary"), &path("index")]).exits(0).says(&["2 packages"]);
    let found = kilnyard(&["index", "look-up", &path("index"), "a-1", "--json"]).exits(0).json();
    assert_eq!((&found["COMMENT"], &found["DEPENDS"][1]), (&"an A".into(), &"c-[0-9]*".into()));
    let plain = kilnyard(&["index", "look-up", &path("index"), "b-2"]).exits(0);
    assert_eq!(plain.stdout, "PKGNAME=b-2\n");
    kilnyard(&["index", "look-up", &path("index"), "c-1"]).exits(2).says(&["there is no c-1"]);
    kilnyard(&["index", "look-up", &path("summary"), "a-1"]).exits(2).says(&["failed to look a-1 up"]);
    std::fs::write(path("summary"), "PKGNAME=a-1\n\nPKGNAME=a-1\n").unwrap();
    kilnyard(&["index", "make", &path("summary"), &path("other")]).exits(2).says(&["twice"]);
}

fn whole_tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pkgsrc/pscan.zst")
}

/// The counts are those that pbulk's resolver and bob come to on the same scan.
fn the_whole_tree_comes_out_as_with_pbulk() {
    for rules in [&["--pbulk-rules"][..], &[]] {
        let ended = resolve(&whole_tree(), rules).exits(0);
        assert!(
            ended.stderr.contains(
                "29022 packages: 27370 can be built, 1323 are left out by their own word, 6 cannot"
            )
        );
        assert_eq!(ended.stdout.len(), 161_866_033);
    }
}

fn main() {
    let cases = vec![
        case("a_scan_is_resolved_and_says_what_it_did", a_scan_is_resolved_and_says_what_it_did),
        case("a_packed_scan_is_the_same", a_packed_scan_is_the_same),
        case("a_bad_scan_is_named_and_nothing_is_written", a_bad_scan_is_named_and_nothing_is_written),
        case("one_package_is_found_in_an_index", one_package_is_found_in_an_index),
        case("the_whole_tree_comes_out_as_with_pbulk", the_whole_tree_comes_out_as_with_pbulk)
            .needs(whole_tree().exists(), "the scan of the whole tree is not beside this repository"),
    ];
    trials::run(cases, 2, || {});
}
