//! Reads packages that the package tool itself built, and what happens to them when bytes change.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use kilnyard_ecosystem::debian::deb_file::{self, DebFileError, DebProblem};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const COMPRESSORS: [&str; 4] = ["gzip", "xz", "zstd", "none"];

/// Prints why a test cannot run here.
fn lacks(test: &str, tools: &[&str]) -> bool {
    for tool in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("skipped: {test}: {tool} is not installed");
            return true;
        }
    }
    false
}

fn write(path: &Path, content: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// The tree of one small package with every kind of thing that a package commonly holds.
struct Package {
    directory: tempfile::TempDir,
}

impl Package {
    fn new(version: &str) -> Self {
        let package = Self { directory: tempfile::tempdir().unwrap() };
        let tree = package.tree();
        write(
            &tree.join("DEBIAN/control"),
            format!(
                "Package: kiln1\nVersion: {version}\nSource: kiln (0.9)\nArchitecture: amd64\n\
                 Maintainer: A <a@example.org>\nInstalled-Size: {}\nDepends: libkiln1 (= {version}), libc6 (>= 2.36)\n\
                 Description: a test\n With a longer text, not UTF-8-free: é.\n .\n And a paragraph.\n",
                version.len()
            )
            .as_bytes(),
            0o644,
        );
        write(&tree.join("DEBIAN/postinst"), format!("#!/bin/sh\necho {version}\n").as_bytes(), 0o755);
        write(&tree.join("DEBIAN/md5sums"), format!("0 {version}\n").as_bytes(), 0o644);
        write(&tree.join("DEBIAN/shlibs"), format!("libkiln 1 kiln1 (>= {version})\n").as_bytes(), 0o644);
        write(&tree.join("usr/bin/kiln"), b"\x7fELF not really", 0o755);
        write(&tree.join("usr/share/kiln/large"), &vec![7; 300_000], 0o644);
        write(&tree.join("usr/share/kiln/empty"), b"", 0o644);
        fs::hard_link(tree.join("usr/bin/kiln"), tree.join("usr/bin/kiln-linked")).unwrap();
        symlink("kiln", tree.join("usr/bin/kiln-symlink")).unwrap();
        let long = format!("usr/share/kiln/{}/{}", "d".repeat(90), "f".repeat(150));
        write(&tree.join(&long), b"long", 0o644);
        symlink("t".repeat(180), tree.join("usr/share/kiln/long-link")).unwrap();
        let changelog = gzip(format!("kiln ({version}) unstable; urgency=low\n").as_bytes());
        write(&tree.join("usr/share/doc/kiln1/changelog.Debian.gz"), &changelog, 0o644);
        write(&tree.join("usr/share/doc/kiln1/changelog.Debian.amd64.gz"), &changelog, 0o644);
        write(&tree.join("usr/share/doc/kiln1/changelog.gz"), &gzip(b"upstream"), 0o644);
        write(&tree.join("usr/share/doc/kiln1/NEWS.Debian.gz"), &gzip(b"news"), 0o644);
        package
    }

    fn tree(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    fn build(&self, compressor: &str) -> PathBuf {
        let deb = self.directory.path().join(format!("{compressor}.deb"));
        let output = Command::new("dpkg-deb")
            .args(["--build", "--uniform-compression", &format!("-Z{compressor}")])
            .arg(self.tree())
            .arg(&deb)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        deb
    }

    fn content(&self) -> String {
        deb_file::read(&self.build("none")).unwrap().content
    }
}

/// The content digest of the usual package after `change`.
fn content_after(change: impl FnOnce(&Path)) -> String {
    let package = Package::new("1.0-1");
    change(&package.tree());
    package.content()
}

fn problem(path: &Path) -> DebProblem {
    match deb_file::read(path) {
        Err(DebFileError::Format { problem, .. }) => problem,
        other => panic!("expected a format problem, not {other:?}"),
    }
}

#[test]
fn every_compressor_reads_the_same() {
    if lacks("every_compressor_reads_the_same", &["dpkg-deb"]) {
        return;
    }
    let package = Package::new("1.0-1");
    let mut contents = Vec::new();
    for compressor in COMPRESSORS {
        let path = package.build(compressor);
        let deb = deb_file::read(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(deb.size_bytes, bytes.len() as u64);
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(deb.sha256, sha256);
        assert_eq!(deb.control, fs::read_to_string(package.tree().join("DEBIAN/control")).unwrap());
        let fields = Command::new("dpkg-deb").arg("-f").arg(&path).output().unwrap();
        assert_eq!(deb.control, String::from_utf8(fields.stdout).unwrap());
        contents.push(deb.content);
    }
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "{contents:?}");
}

#[test]
fn a_rebuild_that_only_bumps_the_version_has_equal_content() {
    if lacks("a_rebuild_that_only_bumps_the_version_has_equal_content", &["dpkg-deb"]) {
        return;
    }
    let first = Package::new("1:1.0-1");
    let second = Package::new("1:1.0-1+b12");
    let touched = fs::File::open(second.tree().join("usr/bin/kiln")).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    for compressor in COMPRESSORS {
        let (first, second) = (
            deb_file::read(&first.build(compressor)).unwrap(),
            deb_file::read(&second.build(compressor)).unwrap(),
        );
        assert_eq!(first.content, second.content);
        assert_ne!(first.sha256, second.sha256);
        assert_ne!(first.control, second.control);
    }
}

#[test]
fn a_native_package_has_its_changelog_under_another_name() {
    if lacks("a_native_package_has_its_changelog_under_another_name", &["dpkg-deb"]) {
        return;
    }
    let with_changelog = |version: &str, text: &str| {
        let package = Package::new(version);
        write(&package.tree().join("usr/share/doc/kiln1/changelog.gz"), &gzip(text.as_bytes()), 0o644);
        package.content()
    };
    assert_eq!(with_changelog("1.0", "one"), with_changelog("1.0+b1", "two"));
    assert_ne!(with_changelog("1.0-1", "one"), with_changelog("1.0-1+b1", "two"));
}

#[test]
fn every_other_change_shows() {
    if lacks("every_other_change_shows", &["dpkg-deb"]) {
        return;
    }
    let replace = |path: &'static str, from: &'static str, to: &'static str| {
        move |tree: &Path| {
            let text = fs::read_to_string(tree.join(path)).unwrap();
            assert!(text.contains(from));
            fs::write(tree.join(path), text.replace(from, to)).unwrap();
        }
    };
    let base = content_after(|_| {});
    assert_eq!(base, content_after(|_| {}), "the same tree twice");
    let mut seen = vec![("base", base)];
    type Change = Box<dyn FnOnce(&Path)>;
    let mut changes: Vec<(&str, Change)> = vec![
        ("byte", Box::new(|tree| fs::write(tree.join("usr/bin/kiln"), b"\x7fELF not reallY").unwrap())),
        (
            "mode",
            Box::new(|tree| {
                fs::set_permissions(tree.join("usr/share/kiln/large"), fs::Permissions::from_mode(0o600))
                    .unwrap();
            }),
        ),
        (
            "symlink",
            Box::new(|tree| {
                fs::remove_file(tree.join("usr/bin/kiln-symlink")).unwrap();
                symlink("kiln-linked", tree.join("usr/bin/kiln-symlink")).unwrap();
            }),
        ),
        (
            "long symlink",
            Box::new(|tree| {
                fs::remove_file(tree.join("usr/share/kiln/long-link")).unwrap();
                symlink(format!("{}u", "t".repeat(179)), tree.join("usr/share/kiln/long-link")).unwrap();
            }),
        ),
        (
            "long name",
            Box::new(|tree| {
                let directory = tree.join("usr/share/kiln").join("d".repeat(90));
                fs::rename(directory.join("f".repeat(150)), directory.join(format!("{}g", "f".repeat(149))))
                    .unwrap();
            }),
        ),
        (
            "hard link copied",
            Box::new(|tree| {
                let content = fs::read(tree.join("usr/bin/kiln")).unwrap();
                fs::remove_file(tree.join("usr/bin/kiln-linked")).unwrap();
                write(&tree.join("usr/bin/kiln-linked"), &content, 0o755);
            }),
        ),
        ("file gone", Box::new(|tree| fs::remove_file(tree.join("usr/share/kiln/empty")).unwrap())),
        ("empty directory", Box::new(|tree| fs::create_dir(tree.join("usr/share/kiln/new")).unwrap())),
        (
            "news",
            Box::new(|tree| {
                write(&tree.join("usr/share/doc/kiln1/NEWS.Debian.gz"), &gzip(b"other news"), 0o644);
            }),
        ),
        (
            "upstream changelog",
            Box::new(|tree| {
                write(&tree.join("usr/share/doc/kiln1/changelog.gz"), &gzip(b"upstream 2"), 0o644);
            }),
        ),
        (
            "changelog elsewhere",
            Box::new(|tree| {
                write(&tree.join("usr/share/kiln/changelog.Debian.gz"), &gzip(b"x"), 0o644);
            }),
        ),
        (
            "changelog a link",
            Box::new(|tree| {
                fs::remove_file(tree.join("usr/share/doc/kiln1/changelog.Debian.gz")).unwrap();
                symlink("../kiln/changelog.Debian.gz", tree.join("usr/share/doc/kiln1/changelog.Debian.gz"))
                    .unwrap();
            }),
        ),
        ("dependency", Box::new(replace("DEBIAN/control", "libc6 (>= 2.36)", "libc6 (>= 2.37)"))),
        ("own relation", Box::new(replace("DEBIAN/control", "libkiln1 (= 1.0-1)", "libkiln1 (= 1.0-2)"))),
        ("source version", Box::new(replace("DEBIAN/control", "kiln (0.9)", "kiln (0.10)"))),
        ("description", Box::new(replace("DEBIAN/control", "paragraph", "sentence"))),
        ("script", Box::new(replace("DEBIAN/postinst", "echo", "exec echo"))),
        (
            "control mode",
            Box::new(|tree| {
                fs::set_permissions(tree.join("DEBIAN/shlibs"), fs::Permissions::from_mode(0o755)).unwrap();
            }),
        ),
        ("shlibs", Box::new(replace("DEBIAN/shlibs", "libkiln 1", "libkiln 2"))),
        (
            "conffiles",
            Box::new(|tree| {
                write(&tree.join("etc/kiln"), b"", 0o644);
                write(&tree.join("DEBIAN/conffiles"), b"/etc/kiln\n", 0o644);
            }),
        ),
        ("no conffiles", Box::new(|tree| write(&tree.join("etc/kiln"), b"", 0o644))),
    ];
    if is_root() {
        changes
            .push(("owner", Box::new(|tree| chown(tree.join("usr/bin/kiln"), Some(12345), None).unwrap())));
        changes
            .push(("group", Box::new(|tree| chown(tree.join("usr/bin/kiln"), None, Some(12345)).unwrap())));
        changes.push((
            "large owner",
            Box::new(|tree| {
                chown(tree.join("usr/bin/kiln"), Some(3_000_000), None).unwrap();
            }),
        ));
    } else {
        eprintln!("skipped: every_other_change_shows: owners: needs root");
    }
    for (name, change) in changes {
        let content = content_after(change);
        for (other, seen) in &seen {
            assert_ne!(seen, &content, "{name} looks like {other}");
        }
        seen.push((name, content));
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

#[test]
fn the_own_version_can_be_given() {
    if lacks("the_own_version_can_be_given", &["dpkg-deb"]) {
        return;
    }
    let package = Package::new("1.0-1");
    let path = package.build("xz");
    assert_eq!(deb_file::content_digest(&path, "1.0-1").unwrap(), deb_file::read(&path).unwrap().content);
    assert_ne!(deb_file::content_digest(&path, "1.0-2").unwrap(), deb_file::read(&path).unwrap().content);
}

/// An `ar` archive by hand.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, content) in members {
        bytes.extend(
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100644, content.len()).bytes(),
        );
        bytes.extend_from_slice(content);
        if content.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

const CONTROL: &[u8] = b"Package: kiln\nVersion: 1\nArchitecture: all\n";

fn tar_of(entries: &[(tar::EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, path, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_path(path).unwrap();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn control_tar() -> Vec<u8> {
    tar_of(&[(tar::EntryType::Regular, "control", CONTROL)])
}

struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn deb(&self, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join("x.deb");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn with_data(&self, data: &[u8]) -> PathBuf {
        self.deb(&archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar", &control_tar()),
            ("data.tar", data),
        ]))
    }
}

#[test]
fn gnu_and_pax_archives_of_one_tree_read_alike() {
    if lacks("gnu_and_pax_archives_of_one_tree_read_alike", &["tar"]) {
        return;
    }
    let tree = Package::new("1.0-1").tree_kept();
    let scratch = Scratch::new();
    let content = |format: &str, names: &[&str]| {
        let output = Command::new("tar")
            .args([
                "--create",
                "--owner=root:0",
                "--group=root:0",
                "--mtime=@1.5",
                "--format",
                format,
                "--directory",
            ])
            .arg(tree.path().join("tree"))
            .args(names)
            .output()
            .unwrap();
        assert!(output.status.success());
        deb_file::read(&scratch.with_data(&output.stdout)).unwrap().content
    };
    let gnu = content("gnu", &["./usr"]);
    assert_eq!(gnu, content("pax", &["./usr"]));
    assert_eq!(gnu, content("gnu", &["usr"]), "the ./ in front says nothing");
    // The other order makes the other of the two linked names the one that carries the bytes.
    let forth = content("gnu", &["usr/bin/kiln", "usr/bin/kiln-linked"]);
    assert_eq!(forth, content("gnu", &["usr/bin/kiln-linked", "usr/bin/kiln"]));
    assert_ne!(forth, content("gnu", &["usr/bin/kiln-linked"]));
}

impl Package {
    fn tree_kept(self) -> tempfile::TempDir {
        self.directory
    }
}

#[test]
fn damaged_archives_are_named_as_such() {
    let scratch = Scratch::new();
    let control = control_tar();
    let data = tar_of(&[(tar::EntryType::Regular, "./a", b"a")]);
    let good = archive(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar", &control),
        ("data.tar/", &data),
        ("_sign", b"x"),
    ]);
    deb_file::read(&scratch.deb(&good)).unwrap();

    assert!(matches!(problem(&scratch.deb(b"")), DebProblem::NotAnArchive));
    assert!(matches!(problem(&scratch.deb(b"!<arch>X rest")), DebProblem::NotAnArchive));
    assert!(matches!(
        problem(&scratch.deb(b"!<arch>\n")),
        DebProblem::MissingMember { member: "debian-binary" }
    ));

    // Every shorter file is refused, except where only the ignored member or padding is lost.
    let essential =
        archive(&[("debian-binary", b"2.0\n"), ("control.tar", &control), ("data.tar", &data)]).len();
    for length in 0..good.len() {
        let result = deb_file::read(&scratch.deb(&good[..length]));
        assert_eq!(
            result.is_ok(),
            length == essential || length == good.len() - 1,
            "cut at {length}: {result:?}"
        );
    }

    let mut huge = good.clone();
    huge[8 + 60 + 4 + 48..][..10].copy_from_slice(b"9999999999");
    match problem(&scratch.deb(&huge)) {
        DebProblem::MemberTooLong { member, claimed_bytes, .. } => {
            assert_eq!((member.as_str(), claimed_bytes), ("control.tar", 9_999_999_999));
        }
        other => panic!("{other}"),
    }
    let mut negative = good.clone();
    negative[8 + 60 + 4 + 48..][..10].copy_from_slice(b"-1        ");
    assert!(matches!(problem(&scratch.deb(&negative)), DebProblem::MemberHeader { offset: 72, .. }));

    let members = |members: &[(&str, &[u8])]| problem(&scratch.deb(&archive(members)));
    assert!(
        matches!(members(&[("debian-binary", b"3.0\n")]), DebProblem::FormatVersion { found } if found == "3.0")
    );
    assert!(matches!(
        members(&[("debian-binary", b"2.0\n"), ("data.tar", &data)]),
        DebProblem::UnexpectedMember { expected: "control.tar", .. }
    ));
    assert!(matches!(
        members(&[("debian-binary", b"2.0\n"), ("control.tar", &control), ("data.tar.bz2", b"BZh9")]),
        DebProblem::UnsupportedCompression { .. }
    ));
    for suffix in ["gz", "xz", "zst"] {
        for content in [b"".as_slice(), b"not compressed"] {
            assert!(matches!(
                members(&[("debian-binary", b"2.0\n"), (&format!("control.tar.{suffix}"), content)]),
                DebProblem::Content { member: "control archive", .. }
            ));
        }
    }
    let many: Vec<(&str, &[u8])> = (0..40).map(|_| ("_x", b"".as_slice())).collect();
    assert!(matches!(members(&many), DebProblem::TooManyMembers { .. }));
}

#[test]
fn a_cut_or_spoilt_compressed_member_is_damaged() {
    if lacks("a_cut_or_spoilt_compressed_member_is_damaged", &["dpkg-deb"]) {
        return;
    }
    let scratch = Scratch::new();
    let data = tar_of(&[(
        tar::EntryType::Regular,
        "./a",
        &(0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(),
    )]);
    let compressed = [
        ("data.tar.gz", gzip(&data)),
        ("data.tar.xz", {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut liblzma::read::XzEncoder::new(data.as_slice(), 1), &mut bytes)
                .unwrap();
            bytes
        }),
        // The reference tool adds a checksum by default; so must this.
        ("data.tar.zst", {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(&data).unwrap();
            encoder.finish().unwrap()
        }),
    ];
    for (name, good) in compressed {
        let read = |bytes: &[u8]| {
            deb_file::read(&scratch.deb(&archive(&[
                ("debian-binary", b"2.0\n"),
                ("control.tar", &control_tar()),
                (name, bytes),
            ])))
        };
        read(&good).unwrap();
        for length in [good.len() - 1, good.len() - 8, good.len() / 2, 20, 1] {
            assert!(read(&good[..length]).is_err(), "{name} cut at {length}");
        }
        let mut spoilt = good.clone();
        let middle = good.len() / 2;
        spoilt[middle] ^= 0x40;
        assert!(read(&spoilt).is_err(), "{name} spoilt");
        let mut longer = good.clone();
        longer.extend_from_slice(b"something else");
        assert!(read(&longer).is_err(), "{name} with bytes after its end");
    }
}

#[test]
fn hostile_tar_entries_are_refused() {
    use tar::EntryType as Type;
    let scratch = Scratch::new();
    let data = |entries: &[(Type, &str, &[u8])]| problem(&scratch.with_data(&tar_of(entries)));
    let control = |entries: &[(Type, &str, &[u8])]| {
        problem(&scratch.deb(&archive(&[("debian-binary", b"2.0\n"), ("control.tar", &tar_of(entries))])))
    };
    assert!(matches!(data(&[(Type::GNUSparse, "a", b"")]), DebProblem::Entry { .. }));
    assert!(matches!(data(&[(Type::XGlobalHeader, "a", b"")]), DebProblem::Entry { .. }));
    assert!(matches!(data(&[(Type::GNULongName, "a", b"name\0")]), DebProblem::Entry { .. }));
    assert!(matches!(data(&[(Type::GNULongName, "a", &[b'x'; 10_000])]), DebProblem::TooLarge { .. }));
    assert!(matches!(data(&[(Type::XHeader, "a", &vec![b'x'; 1 << 20])]), DebProblem::TooLarge { .. }));
    assert!(matches!(
        data(&[(Type::GNULongName, "a", b"./x/../../etc/passwd\0"), (Type::Regular, "a", b"")]),
        DebProblem::Entry { .. }
    ));
    assert!(matches!(
        data(&[(Type::XHeader, "a", b"11 size=99\n"), (Type::Regular, "a", b"x")]),
        DebProblem::Entry { .. }
    ));

    assert!(matches!(control(&[]), DebProblem::ControlFileCount { count: 0 }));
    assert!(matches!(
        control(&[(Type::Regular, "./control", CONTROL), (Type::Regular, "control", CONTROL)]),
        DebProblem::ControlFileCount { count: 2 }
    ));
    assert!(matches!(control(&[(Type::Regular, "control", b"Version: \xff\n")]), DebProblem::ControlNotText));
    assert!(matches!(control(&[(Type::Regular, "control", b"Package: a\n")]), DebProblem::NoVersion));
    assert!(matches!(control(&[(Type::Symlink, "control", b"")]), DebProblem::Entry { .. }));
    assert!(matches!(
        control(&[(Type::Regular, "control", &vec![b'a'; 5 << 20])]),
        DebProblem::TooLarge { what: "control file", .. }
    ));
}

#[test]
fn a_control_archive_that_unpacks_without_end_is_stopped() {
    let scratch = Scratch::new();
    let mut header = tar::Header::new_gnu();
    header.set_path("templates").unwrap();
    header.set_size(1 << 40);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..200 {
        encoder.write_all(&zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 100_000);
    let found = problem(&scratch.deb(&archive(&[("debian-binary", b"2.0\n"), ("control.tar.zst", &bomb)])));
    assert!(matches!(found, DebProblem::TooLarge { what: "control archive", .. }), "{found}");

    // The same in a file whose bytes are skipped, where only the length that came out can tell.
    header.set_path("md5sums").unwrap();
    header.set_cksum();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(header.as_bytes()).unwrap();
    for _ in 0..200 {
        encoder.write_all(&zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    let found = problem(&scratch.deb(&archive(&[("debian-binary", b"2.0\n"), ("control.tar.zst", &bomb)])));
    assert!(matches!(found, DebProblem::Content { member: "control archive", .. }), "{found}");
}

#[test]
fn a_missing_file_says_which() {
    let error = deb_file::read(Path::new("/nonexistent/x.deb")).unwrap_err();
    assert_eq!(error.to_string(), "open the package file /nonexistent/x.deb");
}

/// One change to a file's bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Copy(prop::sample::Index, prop::sample::Index, usize),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Self::Set(at, value) => bytes[at.index(length)] = *value,
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Insert(at, new) => {
                let at = at.index(length);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..(at + count).min(length));
            }
            Self::Copy(from, to, count) => {
                let (from, to) = (from.index(length), to.index(length));
                let count = (*count).min(length - from).min(length - to);
                bytes.copy_within(from..from + count, to);
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, value)| Mutation::Set(at, value)),
        1 => at().prop_map(Mutation::Cut),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..600)).prop_map(|(at, new)| Mutation::Insert(at, new)),
        1 => (at(), 1..600_usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        2 => (at(), at(), 1..600_usize).prop_map(|(from, to, count)| Mutation::Copy(from, to, count)),
    ]
}

