//! The format of `kilnyard.lock`.

use crate::debian::archives::WantedSuite;
use kilnyard_ecosystem::debian::relation;
use kilnyard_ecosystem::debian::suites::is_suite_name;
use kilnyard_mirror::Sha256Hex;
use kilnyard_yard::error::{Context, Error, Result};
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// The name of the lock in the yard.
pub const NAME: &str = "kilnyard.lock";
/// The version of the format.
pub const VERSION: u32 = 1;
/// The largest accepted lock: a release has 40,000 sources.
const BYTES_MAX: u64 = 64 << 20;

const HEAD: &str =
    "# Written by `kilnyard lock`: the indexes and sources of this yard's set (docs/sets.md).\n";

/// The content of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lock {
    /// [`VERSION`].
    pub version: u32,
    /// The packages of the base root; absent until it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Hash>,
    /// The index of each suite.
    #[serde(default)]
    pub index: Vec<LockedIndex>,
    /// The sources, by name.
    #[serde(default)]
    pub source: Vec<LockedSource>,
}

/// The index of a suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LockedIndex {
    /// Name of the archive; absent for the main one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub archive: String,
    /// The suite.
    pub suite: SuiteName,
    /// `Date` of its `Release` file.
    pub date: String,
    /// Hash of the verified `InRelease`.
    pub release: Hash,
    /// The pin that the archive asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_pin: Option<i32>,
    /// Its index files.
    pub files: Vec<LockedFile>,
}

/// An index file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LockedFile {
    /// Its path below the suite, such as `main/source/Sources.xz`.
    pub path: IndexPath,
    /// Hash of the file as the archive has it.
    pub sha256: Hash,
    /// Its size there.
    pub size: u64,
}

/// A source of the set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LockedSource {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The suite, `own`, or the rule of a git repository.
    pub from: String,
    /// The commit of a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Hash of the `.dsc`; absent if the index has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dsc: Option<Hash>,
}

impl LockedSource {
    /// Whether it is from no archive.
    pub fn is_own(&self) -> bool {
        self.commit.is_some() || self.from == "own"
    }
}

/// A SHA-256 hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash(Sha256Hex);

impl Hash {
    /// The hash.
    pub fn sha256(&self) -> &Sha256Hex {
        &self.0
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Hash, String> {
        Sha256Hex::parse(text).map(Hash).map_err(|_| format!("`{}` is not a SHA-256", text.escape_debug()))
    }
}

impl TryFrom<String> for Hash {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Hash, String> {
        text.parse()
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.0.as_str().to_owned()
    }
}

/// The name of a suite, which becomes part of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SuiteName(String);

impl TryFrom<String> for SuiteName {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<SuiteName, String> {
        let is_name = is_suite_name(&text);
        is_name.then_some(SuiteName(text.clone())).ok_or(format!("`{}` is not a suite", text.escape_debug()))
    }
}

impl SuiteName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SuiteName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<SuiteName> for String {
    fn from(name: SuiteName) -> String {
        name.0
    }
}

impl From<IndexPath> for String {
    fn from(path: IndexPath) -> String {
        path.0
    }
}

/// The path of an index file below its suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IndexPath(String);

/// The endings of index files, by compression.
const SUFFIXES: [&str; 2] = [".xz", ".gz"];

impl IndexPath {
    /// The path without the ending of a compression, and that ending, or nothing.
    pub fn parts(&self) -> (&str, &str) {
        let suffix = SUFFIXES.into_iter().find(|suffix| self.0.ends_with(suffix)).unwrap_or("");
        (self.0.strip_suffix(suffix).unwrap_or(&self.0), suffix)
    }
}

impl TryFrom<String> for IndexPath {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<IndexPath, String> {
        let path = IndexPath(text);
        let is_index = ["/Packages", "/Sources"].iter().any(|name| path.parts().0.ends_with(name));
        match is_index && is_suite_name(&path.0) {
            true => Ok(path),
            false => Err(format!("`{}` is not the path of an index file", path.0.escape_debug())),
        }
    }
}

impl std::fmt::Display for IndexPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The path of the signed `Release` file of a suite.
pub const RELEASE: &str = "InRelease";

/// The name in `index` of our copy of an index file. `path` is without the ending of a compression. No archive and no
/// suite has a comma in its name.
pub fn kept_name(archive: &str, suite: &str, path: &str, sha256: &Sha256Hex) -> String {
    let archive = if archive.is_empty() { String::new() } else { format!("{archive},") };
    format!("{archive}{suite}-{path}").replace('/', "-") + &format!("-{}.zst", &sha256.as_str()[..16])
}

impl LockedIndex {
    /// The names in `index` of its files, and of the `InRelease` that vouches for them.
    pub fn kept_names(&self) -> Vec<String> {
        let release = kept_name(&self.archive, &self.suite.0, RELEASE, self.release.sha256());
        self.files.iter().map(|file| self.kept_name(file)).chain([release]).collect()
    }

