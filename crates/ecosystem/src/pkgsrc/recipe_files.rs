//! The files of a tree that go into a package, by content.
//!
//! These are the files of its own directory, listed individually, and everything else that make read for it
//! (`SCAN_DEPENDS`): each directory of another package as one item, and the infrastructure `mk` as one. If a
//! package takes files from another directory, rather than only depending on it as through `buildlink3.mk`, all of
//! that directory counts: make read one of its makefiles, or a makefile of the package names a path into it, such
//! as `FILESDIR=../../audio/xmms/files`.
//!
//! Of the user's settings, only the lines that concern a package count for it: `PKG_OPTIONS.mutt=` only affects
//! packages that use this name. Files outside the tree are part of the layers.

use super::kept::normal;
use crate::hex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Files of another directory that only describe how to depend on it.
const ABOUT: [&str; 4] = ["buildlink3.mk", "builtin.mk", "version.mk", "available.mk"];
/// Folders in a package's directory that are not part of the recipe.
const NO_RECIPE: [&str; 4] = ["CVS", ".git", "work", ".svn"];
/// More files than any package's directory has; anything larger is not a recipe.
const FILES_MAX: usize = 10_000;

/// Hashes of a tree's files; each file is read once.
#[derive(Debug)]
pub(super) struct RecipeFiles {
    tree: PathBuf,
    hashes: Mutex<HashMap<String, Option<String>>>,
}

impl RecipeFiles {
    pub(super) fn new(tree: &Path) -> RecipeFiles {
        RecipeFiles { tree: tree.to_owned(), hashes: Mutex::default() }
    }

    /// The key lines for a package of this directory, given the files that make read.
    pub(super) fn lines(&self, location: &str, read: &str) -> Vec<String> {
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut add = |group: &str, path: String| groups.entry(group.to_owned()).or_default().insert(path);
        for other in self.taken_over(location, read) {
            for path in self.below(&other) {
                add(&other, path);
            }
        }
        for file in read.split_ascii_whitespace() {
            let Some(path) = of_tree(location, file) else { continue };
            let mut parts = path.splitn(3, '/');
            match (parts.next(), parts.next(), parts.next()) {
                (Some("mk"), ..) => {
                    add("mk", path);
                }
                (Some(category), Some(directory), Some(_)) => {
                    let other = format!("{category}/{directory}");
                    if other != location {
                        add(&other, path);
                    }
                }
                _ => {
                    add(&path.clone(), path);
                }
            }
        }
        let mut lines: Vec<String> = self
            .below(location)
            .into_iter()
            .map(|path| {
                let hash = self.hash(&path);
                let name = path.strip_prefix(location).map_or(&*path, |name| name.trim_start_matches('/'));
                format!("source {} {hash}", name.replace(' ', "%20"))
            })
            .collect();
        for (group, paths) in groups {
            let mut all = Sha256::new();
            for path in paths {
                all.update(format!("{} {path}\n", self.hash(&path)));
            }
            lines.push(format!("source {group} {}", hex(&all.finalize())));
        }
        lines
    }

    /// Whether one of these files, as paths in the tree, goes into a package of this directory, for which make read
    /// `read`.
    pub(super) fn concern(&self, location: &str, read: &str, changed: &BTreeSet<String>) -> bool {
        let has_within = |folder: &str| {
            let below = format!("{folder}/");
            changed.range(below.clone()..).next().is_some_and(|path| path.starts_with(&below))
        };
        let mut files = read.split_ascii_whitespace().filter_map(|file| of_tree(location, file));
        has_within(location)
            || files.any(|path| changed.contains(&path))
            || self.taken_over(location, read).iter().any(|other| has_within(other))
    }

    /// What such files are in: paths of files and folders in the tree.
    pub(super) fn places(&self, location: &str, read: &str) -> Vec<String> {
        let files = read.split_ascii_whitespace().filter_map(|file| of_tree(location, file));
        let mut places = self.taken_over(location, read);
        places.insert(location.to_owned());
        places.extend(files);
        places.into_iter().collect()
    }

