use super::*;

fn header() -> Header {
    Header {
        platform: "NetBSD".to_owned(),
        version: "10.1".to_owned(),
        architecture: "x86_64".to_owned(),
        compiler: "gcc".to_owned(),
        start_seconds: 1_767_225_540, // 2025-12-31 23:59
        end_seconds: 1_767_312_000,
        base_url: "https://reports.example.org/trunk".to_owned(),
    }
}

fn stanza(name: &str, location: &str, maintainer: &str, reason: &str) -> Vec<u8> {
    format!("PKGNAME={name}\nPKG_LOCATION={location}\nPKG_FAIL_REASON={reason}\nMAINTAINER={maintainer}\n")
        .into_bytes()
}

/// A build with every case of the layout.
fn build() -> Vec<(Vec<u8>, Status, u32)> {
    vec![
        (stanza("zlib-1.3", "devel/zlib", "a@example.org", ""), Status::Done, 20),
        (stanza("perl-5.42", "lang/perl5", "b@example.org", ""), Status::Failed, 1_234),
        (stanza("py312-x-1", "devel/py-x", "c@example.org", ""), Status::Failed, 3),
        (stanza("py313-x-1", "devel/py-x", "c@example.org", ""), Status::Done, 3),
        (stanza("py314-x-1", "devel/py-x", "c@example.org", ""), Status::Failed, 1),
        (stanza("figlet-2.2.5", "misc/figlet", "d@example.org", ""), Status::Failed, 1),
        (stanza("ab-1", "net/ab", "e@example.org", ""), Status::Failed, 3),
        (stanza("p5-a-1", "devel/p5-a", "b@example.org", ""), Status::IndirectFailed, 1),
        (stanza("old-1", "misc/old", "f@example.org", "\"is broken\""), Status::Prefailed, 2),
        (
            stanza("lost-1", "misc/lost", "g@example.org", "\"could not resolve dependency \"x>=1\"\""),
            Status::Prefailed,
            1,
        ),
        (stanza("new-1", "misc/new", "f@example.org", ""), Status::IndirectPrefailed, 1),
        (stanza("late-1", "misc/late", "f@example.org", ""), Status::Open, 1),
    ]
}

fn packages(build: &[(Vec<u8>, Status, u32)]) -> Vec<Package<'_>> {
    build.iter().map(|(stanza, status, depth)| Package { stanza, status: *status, depth: *depth }).collect()
}

fn text(header: &Header, packages: &[Package]) -> String {
    let mut out = Vec::new();
    write_text(&mut out, header, packages).unwrap();
    String::from_utf8(out).unwrap()
}

/// Written by hand, column by column, according to the output of create-report-txt.awk 1.9.
const EXPECTED: &str = "\
pkgsrc bulk build report
========================

NetBSD 10.1/x86_64
Compiler: gcc

Build start: 2025-12-31 23:59
Build end:   2026-01-02 00:00

Full report: https://reports.example.org/trunk/20251231.2359/meta/report.html
Machine readable version: https://reports.example.org/trunk/20251231.2359/meta/report.xz

Total number of packages:             11
  Successfully built:                  2
  Failed to build:                     5
  Depending on failed package:         1
  Explicitly broken or masked:         2
    of which invalid dependencies:     1
  Depending on masked package:         1

Packages breaking the most other packages

Package                               Breaks Maintainer
-------------------------------------------------------------------------
lang/perl5                              1233 b@example.org
net/ab                                     2 e@example.org
devel/py-x                                 2 c@example.org

Packages with invalid dependencies

Package                                      Location                      Maintainer
-----------------------------------------------------------------------------------------------
lost-1                                       misc/lost                     g@example.org

Build failures

Package                               Breaks Maintainer
-------------------------------------------------------------------------
devel/py-x                                 2 c@example.org
    py312-x-1                              2 c@example.org
    py314-x-1                                c@example.org
lang/perl5                              1233 b@example.org
misc/figlet                                  d@example.org
net/ab                                     2 e@example.org
";

#[test]
fn the_text_has_pbulks_layout() {
    assert_eq!(text(&header(), &packages(&build())), EXPECTED);
}

#[test]
fn a_build_without_failures_has_an_empty_list() {
    let build = [(stanza("a-1", "b/a", "c", ""), Status::Done, 1)];
    let text = text(&header(), &packages(&build));
    assert!(text.contains("of which invalid dependencies:     0\n"), "{text}");
    assert!(
        text.ends_with("--\n") && !text.contains("breaking") && !text.contains("Packages with"),
        "{text}"
    );
}

#[test]
fn long_names_and_large_numbers_shift_the_columns() {
    let name = "n".repeat(60);
    let build = [(stanza("a-1", &name, "m", ""), Status::Failed, 1_234_568)];
    assert!(text(&header(), &packages(&build)).ends_with(&format!("\n{name}  1234567 m\n")));
    let many: Vec<(Vec<u8>, Status, u32)> = (0..30)
        .map(|number| (stanza("a-1", &format!("x/{number:02}"), "m", ""), Status::Failed, 2))
        .collect();
    let text = text(&header(), &packages(&many));
    let (breakers, _) = text.split_once("Build failures").unwrap();
    let listed: Vec<&str> =
        breakers.lines().filter_map(|line| line.get(..4).filter(|name| name.starts_with("x/"))).collect();
    assert_eq!((listed.len(), listed[0], listed[24]), (25, "x/29", "x/05"));
}

#[test]
fn the_report_has_each_stanza_with_depth_and_status() {
    let build = [
        (b"PKGNAME=a-1\nPKG_LOCATION=b/a\nX=\xff\nDEPENDS=b-1".to_vec(), Status::IndirectFailed, 1),
        (stanza("b-1", "b/b", "c", ""), Status::Failed, 2),
    ];
    let mut out = Vec::new();
    for package in packages(&build) {
        write_package(&mut out, &package, package.stanza).unwrap();
    }
    let expected = [
        b"PKGNAME=a-1\nPKG_LOCATION=b/a\nX=\xff\nDEPENDS=b-1\nPKG_DEPTH=1\nBUILD_STATUS=indirect-failed\n"
            .to_vec(),
        stanza("b-1", "b/b", "c", ""),
        b"PKG_DEPTH=2\nBUILD_STATUS=failed\n".to_vec(),
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn facts_of_a_build_cannot_add_lines() {
    let mut header = header();
    header.compiler = "gcc\nBASE_URL=x".to_owned();
    let mut out = Vec::new();
    header.write_status(&mut out).unwrap();
    let status = String::from_utf8(out).unwrap();
    assert_eq!(
        status,
        "PLATFORM=NetBSD 10.1/x86_64\nOPSYS=NetBSD\nOS_VERSION=10.1\nMACHINE_ARCH=x86_64\n\
         COMPILER=gcc BASE_URL=x\nBUILD_START_ISO=2025-12-31 23:59\nBUILD_START_DIR=20251231.2359\n\
         BUILD_START_EPOCHE=1767225540\nBASE_URL=https://reports.example.org/trunk\n\
         BUILD_END_ISO=2026-01-02 00:00\n"
    );
    assert!(text(&header, &[]).contains("\nCompiler: gcc BASE_URL=x\n"));
}