    /// The name in `index` of one of its files.
    pub fn kept_name(&self, file: &LockedFile) -> String {
        kept_name(&self.archive, &self.suite.0, file.path.parts().0, file.sha256.sha256())
    }

    /// Whether it has exactly the files that a configuration asks for.
    pub fn serves(&self, wanted: &WantedSuite, architectures: &[String]) -> bool {
        let asked = wanted.paths(architectures);
        let locked: BTreeSet<&str> = self.files.iter().map(|file| file.path.parts().0).collect();
        locked == asked.iter().map(String::as_str).collect::<BTreeSet<_>>()
    }
}

impl Lock {
    /// Parses a lock. Errors name the line.
    pub fn parse(text: &str) -> Result<Lock> {
        let damaged = |causes: String| {
            let mut error = Error::usage(format!("{NAME} cannot be read"));
            error.causes = causes.lines().map(str::to_owned).collect();
            error.hint(Remedy::from(format!("rm {NAME}; ")).then_command("lock").then(", which rewrites it"))
        };
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
        if head.version != VERSION {
            let message = format!("{NAME} has version {}, but this program reads {VERSION}", head.version);
            return Err(Error::usage(message).hint("the version of Kilnyard that wrote it"));
        }
        let lock: Lock = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
        match lock.source.iter().find(|source| !relation::is_name(&source.name)) {
            Some(bad) => Err(damaged(format!("`{}` is not the name of a source", bad.name.escape_debug()))),
            None => Ok(lock),
        }
    }

    /// The text of the lock.
    pub fn to_text(&self) -> Result<String> {
        let text = toml::to_string(self).or_internal("write the lock")?;
        Ok(format!("{HEAD}{text}"))
    }