    /// Other directories from which the package takes files.
    fn taken_over(&self, location: &str, read: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut add = |path: &str| {
            let mut parts = path.splitn(3, '/');
            if let (Some(category), Some(directory), Some(rest)) = (parts.next(), parts.next(), parts.next())
            {
                let other = format!("{category}/{directory}");
                if category != "mk" && other != location && !rest.is_empty() && !ABOUT.contains(&rest) {
                    found.insert(other);
                }
            }
        };
        let mut makefiles: BTreeSet<String> = read
            .split_ascii_whitespace()
            .filter_map(|file| of_tree(location, file))
            .filter(|path| !path.starts_with("mk/") && !ABOUT.iter().any(|name| path.ends_with(name)))
            .collect();
        makefiles.iter().for_each(|path| add(path));
        makefiles.insert(format!("{location}/Makefile"));
        for path in makefiles {
            for named in self.text(&path).split("../../").skip(1) {
                add(named.split(|c: char| c.is_whitespace() || "\"'`;)}".contains(c)).next().unwrap_or(""));
            }
        }
        found
    }

    /// The `distinfo` files that list the package's distfiles: its own, or otherwise those of directories from
    /// which it takes files.
    pub(super) fn distinfos(&self, location: &str, read: &str) -> Vec<PathBuf> {
        let of = |location: &str| self.tree.join(location).join("distinfo");
        let own = of(location);
        if own.exists() {
            return vec![own];
        }
        self.taken_over(location, read).iter().map(|other| of(other)).filter(|path| path.exists()).collect()
    }

