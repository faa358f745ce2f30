//! The index of the archive: fetched, verified, kept in the yard.
//!
//! `index/index.json` names the files that are valid together. It is replaced atomically after they are complete, so a
//! killed scan leaves the previous index.

mod release;
mod text;
mod update;

use super::archives::{WantedSuite, wanted};
use super::config::Debian;
use super::lock::{self, Kept, LockedFile, LockedIndex, RELEASE, kept_name};
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::suites::Suites;
use kilnyard_ecosystem::debian::universe::{TooLarge, Universe};
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
    /// For each suite of each archive, the `Date` of the latest accepted `Release` file, whatever the mirror and the
    /// components were. Changing these therefore does not allow a rollback. `kilnyard clean --index` removes these
    /// dates.
    #[serde(default)]
    seen: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
struct IndexSuite {
    /// Name of the archive; empty for the main one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    archive: String,
    suite: String,
    /// A hash of the mirrors, components and architectures: if it changes, the files are fetched again.
    wanted: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// SHA-256 of the verified `InRelease`.
    release: String,
    date: String,
    #[serde(default)]
    valid_until: Option<String>,
    /// The pin that the archive asks for, if it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offered_pin: Option<i32>,
    packages: Vec<String>,
    sources: Vec<String>,
    /// The files as the archive has them; empty in the index of an earlier version.
    #[serde(default)]
    files: Vec<LockedFile>,
}

impl IndexSuite {
    /// The name in `index` of our copy of the verified `InRelease`, which a signer reads; none if its hash is damaged.
    fn release_name(&self) -> Option<String> {
        Some(kept_name(&self.archive, &self.suite, RELEASE, &Sha256Hex::parse(&self.release).ok()?))
    }
}

/// The archive index that a yard's last scan left.
#[derive(Debug)]
pub struct Index {
    /// A hash that changes whenever the index changes.
    pub identity: String,
    kept: IndexFile,
}

/// An index of sources that a signed `Release` file vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The `InRelease` of its suite.
    pub release: String,
    /// Its path there, without the ending of a compression.
    pub path: String,
    /// The SHA-256 of its text, as `InRelease` names it.
    pub sha256: String,
    /// The name in `index` of our copy.
    name: String,
}

impl Vouched {
    /// Reads its text.
    ///
    /// # Errors
    /// The yard's copy cannot be read.
    pub fn text(&self, yard: &Yard) -> std::io::Result<String> {
        let bytes = text::unpacked(&yard.path("index").join(&self.name)).map_err(std::io::Error::other)?;
        String::from_utf8(bytes).map_err(std::io::Error::other)
    }
}

/// The uncompressed index files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// One `Packages` file for each suite and component.
    pub packages: Vec<String>,
    /// One `Sources` file for each suite and component.
    pub sources: Vec<String>,
}

