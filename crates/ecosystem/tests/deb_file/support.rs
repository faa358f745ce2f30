//! Packages built by the package tool, and archives assembled by hand.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use kilnyard_ecosystem::debian::deb_file::{self, DebFileError, DebProblem};

/// Whether a tool is missing; if so, prints why the test is skipped.
pub fn lacks(test: &str, tools: &[&str]) -> bool {
    for tool in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {tool} is not installed");
            return true;
        }
    }
    false
}

pub fn write(path: &Path, content: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// The tree of a small package with every kind of content that packages commonly have.
pub struct Package {
    pub directory: tempfile::TempDir,
}

impl Package {
    pub fn new(version: &str) -> Self {
        let package = Self { directory: tempfile::tempdir().unwrap() };
        let tree = package.tree();
        write(
            &tree.join("DEBIAN/control"),
            format!(
                "Package: kiln1\nVersion: {version}\nSource: kiln (0.9-1)\nArchitecture: amd64\n\
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

    pub fn tree(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    pub fn build(&self, compressor: &str) -> PathBuf {
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

    pub fn content(&self) -> String {
        deb_file::read(&self.build("none")).unwrap().content
    }
}

pub fn problem(path: &Path) -> DebProblem {
    match deb_file::read(path) {
        Err(DebFileError::Format { problem, .. }) => problem,
        other => panic!("expected a format problem, not {other:?}"),
    }
}

pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// An `ar` archive, assembled by hand.
pub fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
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

pub const CONTROL: &[u8] = b"Package: kiln\nVersion: 1\nArchitecture: all\n";

pub fn tar_of(entries: &[(tar::EntryType, &str, &[u8])]) -> Vec<u8> {
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

pub fn control_tar() -> Vec<u8> {
    tar_of(&[(tar::EntryType::Regular, "control", CONTROL)])
}

pub struct Scratch {
    pub directory: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn deb(&self, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join("x.deb");
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn with_data(&self, data: &[u8]) -> PathBuf {
        self.deb(&archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar", &control_tar()),
            ("data.tar", data),
        ]))
    }
}