    /// The text of a file; comments in old trees are not all UTF-8.
    pub(super) fn text(&self, path: &str) -> String {
        let bytes = std::fs::read(self.tree.join(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The user's settings that affect a package of this directory, given the files that make read.
    pub(super) fn settings(&self, mk_conf: &str, location: &str, read: &str) -> String {
        let mut texts = Vec::new();
        if mk_conf.contains(OPTIONS) {
            let paths = read.split_ascii_whitespace().filter_map(|file| of_tree(location, file));
            let recipes = paths.filter(|path| !path.starts_with("mk/"));
            texts.extend(recipes.map(|path| self.text(&path)));
        }
        settings_for(mk_conf, &texts)
    }

    /// All files in a directory that can be part of its recipe, relative to the tree, sorted.
    fn below(&self, location: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![location.to_owned()];
        while let Some(path) = open.pop() {
            let absolute = self.tree.join(&path);
            let Ok(metadata) = std::fs::symlink_metadata(&absolute) else { continue };
            if !metadata.is_dir() {
                found.push(path);
            } else if found.len() < FILES_MAX {
                let names = std::fs::read_dir(&absolute).into_iter().flatten().flatten();
                let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
                let is_recipe = |name: &String| path != location || !NO_RECIPE.contains(&&**name);
                open.extend(names.filter(is_recipe).map(|name| format!("{path}/{name}")));
            }
        }
        found.sort_unstable();
        found
    }

    fn hash(&self, path: &str) -> String {
        let known = self.hashes.lock().ok().and_then(|hashes| hashes.get(path).cloned());
        let hash = known.unwrap_or_else(|| {
            let hash = hash_of(&self.tree.join(path)).ok();
            if let Ok(mut hashes) = self.hashes.lock() {
                hashes.insert(path.to_owned(), hash.clone());
            }
            hash
        });
        hash.unwrap_or_else(|| "absent".to_owned())
    }
}

/// The path, relative to the tree, of a file that make read; `None` if it is outside the tree.
pub fn of_tree(location: &str, file: &str) -> Option<String> {
    let path = normal(location, file);
    let inside = path.strip_prefix(super::stages::TREE).and_then(|inside| inside.strip_prefix('/'));
    let path = inside.unwrap_or(&path);
    (!path.starts_with(['/', '.'])).then(|| path.to_owned())
}

/// The hash of a file's content, or of a link's target.
fn hash_of(path: &Path) -> io::Result<String> {
    let metadata = fs_err::symlink_metadata(path)?;
    let bytes = match metadata.is_symlink() {
        true => fs_err::read_link(path)?.to_string_lossy().into_owned().into_bytes(),
        false => fs_err::read(path)?,
    };
    Ok(hex(&Sha256::digest(bytes)))
}

/// Prefix of lines that set the options of one package.
const OPTIONS: &str = "PKG_OPTIONS.";

/// The lines of the user's settings that affect a package whose recipe has these texts. A recipe that computes the
/// name of its options may refer to any of them.
fn settings_for(mk_conf: &str, recipe: &[String]) -> String {
    let counts = |line: &&str| {
        let Some(rest) = line.trim_start().strip_prefix(OPTIONS) else { return true };
        let name = rest.split(|c: char| c.is_whitespace() || "+?!:=".contains(c)).next().unwrap_or("");
        let (variable, any) = (format!("{OPTIONS}{name}"), format!("{OPTIONS}$"));
        recipe.iter().any(|text| text.contains(&variable) || text.contains(&any))
    };
    mk_conf.lines().filter(counts).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("mk/a.mk", "a"),
            ("lang/php/Makefile.php", "php"),
            ("lang/php/distinfo", "sums"),
            ("lang/php/patches/patch-a", "patch"),
            ("devel/zlib/buildlink3.mk", "link"),
            ("devel/zlib/distinfo", "sums"),
            (
                "www/site/Makefile",
                "FILESDIR=\t${.CURDIR}/../../audio/player/files\nDEPENDS+= x>1:../../devel/x\n",
            ),
            ("audio/player/files/y", "y"),
            ("audio/player/files/work/z", "z"),
            ("www/site/files/x", "x"),
            ("www/site/work/built", "built"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    const READ: &str = "Makefile ../../mk/a.mk /usr/pkgsrc/lang/php/Makefile.php ../../devel/zlib/buildlink3.mk \
                        /usr/pkg/etc/mk.conf ../../mk/gone.mk";

    fn lines(tree: &Path) -> Vec<String> {
        RecipeFiles::new(tree).lines("www/site", READ)
    }

    #[test]
    fn files_that_make_read_are_grouped() {
        let tree = tree();
        let names: Vec<String> =
            lines(tree.path()).iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect();
        let expected = ["Makefile", "files/x", "audio/player", "devel/zlib", "lang/php", "mk"]
            .map(|name| format!("source {name}"));
        assert_eq!(names, expected);
    }

    #[test]
    fn only_files_that_go_into_the_package_change_its_lines() {
        let tree = tree();
        let changed = |path: &str| {
            let before = lines(tree.path());
            std::fs::create_dir_all(tree.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(tree.path().join(path), "changed").unwrap();
            let after = lines(tree.path());
            let new = after.into_iter().filter(|line| !before.contains(line));
            new.map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(changed("www/site/files/x"), ["files/x"]);
        assert_eq!(changed("www/site/files/new"), ["files/new"]);
        assert_eq!(changed("lang/php/patches/patch-a"), ["lang/php"]);
        assert_eq!(changed("lang/php/files/x"), ["lang/php"]);
        assert_eq!(changed("audio/player/files/y"), ["audio/player"]);
        assert_eq!(changed("audio/player/files/work/z"), ["audio/player"]);
        assert_eq!(changed("mk/a.mk"), ["mk"]);
        assert_eq!(changed("mk/gone.mk"), ["mk"]);
        assert_eq!(changed("devel/zlib/distinfo"), [""; 0]);
        assert_eq!(changed("www/site/work/built"), [""; 0]);
    }

    #[test]
    fn options_affect_only_packages_that_use_them() {
        let settings = "PKG_OPTIONS.mutt+= sasl\nCFLAGS= -O2\n  PKG_OPTIONS.vim=x\n";
        let recipe = ["PKG_OPTIONS_VAR=\tPKG_OPTIONS.mutt\n".to_owned()];
        assert_eq!(settings_for(settings, &recipe), "PKG_OPTIONS.mutt+= sasl\nCFLAGS= -O2\n");
        assert_eq!(settings_for(settings, &[]), "CFLAGS= -O2\n");
        assert_eq!(settings_for(settings, &["PKG_OPTIONS_VAR= PKG_OPTIONS.${NAME}".to_owned()]), settings);
    }
}
