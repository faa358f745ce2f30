//! Archives whose sources may be built: what their signed indexes say of each source.
//!
//! A coordinator shows an index of sources with the signed `Release` file that names it. What the index says is kept, so that
//! it is shown once. A source that an archive had stays a source of that archive: which version may follow which one is
//! judged by the packages.

use crate::account::Entry;
use crate::hash;
use crate::judge::release::listed_digest;
use crate::memory::{Memory, MemoryError};
use crate::message::SourceIndex;
use crate::policy::Policy;
use kilnyard_ecosystem::debian::deb822;
use kilnyard_ecosystem::debian::source::{Source, SourceFile};
use kilnyard_sign::Keyring;
use std::collections::BTreeMap;
use std::path::Path;

/// The most sources of an index. Debian has some 40,000.
const SOURCES_MAX: usize = 1_000_000;

/// The keyrings of the policy's archives, or why one cannot be read.
#[derive(Debug)]
pub struct Archives(BTreeMap<String, Result<Keyring, String>>);

/// A source as an archive's index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSource {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SHA-256 of the list of its files: see [`files_of`].
    pub files: String,
    /// The SHA-256 of its `.dsc`, which names all others.
    pub dsc: String,
    /// The names of the binary packages that it declares.
    pub declared: Vec<String>,
}

impl Archives {
    /// Reads the keyrings that a policy names, below the signer's folder.
    pub fn open(folder: &Path, policy: &Policy) -> Archives {
        let read = |archive: &crate::policy::Archive| {
            Keyring::read(&folder.join(&archive.keyring)).map_err(|error| error.to_string())
        };
        Archives(policy.archive.iter().map(|(name, archive)| (name.clone(), read(archive))).collect())
    }

    /// Checks an index of sources, and remembers what it says. Returns what the account says of it.
    ///
    /// # Errors
    /// The first error of the memory; inside, a clause that names what is wrong with the index.
    pub fn learn(
        &self,
        memory: &mut Memory,
        names: &[String],
        index: &SourceIndex,
    ) -> Result<Result<Entry, String>, MemoryError> {
        match self.check(names, index) {
            Ok((archive, sources)) => {
                let text = hash(index.text.as_bytes());
                memory.remember_sources(&archive, &text, &sources)?;
                Ok(Ok(Entry::Sources { archive, text, sources: sources.len() as u64 }))
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// The archive that an index is from, and its sources.
    fn check(&self, names: &[String], index: &SourceIndex) -> Result<(String, Vec<ArchiveSource>), String> {
        let mut reasons = Vec::new();
        for name in names {
            let ring = match self.0.get(name) {
                Some(Ok(ring)) => ring,
                Some(Err(reason)) => {
                    reasons.push(format!("the keyring of [archive.{name}]: {reason}"));
                    continue;
                }
                None => continue,
            };
            match ring.verify_clearsigned(index.release.as_bytes()) {
                Ok(verified) => {
                    let release = String::from_utf8(verified.text)
                        .map_err(|_| "the Release file of an archive is not UTF-8".to_owned())?;
                    let digest = listed_digest(&release, &index.path);
                    if digest.as_deref() != Some(&hash(index.text.as_bytes())) {
                        return Err(format!(
                            "the Release file of an archive does not name this {}",
                            index.path
                        ));
                    }
                    return Ok((name.clone(), sources(&index.text)?));
                }
                Err(error) => reasons.push(format!("the Release file is not of [archive.{name}]: {error}")),
            }
        }
        Err(reasons.join("; "))
    }
}

/// The sources of an index.
///
/// # Errors
/// A clause that names a stanza that is none.
pub fn sources(text: &str) -> Result<Vec<ArchiveSource>, String> {
    let mut sources = Vec::new();
    for stanza in deb822::stanzas(text) {
        if sources.len() == SOURCES_MAX {
            return Err(format!("an index has more than {SOURCES_MAX} sources"));
        }
        let name = stanza.get("Package").ok_or("a stanza of an index of sources has no name")?;
        let fault = |what: &str| format!("the stanza of the source {} {what}", name.escape_debug());
        if let Some(found) = stanza.fault() {
            return Err(fault(&format!("has {found}")));
        }
        let version = stanza.get("Version").ok_or_else(|| fault("has no version"))?;
        let source = Source::new(stanza);
        let listed = source.files().map_err(|_| fault("has no list of files"))?;
        let dsc = listed.iter().find(|file| file.name.ends_with(".dsc"));
        let dsc = dsc.ok_or_else(|| fault("has no .dsc"))?.sha256.clone();
        let files = files_of(&listed);
        let declared = source.declared().iter().map(|declared| declared.name.to_owned()).collect();
        sources.push(ArchiveSource {
            name: name.to_owned(),
            version: version.to_owned(),
            files,
            dsc,
            declared,
        });
    }
    Ok(sources)
}

/// The SHA-256 of the sorted list of a source's files, with digest, size and name of each.
fn files_of(files: &[SourceFile]) -> String {
    let mut lines: Vec<String> =
        files.iter().map(|file| format!("{} {} {}\n", file.sha256, file.size_bytes, file.name)).collect();
    lines.sort_unstable();
    hash(lines.concat().as_bytes())
}