    /// The differences of a newer lock from this one, one line each.
    pub fn differences(&self, now: &Lock) -> Vec<String> {
        let mut lines = Vec::new();
        let name = |index: &LockedIndex| match index.archive.as_str() {
            "" => index.suite.0.clone(),
            archive => format!("{} of {archive}", index.suite),
        };
        let indexes = |lock: &Lock| -> BTreeMap<String, LockedIndex> {
            lock.index.iter().map(|index| (name(index), index.clone())).collect()
        };
        let sources = |lock: &Lock| -> BTreeMap<String, LockedSource> {
            lock.source.iter().map(|source| (source.name.clone(), source.clone())).collect()
        };
        compare("index", &indexes(self), &indexes(now), &|index| index.date.clone(), &mut lines);
        let version = |source: &LockedSource| match &source.commit {
            Some(commit) => format!("{} ({}, commit {commit})", source.version, source.from),
            None => format!("{} ({})", source.version, source.from),
        };
        compare("source", &sources(self), &sources(now), &version, &mut lines);
        if let (Some(before), Some(now)) = (&self.base, &now.base)
            && before != now
        {
            lines.push("the base root has other packages".to_owned());
        }
        lines
    }
}

fn compare<T: PartialEq>(
    what: &str,
    before: &BTreeMap<String, T>,
    now: &BTreeMap<String, T>,
    text: &dyn Fn(&T) -> String,
    lines: &mut Vec<String>,
) {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for name in names {
        match (before.get(name), now.get(name)) {
            (Some(old), Some(new)) if old == new => {}
            (Some(old), Some(new)) if text(old) == text(new) => {
                lines.push(format!("{what} {name}: {}, with different content", text(new)));
            }
            (Some(old), Some(new)) => lines.push(format!("{what} {name}: {} -> {}", text(old), text(new))),
            (None, Some(new)) => lines.push(format!("{what} {name}: {}, new", text(new))),
            (Some(old), None) => lines.push(format!("{what} {name}: {}, gone", text(old))),
            (None, None) => {}
        }
    }
}

/// The yard's lock; absent if it has none.
pub fn read(yard: &Yard) -> Result<Option<Lock>> {
    let path = yard.path(NAME);
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(metadata) if metadata.len() > BYTES_MAX => {
            return Err(Error::usage(format!("{NAME} has more than {BYTES_MAX} bytes")));
        }
        _ => {}
    }
    let text =
        fs_err::read_to_string(&path).context(kilnyard_yard::error::Kind::Usage, format!("read {NAME}"))?;
    Lock::parse(&text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        let hash: Hash = "a".repeat(64).parse().unwrap();
        let file = LockedFile {
            path: "main/source/Sources.xz".to_owned().try_into().unwrap(),
            sha256: hash.clone(),
            size: 7,
        };
        let index = LockedIndex {
            archive: String::new(),
            suite: "bookworm".to_owned().try_into().unwrap(),
            date: "Sat, 10 Jun 2023 12:00:00 UTC".to_owned(),
            release: hash.clone(),
            offered_pin: None,
            files: vec![file],
        };
        let source = |name: &str, from: &str, commit: Option<&str>| LockedSource {
            name: name.to_owned(),
            version: "1-1".to_owned(),
            from: from.to_owned(),
            commit: commit.map(str::to_owned),
            dsc: Some(hash.clone()),
        };
        let sources = vec![source("hello", "bookworm", None), source("own", "git:x#\"y\"", Some("abc"))];
        Lock { version: VERSION, base: None, index: vec![index], source: sources }
    }

    #[test]
    fn a_lock_survives_writing() {
        let text = lock().to_text().unwrap();
        assert_eq!(Lock::parse(&text).unwrap(), lock(), "{text}");
        assert!(lock().differences(&lock()).is_empty());
        let kept = lock().index[0].kept_names();
        assert_eq!(kept[0], "bookworm-main-source-Sources-aaaaaaaaaaaaaaaa.zst");
        assert!(kept[1].starts_with("bookworm-InRelease-"), "{kept:?}");
    }

    #[test]
    fn damage_is_reported_with_its_line() {
        let good = lock().to_text().unwrap();
        for (from, to) in [
            ("version = 1\n", ""),
            ("aaaa\"", "zzzz\""),
            ("main/source/Sources.xz", "../../../etc/Packages"),
            ("main/source/Sources.xz", "main/source/passwd"),
            ("suite = \"bookworm\"", "suite = \"../bookworm\""),
            ("size = 7", "size = -7"),
            ("size = 7", "colour = 7"),
            ("[[source]]", "[[source"),
            ("name = \"hello\"\n", ""),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            let error = Lock::parse(&text).unwrap_err();
            assert_eq!(error.message, "kilnyard.lock cannot be read");
            assert!(
                error.causes[0].contains("line ") || from.starts_with("version"),
                "{to}: {:?}",
                error.causes
            );
        }
        let later = good.replace("version = 1\n", "version = 2\nfuture = true\n");
        assert!(Lock::parse(&later).unwrap_err().message.contains("version 2"));
        let name = good.replace("\"hello\"", "\"../hello\"");
        assert!(Lock::parse(&name).unwrap_err().causes[0].contains("not the name of a source"));
    }

    #[test]
    fn differences_are_named() {
        let (before, mut now) = (lock(), lock());
        now.source[0].version = "2-1".to_owned();
        now.source[1].dsc = None;
        now.index.clear();
        assert_eq!(
            before.differences(&now),
            [
                "index bookworm: Sat, 10 Jun 2023 12:00:00 UTC, gone",
                "source hello: 1-1 (bookworm) -> 2-1 (bookworm)",
                "source own: 1-1 (git:x#\"y\", commit abc), with different content",
            ]
        );
    }
}
