//! The content of intact packages, and the changes that the content digest detects.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use kilnyard_ecosystem::OutputBounds;
use kilnyard_ecosystem::debian::deb_file;
use kilnyard_ecosystem::debian::deb822::Stanza;
use sha2::{Digest, Sha256};

use crate::support::{Package, Scratch, archive, gzip, is_root, lacks, tar_of, write};

const COMPRESSORS: [&str; 4] = ["gzip", "xz", "zstd", "none"];

/// The content digest of the standard package after `change`.
fn content_after(change: impl FnOnce(&Path)) -> String {
    let package = Package::new("1.0-1");
    change(&package.tree());
    package.content()
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
fn a_rebuild_with_only_a_new_version_has_equal_content() {
    if lacks("a_rebuild_with_only_a_new_version_has_equal_content", &["dpkg-deb"]) {
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
fn a_native_package_has_a_different_changelog_name() {
    if lacks("a_native_package_has_a_different_changelog_name", &["dpkg-deb"]) {
        return;
    }
    let with_changelog = |name: &str, source: &str, text: &str| {
        let package = Package::new("1.0");
        let control = package.tree().join("DEBIAN/control");
        let of_source = fs::read_to_string(&control).unwrap().replace("(0.9-1)", source);
        fs::write(control, of_source).unwrap();
        write(&package.tree().join("usr/share/doc/kiln1").join(name), text.as_bytes(), 0o644);
        package.content()
    };
    for name in ["changelog.gz", "changelog.amd64.gz", "changelog.all.gz", "changelog", "changelog.amd64"] {
        assert_eq!(with_changelog(name, "(0.9)", "one"), with_changelog(name, "(0.9)", "two"), "{name}");
        assert_ne!(with_changelog(name, "(0.9-1)", "one"), with_changelog(name, "(0.9-1)", "two"), "{name}");
    }
    for name in ["changelog.Debian.gz", "changelog.Debian", "changelog.Debian.amd64.gz"] {
        assert_eq!(with_changelog(name, "(0.9-1)", "one"), with_changelog(name, "(0.9-1)", "two"), "{name}");
    }
    for name in ["changelog.html.gz", "changelog.Debian.gz.asc", "changes.gz", "changelog.amd64.gz.old"] {
        assert_ne!(with_changelog(name, "(0.9)", "one"), with_changelog(name, "(0.9)", "two"), "{name}");
    }
}

/// The content digest of a rebuild with this number. Each kind of package has the version where its tools put it.
fn rebuilt(kind: &str, number: u32) -> String {
    let (source, own) = match kind {
        "native" | "python" | "perl" => ("1.0".to_owned(), format!("1.0+bk{number}")),
        // Python's versions have one `+` and no leading zeros.
        "python-update" => ("2022.09+deb12u1".to_owned(), format!("2022.09+deb12u1+bk{number}")),
        // All parts of the source are built: its own version has the number too.
        "arch-all" => (format!("1.0+bk{number}"), format!("1.0+bk{number}")),
        "own-version" => (format!("2.03-2+bk{number}"), format!("2:1.02-2+bk{number}")),
        _ => ("0.9-1".to_owned(), format!("0.9-1+bk{number}")),
    };
    let package = Package::new(&own);
    let tree = package.tree();
    let control = tree.join("DEBIAN/control");
    let mut text = fs::read_to_string(&control).unwrap().replace("(0.9-1)", &format!("({source})"));
    let changelog = |name: &str| {
        let text = gzip(format!("kiln ({own}) unstable; urgency=low, binary-only=yes\n").as_bytes());
        write(&tree.join("usr/share/doc/kiln1").join(name), &text, 0o644);
    };
    match kind {
        "native" => {
            changelog("changelog.amd64.gz");
            let page = gzip(format!(".TH KILN 1 \"kiln {own}\"\n").as_bytes());
            write(&tree.join("usr/share/man/man1/kiln.1.gz"), &page, 0o644);
        }
        "python" | "python-update" => {
            changelog("changelog.amd64.gz");
            let written = own.replace("2022.09+deb12u1+", "2022.9+deb12u1.");
            let folder = format!("usr/lib/python3/dist-packages/kiln-{written}.egg-info");
            write(
                &tree.join(&folder).join("PKG-INFO"),
                format!("Name: kiln\nVersion: {written}\n").as_bytes(),
                0o644,
            );
            write(
                &tree.join("usr/lib/python3/dist-packages/kiln/_version.py"),
                format!("v = '{own}'\n").as_bytes(),
                0o644,
            );
            let link = tree.join("usr/lib/python3/dist-packages/kiln.egg-info");
            symlink(format!("kiln-{written}.egg-info"), link).unwrap();
        }
        "perl" => {
            changelog("changelog.amd64.gz");
            write(
                &tree.join("usr/share/perl5/Kiln.pm"),
                format!("our $VERSION = \"{own}\";\n").as_bytes(),
                0o644,
            );
            write(&tree.join("DEBIAN/postinst"), format!("#!/bin/sh\necho {own} >&2\n").as_bytes(), 0o755);
        }
        "multi-arch" => {
            text.push_str("Multi-Arch: same\n");
            changelog("changelog.Debian.amd64.gz");
        }
        "arch-all" => {
            text = text.replace("Architecture: amd64", "Architecture: all");
            changelog("changelog.gz");
        }
        "own-version" => text = text.replace("libc6 (>=", &format!("liblvm2 (= {source}), libc6 (>=")),
        _ => unreachable!("{kind}"),
    }
    fs::write(control, text).unwrap();
    deb_file::read_rebuilt(&package.build("none"), "+bk", OutputBounds::WIDEST).unwrap().content
}

#[test]
fn the_rebuild_number_is_not_part_of_the_content() {
    if lacks("the_rebuild_number_is_not_part_of_the_content", &["dpkg-deb"]) {
        return;
    }
    let kinds = ["native", "python", "python-update", "perl", "multi-arch", "arch-all", "own-version"];
    for kind in kinds {
        let first = rebuilt(kind, 1);
        for number in [2, 9, 10, 123] {
            assert_eq!(rebuilt(kind, number), first, "{kind} with the number {number}");
        }
    }
    let mut all: Vec<String> = kinds.iter().map(|kind| rebuilt(kind, 1)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), kinds.len(), "the kinds differ in more than the number");
}

#[test]
fn every_other_change_is_detected() {
    if lacks("every_other_change_is_detected", &["dpkg-deb"]) {
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
        ("source version", Box::new(replace("DEBIAN/control", "kiln (0.9-1)", "kiln (0.10-1)"))),
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
        let _ = writeln!(std::io::stderr(), "skipped: every_other_change_is_detected: owners: needs root");
    }
    for (name, change) in changes {
        let content = content_after(change);
        for (other, seen) in &seen {
            assert_ne!(seen, &content, "{name} looks like {other}");
        }
        seen.push((name, content));
    }
}

#[test]
fn the_packages_own_version_can_be_overridden() {
    if lacks("the_packages_own_version_can_be_overridden", &["dpkg-deb"]) {
        return;
    }
    let package = Package::new("1.0-1");
    let path = package.build("xz");
    assert_eq!(deb_file::content_digest(&path, "1.0-1").unwrap(), deb_file::read(&path).unwrap().content);
    assert_ne!(deb_file::content_digest(&path, "1.0-2").unwrap(), deb_file::read(&path).unwrap().content);
}

#[test]
fn gnu_and_pax_archives_of_one_tree_read_alike() {
    if lacks("gnu_and_pax_archives_of_one_tree_read_alike", &["tar"]) {
        return;
    }
    let package = Package::new("1.0-1");
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
            .arg(package.tree())
            .args(names)
            .output()
            .unwrap();
        assert!(output.status.success());
        deb_file::read(&scratch.with_data(&output.stdout)).unwrap().content
    };
    let gnu = content("gnu", &["./usr"]);
    assert_eq!(gnu, content("pax", &["./usr"]));
    assert_eq!(gnu, content("gnu", &["usr"]), "the leading ./ makes no difference");
    // In the other order, the second of the two linked names carries the bytes.
    let forth = content("gnu", &["usr/bin/kiln", "usr/bin/kiln-linked"]);
    assert_eq!(forth, content("gnu", &["usr/bin/kiln-linked", "usr/bin/kiln"]));
    assert_ne!(forth, content("gnu", &["usr/bin/kiln-linked"]));
}

#[test]
fn the_own_version_is_the_one_that_stanza_readers_see() {
    let scratch = Scratch::new();
    let data = tar_of(&[]);
    let digest_of = |control: &str| {
        let control = tar_of(&[(tar::EntryType::Regular, "control", control.as_bytes())]);
        let members = [("debian-binary", &b"2.0\n"[..]), ("control.tar", &control), ("data.tar", &data)];
        let deb = deb_file::read(&scratch.deb(&archive(&members))).unwrap();
        let version = Stanza::new(&deb.control).get("Version").unwrap().to_owned();
        let of_version = deb_file::content_digest(&scratch.deb(&archive(&members)), &version).unwrap();
        assert_eq!(of_version, deb.content, "{:?}", deb.control);
        deb.content
    };
    let plain = digest_of("Package: kiln\nVersion: 1.0-1\nDepends: x (= 1.0-1)\n");
    assert_eq!(digest_of("Package: kiln\nVersion : 1.0-2\nDepends: x (= 1.0-2)\n"), plain);
    digest_of("Package: kiln\nDescription: x\n Version: 7\nVersion: 1\nVersion: 2\n");
    digest_of("Version:\n 1\n");
}