/// Brings the index up to date, except for what a lock keeps; `say` receives progress lines.
pub fn scan(
    yard: &Yard,
    debian: &Debian,
    locked: &Kept,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Scanned> {
    let client = client(yard);
    let architectures = debian.architectures();
    let before = read_kept(yard).unwrap_or_default();
    let mut scanned = Scanned { changed: Vec::new(), unchanged: Vec::new() };
    let mut kept = IndexFile { seen: before.seen.clone(), ..IndexFile::default() };
    let wanted = wanted(debian);
    // A key that cannot be read fails before anything is fetched.
    let keyrings: Vec<Keyring> = wanted.iter().map(keyring).collect::<Result<_>>()?;
    for (wanted, keyring) in wanted.iter().zip(&keyrings) {
        let known =
            before.suites.iter().find(|kept| kept.suite == wanted.suite && kept.archive == wanted.archive);
        let in_seen = seen_as(wanted);
        // An index of an earlier version has only the dates of its suites.
        let seen = before.seen.get(&in_seen).map(String::as_str).or(known.map(|known| known.date.as_str()));
        let update = Update {
            yard,
            wanted,
            architectures: &architectures,
            client: &client,
            keyring,
            cancel,
            say,
            seen,
        };
        let index = locked.index(wanted.archive, wanted.suite);
        if let Some(index) = index.filter(|index| index.serves(wanted, &architectures)) {
            say(&format!("{}: {} keeps the index of {}", wanted.shown(), lock::NAME, index.date));
            let is_same = |known: &&IndexSuite| known.release == index.release.sha256().as_str();
            let (new, fetched) = update.locked(index, known.filter(is_same))?;
            (if fetched { &mut scanned.changed } else { &mut scanned.unchanged }).push(wanted.shown());
            kept.suites.push(new);
            continue;
        }
        match update.run(known)? {
            Some(new) => {
                scanned.changed.push(wanted.shown());
                kept.seen.insert(in_seen, new.date.clone());
                kept.suites.push(new);
            }
            None => {
                scanned.unchanged.push(wanted.shown());
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

/// The keys that may sign a suite.
fn keyring(wanted: &WantedSuite) -> Result<Keyring> {
    Keyring::read(wanted.key).map_err(|error| {
        let failed = |what: &str| Err::<(), _>(error).context(Kind::Machine, what).unwrap_err();
        match wanted.archive {
            "" => {
                failed("read the keyring of the archive").hint(Remedy::packages(&["debian-archive-keyring"]))
            }
            archive => Error {
                kind: Kind::Usage,
                ..failed(&format!("read the key {} of the archive {archive}", wanted.key.display())).hint(
                    "key in the table [[archive]] of kilnyard.toml: a file with the archive's public key",
                )
            },
        }
    })
}

/// The entry of a suite among the dates seen before. Names of suites have no blanks.
fn seen_as(wanted: &WantedSuite) -> String {
    match wanted.archive {
        "" => wanted.suite.to_owned(),
        archive => format!("{archive} {}", wanted.suite),
    }
}

fn read_kept(yard: &Yard) -> Option<IndexFile> {
    serde_json::from_slice(&fs_err::read(yard.path("index/index.json")).ok()?).ok()
}

/// Removes index files that neither the index nor the lock names any more.
pub fn remove_unlocked(yard: &Yard) {
    if let Some(kept) = read_kept(yard) {
        remove_others(yard, &kept);
    }
}

/// Whether an index file of the yard can be read to its end.
pub fn is_intact(yard: &Yard, name: &str) -> bool {
    Reader::new(yard).read(name).is_ok()
}

fn remove_others(yard: &Yard, kept: &IndexFile) {
    // A lock that cannot be read may name any of them.
    let Ok(locked) = lock::read(yard) else { return };
    let locked = locked.unwrap_or_default();
    let locked: Vec<String> = locked.index.iter().flat_map(LockedIndex::kept_names).collect();
    let releases: Vec<String> = kept.suites.iter().filter_map(IndexSuite::release_name).collect();
    let names = kept.suites.iter().flat_map(|s| s.packages.iter().chain(&s.sources));
    let names = names.chain(&locked).chain(&releases);
    let names: Vec<&String> = names.collect();
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

    /// The index as a lock names it.
    pub fn locked(&self) -> Result<Vec<LockedIndex>> {
        let locked = |suite: &IndexSuite| {
            let name = suite.suite.clone().try_into().ok()?;
            let release = suite.release.parse().ok()?;
            (!suite.files.is_empty()).then(|| LockedIndex {
                archive: suite.archive.clone(),
                suite: name,
                date: suite.date.clone(),
                release,
                offered_pin: suite.offered_pin,
                files: suite.files.clone(),
            })
        };
        self.kept.suites.iter().map(locked).collect::<Option<_>>().ok_or_else(|| {
            Error::usage("the index was made by an earlier version of Kilnyard, which kept no hashes")
                .hint(Remedy::command("scan"))
        })
    }

    /// Reads all index files; their total size is limited.
    pub fn texts(&self, yard: &Yard) -> Result<Texts> {
        let mut reader = Reader::new(yard);
        let mut read = |names: fn(&IndexSuite) -> &Vec<String>| {
            self.kept.suites.iter().flat_map(names).map(|name| reader.read(name)).collect::<Result<_>>()
        };
        Ok(Texts { packages: read(|suite| &suite.packages)?, sources: read(|suite| &suite.sources)? })
    }

    /// The indexes of sources, as far as the `Release` files that vouch for them were kept.
    pub fn vouched(&self, yard: &Yard) -> Vec<Vouched> {
        let mut vouched = Vec::new();
        for suite in &self.kept.suites {
            let release =
                suite.release_name().and_then(|name| text::unpacked(&yard.path("index").join(name)).ok());
            let Some(release) = release.and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
            for file in &suite.files {
                let (path, _) = file.path.parts();
                let name = kept_name(&suite.archive, &suite.suite, path, file.sha256.sha256());
                let mut listed = release.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
                // Digests of other kinds have other lengths.
                let sha256 = listed.find_map(|words| match words[..] {
                    [sha256, _, named] if named == path && sha256.len() == 64 => Some(sha256.to_owned()),
                    _ => None,
                });
                if let Some(sha256) = sha256.filter(|_| suite.sources.contains(&name)) {
                    vouched.push(Vouched { release: release.clone(), path: path.to_owned(), sha256, name });
                }
            }
        }
        vouched
    }

    /// Adds the binary packages to `universe` and the source packages to `sources`, and returns the suites that they
    /// come from. Archives that are no longer configured are left out.
    pub fn read(
        &self,
        yard: &Yard,
        debian: &Debian,
        universe: &mut Universe,
        sources: &mut Sources,
    ) -> Result<Suites> {
        self.read_some(yard, debian, Some(universe), sources)
    }

    /// Reads the source packages alone.
    pub fn sources(&self, yard: &Yard, debian: &Debian) -> Result<(Sources, Suites)> {
        let mut sources = Sources::default();
        let suites = self.read_some(yard, debian, None, &mut sources)?;
        Ok((sources, suites))
    }

    fn read_some(
        &self,
        yard: &Yard,
        debian: &Debian,
        mut universe: Option<&mut Universe>,
        sources: &mut Sources,
    ) -> Result<Suites> {
        let mut reader = Reader::new(yard);
        let wanted = wanted(debian);
        let mut suites = Suites::default();
        for kept in &self.kept.suites {
            let configured = |one: &&WantedSuite| one.archive == kept.archive && one.suite == kept.suite;
            let main = || wanted.first().filter(|_| kept.archive.is_empty());
            let Some(known) = wanted.iter().find(configured).or_else(main) else { continue };
            let known = WantedSuite { suite: &kept.suite, ..known.clone() };
            let from = suites.add(known.resolved(kept.offered_pin));
            if let Some(universe) = &mut universe {
                for name in &kept.packages {
                    universe.add_packages_from(reader.read(name)?.into(), from).map_err(too_large)?;
                }
            }
            for name in &kept.sources {
                sources.add_from(reader.read(name)?.into(), from).map_err(too_large)?;
            }
        }
        Ok(suites)
    }
}

fn too_large(error: TooLarge) -> Error {
    Error::new(Kind::Machine, error.to_string()).hint("fewer suites or components in kilnyard.toml")
}
