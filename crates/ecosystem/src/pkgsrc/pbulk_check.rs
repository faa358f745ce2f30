//! Reimplements pbulk's check for up-to-date packages, for comparison (pkgsrc,
//! `pkgtools/pbulk/files/pbulk/scripts/pkg-up-to-date`).
//!
//! 1. The package's file exists. Its name includes the version.
//! 2. Every recipe file that the package was made from exists, and the first `$NetBSD...$` in it equals the one
//!    recorded in the package. All files without one count as equal.
//! 3. Every package that it was built with is among its resolved dependencies. Its other dependencies are not
//!    checked.
//! 4. Each of these dependencies has a file that is older than its own.
//!
//! An unreadable file, such as a truncated one, skips 2 and 3 and counts as up to date.

use std::fmt;
use std::time::SystemTime;

/// The facts about a package whose file exists.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The recipe versions recorded in the package: `FILE: ID` lines; empty if its file cannot be read.
    pub recipe_versions: &'a str,
    /// The exact names of the packages that it was built with.
    pub built_with: &'a [String],
    /// Modification time of its file.
    pub made: SystemTime,
    /// Its resolved dependencies by exact name, with the modification times of their files; `None` for a missing
    /// file.
    pub needs: &'a [(String, Option<SystemTime>)],
}

/// The reason why pbulk would rebuild a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Its file does not exist.
    NoFile,
    /// A file of its recipe no longer exists.
    RecipeGone(String),
    /// A file of its recipe has a different version.
    RecipeChanged(String),
    /// It was built with a package that is no longer among its dependencies.
    OtherDependency(String),
    /// A dependency is newer, or missing.
    NewerDependency(String),
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stale::NoFile => f.write_str("its file does not exist"),
            Stale::RecipeGone(file) => write!(f, "{file} no longer exists"),
            Stale::RecipeChanged(file) => write!(f, "{file} has a different $NetBSD$ version"),
            Stale::OtherDependency(name) => write!(f, "it was built with {name}, which it no longer needs"),
            Stale::NewerDependency(name) => write!(f, "{name} is newer or missing"),
        }
    }
}

/// The reason why pbulk would rebuild the package; `None` if it would not. `read` returns the text of a file in the
/// tree.
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

/// The first `$NetBSD...$` in a file; empty if there is none.
fn version_in(text: &str) -> &str {
    let Some(start) = text.find("$NetBSD") else { return "" };
    let end = text[start + 1..].find('$').map(|length| start + length + 2);
    // A keyword that does not end on its line does not count.
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
    fn each_rule_is_applied_with_pbulks_blind_spots() {
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
        // A truncated package passes, and an additional dependency goes unnoticed.
        assert_eq!(of(Facts { recipe_versions: "", built_with: &[], ..good }), None);
    }
}
