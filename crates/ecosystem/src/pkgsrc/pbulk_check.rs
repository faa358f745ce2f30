//! What pbulk takes for up to date, to compare with it (pkgsrc, `pkgtools/pbulk/files/pbulk/scripts/pkg-up-to-date`).
//!
//! 1. The package's file is there. Its name has its version.
//! 2. Every file of the recipe that the package was made from is there, and the first `$NetBSD...$` in it is the one that
//!    the package recorded. A file without one is the same as any other without one.
//! 3. Every package that it was built with is among what it is resolved to need. Its other dependencies are not checked.
//! 4. Each of these has a file that is older than its own.
//!
//! A file that cannot be read, such as a truncated one, says nothing of 2 and 3, and is taken for up to date.

use std::fmt;
use std::time::SystemTime;

/// What is known of a package whose file is there.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What the package recorded of its recipe: `FILE: ID` lines; none where its file cannot be read.
    pub recipe_versions: &'a str,
    /// What it was built with, by exact names.
    pub built_with: &'a [String],
    /// When its file was made.
    pub made: SystemTime,
    /// What it is resolved to need, by exact names, and when their files were made, where they are there.
    pub needs: &'a [(String, Option<SystemTime>)],
}

/// Why pbulk would build a package again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Its file is not there.
    NoFile,
    /// A file of its recipe is gone.
    RecipeGone(String),
    /// A file of its recipe has another version.
    RecipeChanged(String),
    /// It was built with something that it is not resolved to need any more.
    OtherDependency(String),
    /// Something that it needs is newer, or not there.
    NewerDependency(String),
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stale::NoFile => f.write_str("its file is not there"),
            Stale::RecipeGone(file) => write!(f, "{file} is gone"),
            Stale::RecipeChanged(file) => write!(f, "{file} has another $NetBSD$ version"),
            Stale::OtherDependency(name) => write!(f, "it was built with {name}, which it does not need now"),
            Stale::NewerDependency(name) => write!(f, "{name} is newer than it, or not there"),
        }
    }
}

/// Why pbulk would build the package again; nothing where it would not. `read` gives the text of a file of the tree.
pub fn stale(facts: &Facts, read: &dyn Fn(&str) -> Option<String>) -> Option<Stale> {
    for line in facts.recipe_versions.lines() {
        let Some((file, recorded)) = line.split_once(':') else { continue };
        let Some(text) = read(file.trim()) else { return Some(Stale::RecipeGone(file.trim().to_owned())) };
        if version_in(&text) != recorded.trim() {
            return Some(Stale::RecipeChanged(file.trim().to_owned()));
        }
    }
    let other = facts.built_with.iter().find(|name| !facts.needs.iter().any(|(need, _)| need == *name));
    if let Some(name) = other {
        return Some(Stale::OtherDependency(name.clone()));
    }
    let newer = facts.needs.iter().find(|(_, made)| made.is_none_or(|made| made >= facts.made));
    newer.map(|(name, _)| Stale::NewerDependency(name.clone()))
}

/// The first `$NetBSD...$` of a file; nothing where there is none.
fn version_in(text: &str) -> &str {
    let Some(start) = text.find("$NetBSD") else { return "" };
    let end = text[start + 1..].find('$').map(|length| start + length + 2);
    // One that does not end in its line is none.
    let found = end.map_or("", |end| &text[start..end]);
    if found.contains('\n') { "" } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const OLD: SystemTime = SystemTime::UNIX_EPOCH;

    fn later(seconds: u64) -> SystemTime {
        OLD + Duration::from_secs(seconds)
    }

    fn tree(file: &str) -> Option<String> {
        match file {
            "misc/figlet/Makefile" => {
                Some("# $NetBSD: Makefile,v 1.3 x Exp $\nmore $NetBSD: no$\n".to_owned())
            }
            "misc/figlet/PLIST" => Some("bin/figlet\n".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn each_rule_is_applied_and_what_it_misses_is_missed() {
        let needs = [("digest-1".to_owned(), Some(later(5)))];
        let built_with = ["digest-1".to_owned()];
        let good = Facts {
            recipe_versions: "misc/figlet/Makefile:\t$NetBSD: Makefile,v 1.3 x Exp $\nmisc/figlet/PLIST:\t\n",
            built_with: &built_with,
            made: later(10),
            needs: &needs,
        };
        let of = |facts: Facts| stale(&facts, &tree);
        assert_eq!(of(good), None);
        let changed = "misc/figlet/Makefile: $NetBSD: Makefile,v 1.2 x Exp $";
        let expected = Stale::RecipeChanged("misc/figlet/Makefile".to_owned());
        assert_eq!(of(Facts { recipe_versions: changed, ..good }), Some(expected));
        let gone = Stale::RecipeGone("misc/figlet/gone".to_owned());
        assert_eq!(of(Facts { recipe_versions: "misc/figlet/gone: $NetBSD$", ..good }), Some(gone));
        let others = ["nbpatch-1".to_owned()];
        let other = Stale::OtherDependency("nbpatch-1".to_owned());
        assert_eq!(of(Facts { built_with: &others, ..good }), Some(other));
        let newer = Stale::NewerDependency("digest-1".to_owned());
        assert_eq!(of(Facts { made: later(5), ..good }), Some(newer.clone()));
        assert_eq!(of(Facts { needs: &[("digest-1".to_owned(), None)], ..good }), Some(newer));
        // A truncated package says nothing, and a dependency more is nothing to it.
        assert_eq!(of(Facts { recipe_versions: "", built_with: &[], ..good }), None);
    }
}
