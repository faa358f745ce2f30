//! The index of the archive: fetched, verified, kept in the yard.
//!
//! `index/index.json` names the files that are valid together. It is replaced atomically after they are complete, so a
//! killed scan leaves the previous index.

mod release;
mod text;
mod update;

use super::config::Debian;
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::universe::{Origin, TooLarge, Universe};
use kilnyard_mirror::Sha256Hex;
use kilnyard_sign::Keyring;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::Scanned;
use kilnyard_yard::files::write_whole;
use kilnyard_yard::mirror::client;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use text::Reader;
use update::Update;

/// The content of `index/index.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
struct IndexFile {
    suites: Vec<IndexSuite>,
    /// For each suite, the `Date` of the latest accepted `Release` file, whatever the mirror and the components were.
    /// Changing these therefore does not allow a rollback. `kilnyard clean --index` removes these dates.
    #[serde(default)]
    seen: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
struct IndexSuite {
    suite: String,
    /// A hash of the mirrors, components and architecture: if it changes, the files are fetched again.
    wanted: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// SHA-256 of the verified `InRelease`.
    release: String,
    date: String,
    #[serde(default)]
    valid_until: Option<String>,
    packages: Vec<String>,
    sources: Vec<String>,
}

/// The archive index that a yard's last scan left.
#[derive(Debug)]
pub struct Index {
    /// A hash that changes whenever the index changes.
    pub identity: String,
    kept: IndexFile,
}

/// The uncompressed index files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// One `Packages` file for each suite and component.
    pub packages: Vec<String>,
    /// One `Sources` file for each suite and component.
    pub sources: Vec<String>,
}

/// Brings the index up to date; `say` receives progress lines.
pub fn scan(yard: &Yard, debian: &Debian, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<Scanned> {
    let keyring = Keyring::read(&debian.keyring).map_err(|error| {
        Err::<(), _>(error)
            .context(Kind::Machine, "read the keyring of the archive")
            .unwrap_err()
            .hint(Remedy::packages(&["debian-archive-keyring"]))
    })?;
    let client = client(yard);
    let before = read_kept(yard).unwrap_or_default();
    let mut scanned = Scanned { changed: Vec::new(), unchanged: Vec::new() };
    let mut kept = IndexFile { seen: before.seen.clone(), ..IndexFile::default() };
    let suites = std::iter::once(&debian.release).chain(&debian.suites);
    for suite in suites {
        let known = before.suites.iter().find(|kept| kept.suite == *suite);
        // An index of an earlier version has only the dates of its suites.
        let seen = before.seen.get(suite).map(String::as_str).or(known.map(|known| known.date.as_str()));
        let update = Update { yard, debian, client: &client, keyring: &keyring, cancel, say, suite, seen };
        match update.run(known)? {
            Some(new) => {
                scanned.changed.push(suite.clone());
                kept.seen.insert(suite.clone(), new.date.clone());
                kept.suites.push(new);
            }
            None => {
                scanned.unchanged.push(suite.clone());
                kept.suites.extend(known.cloned());
            }
        }
    }
    if kept != before {
        let text = serde_json::to_vec_pretty(&kept).or_internal("write the index")?;
        write_whole(&yard.path("index/index.json"), &text)?;
        remove_others(yard, &kept);
    }
    Ok(scanned)
}

fn read_kept(yard: &Yard) -> Option<IndexFile> {
    serde_json::from_slice(&fs_err::read(yard.path("index/index.json")).ok()?).ok()
}

fn remove_others(yard: &Yard, kept: &IndexFile) {
    let names: Vec<&String> = kept.suites.iter().flat_map(|s| s.packages.iter().chain(&s.sources)).collect();
    for entry in fs_err::read_dir(yard.path("index")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "index.json" && !names.contains(&&name) {
            // A file that remains is removed by the next scan.
            let _ = fs_err::remove_file(entry.path());
        }
    }
}

impl Index {
    /// Opens the index of the last scan. This is cheap: the index files are not read yet.
    pub fn open(yard: &Yard) -> Result<Index> {
        let kept = read_kept(yard).ok_or_else(|| {
            Error::usage(format!("the yard {} has not been scanned yet", yard.folder.display()))
                .hint(Remedy::command("scan"))
        })?;
        let releases: Vec<&str> = kept.suites.iter().map(|suite| suite.release.as_str()).collect();
        let wanted: Vec<&str> = kept.suites.iter().map(|suite| suite.wanted.as_str()).collect();
        let identity = Sha256Hex::of(format!("{releases:?} {wanted:?}").as_bytes()).as_str().to_owned();
        Ok(Index { identity, kept })
    }

    /// Reads all index files; their total size is limited.
    pub fn texts(&self, yard: &Yard) -> Result<Texts> {
        let mut reader = Reader::new(yard);
        let mut read = |names: fn(&IndexSuite) -> &Vec<String>| {
            self.kept.suites.iter().flat_map(names).map(|name| reader.read(name)).collect::<Result<_>>()
        };
        Ok(Texts { packages: read(|suite| &suite.packages)?, sources: read(|suite| &suite.sources)? })
    }

    /// Adds the binary packages to `universe` and the source packages to `sources`.
    pub fn read(&self, yard: &Yard, universe: &mut Universe, sources: &mut Sources) -> Result<()> {
        let mut reader = Reader::new(yard);
        for suite in &self.kept.suites {
            for name in &suite.packages {
                universe.add_packages(reader.read(name)?.into(), Origin::Archive).map_err(too_large)?;
            }
            for name in &suite.sources {
                sources.add(reader.read(name)?.into()).map_err(too_large)?;
            }
        }
        Ok(())
    }
}

fn too_large(error: TooLarge) -> Error {
    Error::new(Kind::Machine, error.to_string()).hint("fewer suites or components in kilnyard.toml")
}