/// The package in each compression, small so that changes hit headers often.
fn small_packages() -> Vec<Vec<u8>> {
    let data = {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, "n".repeat(150), b"abc".as_slice()).unwrap();
        builder.append_pax_extensions([("path", b"pax".as_slice()), ("comment", b"x")]).unwrap();
        builder.append_data(&mut header, "short", b"def".as_slice()).unwrap();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        builder.append_link(&mut header, "linked", "short").unwrap();
        builder.into_inner().unwrap()
    };
    let control = control_tar();
    let xz = |bytes: &[u8]| {
        let mut packed = Vec::new();
        std::io::Read::read_to_end(&mut liblzma::read::XzEncoder::new(bytes, 0), &mut packed).unwrap();
        packed
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    vec![
        archive(&[("debian-binary", b"2.0\n"), ("control.tar", &control), ("data.tar", &data)]),
        archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", &gzip(&control)),
            ("data.tar.gz", &gzip(&data)),
        ]),
        archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", &xz(&control)),
            ("data.tar.xz", &xz(&data)),
        ]),
        archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar.zst", &zstd(&control)),
            ("data.tar.zst", &zstd(&data)),
        ]),
    ]
}

#[test]
fn the_small_packages_are_whole() {
    let scratch = Scratch::new();
    let contents: Vec<String> =
        small_packages().iter().map(|bytes| deb_file::read(&scratch.deb(bytes)).unwrap().content).collect();
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_packages_are_read_or_refused(
        which in 0..4_usize,
        mutations in prop::collection::vec(mutation(), 1..6),
    ) {
        let mut bytes = small_packages().swap_remove(which);
        for mutation in &mutations {
            mutation.apply(&mut bytes);
        }
        let scratch = Scratch::new();
        let path = scratch.deb(&bytes);
        if let Ok(deb) = deb_file::read(&path) {
            prop_assert_eq!(deb.size_bytes, bytes.len() as u64);
            prop_assert_eq!(&deb, &deb_file::read(&path).unwrap());
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let scratch = Scratch::new();
        prop_assert!(deb_file::read(&scratch.deb(&bytes)).is_err());
        let mut after_magic = b"!<arch>\n".to_vec();
        after_magic.extend(bytes);
        prop_assert!(deb_file::read(&scratch.deb(&after_magic)).is_err());
    }
}
