//! A miniature pkgsrc: a one-page tree that the real bmake reads, and the tools that make, install and remove its
//! packages. The makefiles and tools are in the folder `pkgsrc`, and work like pkgsrc's own, from the scan to the
//! test of a package.

pub mod odd;

use sha2::{Digest, Sha512};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of `mk`.
const RULES: [(&str, &str); 3] = [
    ("pkg.mk", include_str!("pkgsrc/pkg.mk")),
    ("subdir.mk", include_str!("pkgsrc/subdir.mk")),
    ("distfiles", include_str!("pkgsrc/distfiles")),
];
/// The programs of the bootstrap kit.
const TOOLS: [(&str, &str); 5] = [
    ("pkg_add", include_str!("pkgsrc/pkg_add")),
    ("pkg_admin", include_str!("pkgsrc/pkg_admin")),
    ("pkg_create", include_str!("pkgsrc/pkg_create")),
    ("pkg_delete", include_str!("pkgsrc/pkg_delete")),
    ("pkg_info", include_str!("pkgsrc/pkg_info")),
];
/// The settings of the bootstrap kit.
const MK_CONF: &str = "PKG_DBDIR=\t/usr/pkg/pkgdb\nLOCALBASE=\t/usr/pkg\n";
/// Default URL of the folder [`MiniTree::sites`] inside a root.
const SITES_IN_ROOT: &str = "file:///sites/";

/// A miniature pkgsrc tree in a temporary folder.
pub struct MiniTree {
    folder: tempfile::TempDir,
}

impl MiniTree {
    /// A tree of these packages: location, and the lines of the Makefile in addition to name, version and include.
    pub fn new(packages: &[(&str, &str)]) -> MiniTree {
        let tree = MiniTree { folder: super::folder("tree") };
        for (name, text) in RULES {
            tree.write(&format!("mk/{name}"), text);
        }
        tree.fetches_from(SITES_IN_ROOT);
        let mut categories: Vec<&str> = Vec::new();
        for category in packages.iter().filter_map(|(at, _)| at.split('/').next()) {
            if !categories.contains(&category) {
                categories.push(category);
            }
        }
        tree.write("Makefile", &format!("SUBDIR= {}\n.include \"mk/subdir.mk\"\n", categories.join(" ")));
        for category in categories {
            let of_it = packages.iter().filter_map(|(at, _)| at.strip_prefix(category)?.strip_prefix('/'));
            let list = of_it.collect::<Vec<_>>().join(" ");
            tree.write(
                &format!("{category}/Makefile"),
                &format!("SUBDIR= {list}\n.include \"../mk/subdir.mk\"\n"),
            );
        }
        for (location, lines) in packages {
            tree.package(location, lines);
        }
        tree.settle();
        tree
    }

    /// Waits, because answers about files written at the moment of a scan would not be kept.
    fn settle(&self) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    pub fn next_to(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub fn write(&self, path: &str, text: &str) {
        write(&self.path().join(path), text.as_bytes());
    }

    pub fn package(&self, location: &str, lines: &str) {
        let name = Path::new(location).file_name().unwrap().to_string_lossy();
        let text = format!("# $NetBSD$\nNAME= {name}\nVERSION= 1.0\n{lines}\n.include \"../../mk/pkg.mk\"\n");
        self.write(&format!("{location}/Makefile"), &text);
    }

    /// The packages scanned since the last call, sorted.
    pub fn asked(&self) -> Vec<String> {
        let path = self.folder.path().join("asked");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    }

    /// The folder of all distfiles that can be fetched.
    pub fn sites(&self) -> PathBuf {
        self.folder.path().join("sites")
    }

    /// Sets the default URL from which packages fetch; it ends with a slash.
    pub fn fetches_from(&self, url: &str) {
        self.write("mk/sites.mk", &format!("MASTER_SITES?=\t{url}\n"));
    }

    /// Offers a distfile, and adds its hash and size to a package's distinfo.
    pub fn distfile(&self, location: &str, name: &str, bytes: &[u8]) {
        write(&self.sites().join(name), bytes);
        let path = self.path().join(location).join("distinfo");
        let known = std::fs::read_to_string(&path).unwrap_or_else(|_| "$NetBSD$\n\n".to_owned());
        let hash: String = Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let size = bytes.len();
        write(&path, format!("{known}SHA512 ({name}) = {hash}\nSize ({name}) = {size} bytes\n").as_bytes());
    }

    /// A bootstrap kit: an archive that is unpacked at the root of a file system before anything is built.
    pub fn kit(&self) -> PathBuf {
        let (folder, path) = (self.folder.path().join("kit"), self.folder.path().join("kit.tar.gz"));
        for (name, text) in TOOLS {
            let tool = folder.join("usr/pkg/sbin").join(name);
            write(&tool, text.as_bytes());
            std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        write(&folder.join("usr/pkg/etc/mk.conf"), MK_CONF.as_bytes());
        std::fs::create_dir_all(folder.join("usr/pkg/pkgdb")).unwrap();
        let packed = Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf"])
            .args([&path, Path::new("./usr")])
            .current_dir(&folder)
            .status()
            .unwrap();
        assert!(packed.success());
        path
    }
}

/// An archive with one file; its bytes are the same each time.
pub fn source(folder: &str, text: &str) -> Vec<u8> {
    let scratch = super::folder("source");
    write(&scratch.path().join(folder).join("content"), text.as_bytes());
    let packed = Command::new("tar")
        .args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", "-", folder])
        .current_dir(scratch.path())
        .output()
        .unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &packed.stdout).unwrap();
    encoder.finish().unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}
