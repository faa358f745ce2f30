//! Packages made by standard tools, in the layout of pkg_create.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use kilnyard_ecosystem::pkgsrc::package_file::{self, PackageFile, PackageFileError, PackageProblem};

pub const TOOLS: [&str; 4] = ["tar", "gzip", "xz", "zstd"];

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

/// The metadata of a small package, in pkg_create's order.
pub const METADATA: [(&str, &str); 7] = [
    (
        "+CONTENTS",
        "@cwd /usr/pkg\n@pkgcfl kilnold-[0-9]*\n@name kiln-1.0nb2\n@comment $NetBSD: PLIST,v 1.1 $\nbin/kiln\n\
         @comment MD5:0123\n@pkgdep libkiln>=2.0\n@blddep libkiln-2.1nb1\n@pkgdep {fire,flame}-[0-9]*\n\
         @blddep fire-3.0\n@cwd .\n@ignore\n+COMMENT\n",
    ),
    ("+COMMENT", "Fires a package"),
    ("+DESC", "The first line,\nand after an empty one\n\n  the last, with a = and blanks.  \n"),
    ("+BUILD_VERSION", "misc/kiln/Makefile:\t$NetBSD: Makefile,v 1.3 $\n"),
    (
        "+BUILD_INFO",
        "ABI=64\nBUILD_DATE=2026-11-21 23:57:23 +0000\nBUILD_HOST=Linux yard\nCATEGORIES=misc fire\nCFLAGS=-O2\n\
         HOMEPAGE=http://kiln.example.org/?a=b\nLICENSE=\nMACHINE_ARCH=x86_64\nMAINTAINER=kiln@example.org\n\
         NO_BIN_ON_CDROM=\nNO_BIN_ON_FTP=\nOPSYS=Linux\nOS_VERSION=6.1\nPKGPATH=misc/kiln\n\
         PKGTOOLS_VERSION=20091115\nPKG_OPTIONS=hot\nPROVIDES=/usr/pkg/lib/libkiln.so.1\n\
         PROVIDES=/usr/pkg/lib/libkiln.so\nREQUIRES=/lib/libc.so.6\nSUPERSEDES=oldkiln<1\n_USE_DESTDIR=no\n",
    ),
    ("+SIZE_PKG", "87635\n"),
    ("+SIZE_ALL", "90000\n"),
];

/// The tree of a small package.
pub struct Package {
    pub directory: tempfile::TempDir,
    /// The entries to pack, in order.
    pub names: Vec<String>,
}

impl Package {
    pub fn new() -> Self {
        let mut package = Self { directory: tempfile::tempdir().unwrap(), names: Vec::new() };
        for (name, text) in METADATA {
            package.add(name, text.as_bytes(), 0o444);
        }
        package.add("bin/kiln", &(0..50_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(), 0o755);
        package.add("share/kiln/empty", b"", 0o644);
        package.add(&format!("share/kiln/{}", "long".repeat(45)), b"a long name", 0o644);
        symlink("kiln", package.path("bin/link")).unwrap();
        fs::hard_link(package.path("bin/kiln"), package.path("bin/second")).unwrap();
        package.names.extend(["bin/link".to_owned(), "bin/second".to_owned()]);
        package
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("tree").join(name)
    }

    pub fn add(&mut self, name: &str, content: &[u8], mode: u32) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        if !self.names.iter().any(|other| other == name) {
            self.names.push(name.to_owned());
        }
    }

    /// Replaces part of a metadata file.
    pub fn edit(&mut self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(from), "{text}");
        self.add(name, text.replace(from, to).as_bytes(), 0o444);
    }

    /// Packs the tree with `tar` and one of [`PACKERS`]; `options` are additional options of `tar`.
    pub fn build(&self, packer: &str, options: &[&str]) -> PathBuf {
        let tar = self.directory.path().join("package");
        run(Command::new("tar")
            .args(["--create", "--no-recursion", "--numeric-owner", "--file"])
            .arg(&tar)
            .args(options)
            .arg("--directory")
            .arg(self.path(""))
            .args(&self.names));
        let packed = self.directory.path().join(format!("{packer}.tgz"));
        if packer == "none" {
            fs::rename(&tar, &packed).unwrap();
        } else {
            let output = run(Command::new(packer).arg("--stdout").arg(&tar));
            fs::write(&packed, output).unwrap();
        }
        packed
    }

    pub fn read(&self) -> PackageFile {
        package_file::read(&self.build("gzip", &[])).unwrap()
    }
}

pub const PACKERS: [&str; 4] = ["none", "gzip", "xz", "zstd"];

/// Runs a command, which must succeed, and returns its output.
pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A tar archive assembled by hand, with its end marker.
pub fn tar_of(entries: &[(tar::EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, path, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        // `set_path` would already reject the paths that the reader must reject here.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A package with the smallest possible metadata and these entries.
pub fn small_package(entries: &[(tar::EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut all: Vec<(tar::EntryType, &str, &[u8])> = vec![
        (tar::EntryType::Regular, "+CONTENTS", b"@name kiln-1.0\n"),
        (tar::EntryType::Regular, "+COMMENT", b"Fires\n"),
        (tar::EntryType::Regular, "+DESC", b"Fires\n"),
    ];
    all.extend_from_slice(entries);
    tar_of(&all)
}

/// Reads bytes as a package file.
pub fn read(bytes: &[u8]) -> Result<PackageFile, PackageProblem> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    read_path(file.path())
}

pub fn read_path(path: &Path) -> Result<PackageFile, PackageProblem> {
    package_file::read(path).map_err(|error| match error {
        PackageFileError::Format { problem, .. } => problem,
        PackageFileError::Read { .. } => panic!("{error}"),
    })
}
