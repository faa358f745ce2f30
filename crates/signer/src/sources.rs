//! What vouches for sources: the signed index of an archive, and signed commits of a tree.
//!
//! A coordinator shows an index of sources with the signed `Release` file that names it, or a signed commit with the files of a
//! source in it. What these say is kept, so that each is shown once. A source that an archive or a tree had stays one of it: which
//! version may follow which one is judged by the packages.

mod commit;

use crate::account::Entry;
use crate::hash;
use crate::judge::release::listed_digest;
use crate::memory::{Memory, MemoryError};
use crate::message::{Evidence, SourceCommit, SourceIndex};
use crate::policy::{self, Policy, Repository};
use commit::Commit;
use kilnyard_ecosystem::debian::deb822;
use kilnyard_ecosystem::debian::source::{Source, SourceFile};
use kilnyard_sign::{Keyring, SignError};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The most sources of an index. Debian has some 40,000.
const SOURCES_MAX: usize = 1_000_000;

/// The keys of the policy's archives and trees, or why they cannot be read.
#[derive(Debug)]
pub struct Vouchers {
    archives: Keyrings,
    trees: Keyrings,
}

type Keyrings = BTreeMap<String, Result<Keyring, String>>;

/// A source as an archive or a tree has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSource {
    /// Its name.
    pub name: String,
    /// Its version; empty for a folder of a pkgsrc tree.
    pub version: String,
    /// The SHA-256 of the sorted list of its files, with digest, size and name of each. Empty for one of a tree.
    pub files: String,
    /// The SHA-256 of the file that names all others, its `.dsc`. Empty for one of a tree.
    pub control: String,
    /// The names of the binary packages that it declares. A `#` stands for digits.
    pub declared: Vec<String>,
}

impl Vouchers {
    /// Reads the keyrings that a policy names, below the signer's folder.
    pub fn open(folder: &Path, policy: &Policy) -> Vouchers {
        let read = |vouchers: &BTreeMap<String, policy::Voucher>| {
            let read = |voucher: &policy::Voucher| {
                Keyring::read(&folder.join(&voucher.keyring)).map_err(|error| error.to_string())
            };
            vouchers.iter().map(|(name, voucher)| (name.clone(), read(voucher))).collect()
        };
        Vouchers { archives: read(&policy.archive), trees: read(&policy.tree) }
    }

    /// Checks what vouches for sources of a repository, and remembers what it says. Returns the line of the account; none if it was
    /// shown before.
    ///
    /// # Errors
    /// The first error of the memory; inside, a clause that names what is wrong with it.
    pub fn learn(
        &self,
        memory: &mut Memory,
        repository: &Repository,
        evidence: &Evidence,
    ) -> Result<Result<Option<Entry>, String>, MemoryError> {
        let checked = match evidence {
            Evidence::Index(index) => self.check_index(&repository.archives, index),
            Evidence::Commit(commit) => self.check_commit(&repository.trees, commit),
        };
        let Checked { voucher, key, text, sources } = match checked {
            Ok(checked) => checked,
            Err(reason) => return Ok(Err(reason)),
        };
        // A coordinator that shows it again and again does not fill the account.
        if memory.knows_evidence(std::slice::from_ref(&voucher), &key)? {
            return Ok(Ok(None));
        }
        memory.remember_sources(&voucher, &key, &sources)?;
        Ok(Ok(Some(Entry::Sources { archive: voucher, text, sources: sources.len() as u64 })))
    }

    /// The archive that an index is from, and its sources.
    fn check_index(&self, names: &[String], index: &SourceIndex) -> Result<Checked, String> {
        let verify = |ring: &Keyring| ring.verify_clearsigned(index.release.as_bytes());
        let (name, verified) = find(&self.archives, names, "archive", verify)?;
        let release = String::from_utf8(verified.text)
            .map_err(|_| "the Release file of an archive is not UTF-8".to_owned())?;
        let digest = hash(index.text.as_bytes());
        if listed_digest(&release, &index.path).as_ref() != Some(&digest) {
            return Err(format!("the Release file of an archive does not name this {}", index.path));
        }
        let sources = sources(&index.text)?;
        Ok(Checked { voucher: name, key: digest.clone(), text: digest, sources })
    }

    /// The tree that a commit is of, and the source that it has.
    fn check_commit(&self, names: &[String], evidence: &SourceCommit) -> Result<Checked, String> {
        let commit = Commit::parse(&evidence.commit)?;
        let verify =
            |ring: &Keyring| ring.verify_detached(commit.signed.as_bytes(), commit.signature.as_bytes());
        let (name, _) = find(&self.trees, names, "tree", verify)?;
        let source = commit.source(&evidence.path, &evidence.objects)?;
        let key = commit_key(&commit.id, &evidence.path);
        Ok(Checked { voucher: of_tree(&name), key, text: commit.id, sources: vec![source] })
    }
}

/// What was checked.
struct Checked {
    /// Who vouches for it, as it is remembered.
    voucher: String,
    /// What it is asked for by.
    key: String,
    /// The SHA-256 of an index, or the id of a commit.
    text: String,
    sources: Vec<ArchiveSource>,
}

/// What a source of a commit is asked for by: the id of the commit, and the folder.
pub fn commit_key(id: &str, path: &str) -> String {
    hash(format!("{id}:{path}").as_bytes())
}

/// The names under which what vouches for the sources of a repository is remembered.
pub fn vouchers_of(repository: &Repository) -> Vec<String> {
    repository.archives.iter().cloned().chain(repository.trees.iter().map(|tree| of_tree(tree))).collect()
}

/// A tree and an archive may have the same name in the policy.
fn of_tree(name: &str) -> String {
    format!("tree {name}")
}

/// The first of these names whose keys verify something.
fn find<T>(
    keyrings: &Keyrings,
    names: &[String],
    kind: &str,
    verify: impl Fn(&Keyring) -> Result<T, SignError>,
) -> Result<(String, T), String> {
    let mut reasons = Vec::new();
    for name in names {
        match keyrings.get(name) {
            Some(Ok(ring)) => match verify(ring) {
                Ok(verified) => return Ok((name.clone(), verified)),
                Err(error) => reasons.push(format!("it is not signed for [{kind}.{name}]: {error}")),
            },
            Some(Err(reason)) => reasons.push(format!("the keyring of [{kind}.{name}]: {reason}")),
            None => {}
        }
    }
    Err(reasons.join("; "))
}

/// The sources of an index that an earlier text of it does not have like this.
///
/// # Errors
/// A clause that names a stanza that is none.
pub fn new_sources(before: &str, text: &str) -> Result<Vec<ArchiveSource>, String> {
    let before: HashSet<&str> = deb822::stanzas(before).map(|stanza| stanza.text()).collect();
    let stanzas = deb822::stanzas(text).map(|stanza| stanza.text());
    let new: Vec<&str> = stanzas.filter(|stanza| !before.contains(stanza)).collect();
    sources(&new.join("\n\n"))
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
        let control = dsc.ok_or_else(|| fault("has no .dsc"))?.sha256.clone();
        let files = files_of(&listed);
        let declared = source.declared().iter().map(|declared| declared.name.to_owned()).collect();
        sources.push(ArchiveSource {
            name: name.to_owned(),
            version: version.to_owned(),
            files,
            control,
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
