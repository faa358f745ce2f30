//! Kept work: folders that a build leaves on its machine for the next build of the same package.
//!
//! Kept work never leaves its machine, and its content is never trusted: only commands in the roots of the package
//! read it. It fits a build if everything but the source is the same, which [`KeepOrder::key`] says.

use crate::order::{CommandOrder, Key};
use crate::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of the archive of kept work in the root's folder of texts.
pub const KEPT_ARCHIVE: &str = "kept.tar";
/// The name of the text with the number of the build that made it.
pub const KEPT_BUILD: &str = "kept-build";

/// Kinds of lines of a key that say what is built; the others say with what.
const OF_SOURCE: [&str; 2] = ["recipe", "source"];

/// How a build uses and leaves kept work. The commands of its stages put it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepOrder {
    /// Kept work of the same key can be put back. A SHA-256, in hexadecimal digits.
    pub key: String,
    /// Stands for the package and its target, of which a machine keeps the work of one build. Likewise a SHA-256.
    pub owner: String,
    /// Writes the folders to its output, after the last stage.
    pub pack: CommandOrder,
    /// Prints the number of changed files of the source if kept work was put back, and nothing otherwise.
    pub report: CommandOrder,
    /// Whether the build only leaves work for the next one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_afresh: bool,
}

impl KeepOrder {
    /// The order of a package whose build has this key.
    pub fn new(package: &str, key: &Key, pack: CommandOrder, report: CommandOrder) -> KeepOrder {
        let kind = |line: &str| line.split(' ').next().unwrap_or("").to_owned();
        let is_of_source = |line: &&String| OF_SOURCE.contains(&kind(line).as_str());
        let with = key.lines.iter().filter(|line| !is_of_source(line));
        let target = key.lines.iter().filter(|line| kind(line) == "target");
        KeepOrder {
            key: hash(std::iter::once(package).chain(with.map(String::as_str))),
            owner: hash(std::iter::once(package).chain(target.map(String::as_str))),
            pack,
            report,
            starts_afresh: false,
        }
    }

    /// The key of kept work that was made in a pool of workers. Another pool may be trusted less.
    pub fn key_in_pool(&self, pool: &str) -> String {
        hash([self.key.as_str(), pool].into_iter())
    }

    /// The same order for workers of a pool.
    #[must_use]
    pub fn in_pool(&self, pool: &str, starts_afresh: bool) -> KeepOrder {
        KeepOrder { key: self.key_in_pool(pool), starts_afresh, ..self.clone() }
    }
}

/// The hash of lines.
fn hash<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    Sha256Hex::of(text.as_bytes()).as_str().to_owned()
}

/// Kept work that a build began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWork {
    /// The build that left it.
    pub build: u64,
    /// The files of the source that have changed since then, or are new.
    pub changed_files: u64,
}

impl fmt::Display for KeptWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeptWork { build, changed_files } = self;
        write!(
            f,
            "began with kept work of build {build}; files of the source that had changed: {changed_files}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Account;

    fn order(package: &str, lines: &[&str]) -> KeepOrder {
        let command = CommandOrder {
            arguments: Vec::new(),
            account: Account::Builder,
            directory: "/".to_owned(),
            environment: Vec::new(),
        };
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        KeepOrder::new(package, &Key { digest: String::new(), lines }, command.clone(), command)
    }

    #[test]
    fn kept_work_fits_a_build_that_differs_in_its_source_alone() {
        let first = order("a", &["recipe a 1", "source a.tar 00", "depends gcc 01", "target t", "root r"]);
        let newer = order("a", &["recipe a 2", "source a.tar 09", "depends gcc 01", "target t", "root r"]);
        assert_eq!(first, newer);
        let compiler = order("a", &["recipe a 1", "source a.tar 00", "depends gcc 02", "target t", "root r"]);
        let option =
            order("a", &["recipe a 1", "option checks true", "depends gcc 01", "target t", "root r"]);
        let root = order("a", &["recipe a 1", "depends gcc 01", "target t", "root s"]);
        for other in [compiler, option, root] {
            assert_eq!(other.owner, first.owner);
            assert_ne!(other.key, first.key);
        }
        let other = order("b", &["recipe a 1", "source a.tar 00", "depends gcc 01", "target t", "root r"]);
        let target = order("a", &["recipe a 1", "depends gcc 01", "target u", "root r"]);
        assert!(other.owner != first.owner && other.key != first.key);
        assert!(target.owner != first.owner && target.key != first.key);
        assert_ne!(first.key_in_pool("lab"), first.key_in_pool("yard"));
    }
}
