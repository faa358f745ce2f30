//! A miniature pkgsrc: a tree of a page, which the real bmake reads.

use std::path::{Path, PathBuf};

/// What every category's Makefile includes.
const SUBDIR_MK: &str = "\
show-subdir-var: .PHONY
\t@echo ${${VARNAME}}
";

/// What every package's Makefile includes: `pbulk-index` prints a stanza for each version, and notes that it was
/// asked in a file beside the tree.
const PKG_MK: &str = "\
VERSIONS?= ${VERSION}
CACHE_IS_THERE!= test -d \"${PBULK_CACHE_DIRECTORY}\" && echo yes || echo no
pbulk-index: .PHONY
\t@echo ${.CURDIR:T} >> ${.CURDIR}/../../../asked
.for version in ${VERSIONS}
\t@echo PKGNAME=${NAME}-${version}
\t@echo ALL_DEPENDS=${DEPENDS:Q}
\t@echo PKG_SKIP_REASON=${SKIP:Q}
\t@echo PKG_FAIL_REASON=
\t@echo CATEGORIES=${.CURDIR:H:T}
\t@echo MAINTAINER=cache-${CACHE_IS_THERE}
\t@echo SCAN_DEPENDS=${.MAKE.MAKEFILES}
.endfor
";

/// See the module.
pub struct MiniTree {
    folder: tempfile::TempDir,
}

impl MiniTree {
    /// A tree of these packages: location, and the lines of its Makefile besides name, version and include.
    pub fn new(packages: &[(&str, &str)]) -> MiniTree {
        let tree = MiniTree { folder: super::folder("tree") };
        tree.write("mk/subdir.mk", SUBDIR_MK);
        tree.write("mk/pkg.mk", PKG_MK);
        let mut categories: Vec<&str> = packages.iter().filter_map(|(at, _)| at.split('/').next()).collect();
        categories.dedup();
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
        // What was written in the moment of a scan would not be kept.
        std::thread::sleep(std::time::Duration::from_millis(20));
        tree
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    pub fn beside(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn package(&self, location: &str, lines: &str) {
        let name = Path::new(location).file_name().unwrap().to_string_lossy();
        let text = format!("NAME= {name}\nVERSION= 1.0\n{lines}\n.include \"../../mk/pkg.mk\"\n");
        self.write(&format!("{location}/Makefile"), &text);
    }

    /// The packages that were asked since the last time, sorted.
    pub fn asked(&self) -> Vec<String> {
        let path = self.folder.path().join("asked");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    }
}
