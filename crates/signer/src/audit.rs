//! Checks account, repository and store against each other.

mod files;

use crate::account::{Account, Entry, Fault};
use crate::hash;
use crate::judge::{Package, lists};
use crate::memory::Name;
use kilnyard_sign::Keyring;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Audit {
    /// The number of lines of the account.
    pub lines: u64,
    /// The hash of the last line: compare it with one that was noted elsewhere.
    pub last: String,
    /// The number of the last line that a seal covers.
    pub sealed: u64,
    /// The number of signatures.
    pub signatures: u64,
    /// The number of refusals.
    pub refusals: u64,
    /// The number of packages in the repository that were compared.
    pub packages: u64,
    /// The number of those that were signed before the account began.
    pub before: u64,
    /// The number of those that the store has in a later build: ones that the signer refused, for instance.
    pub superseded: u64,
    /// What does not fit, one sentence each without its full stop.
    pub findings: Vec<String>,
}

/// A signed text in the repository.
struct Published {
    series: String,
    text: String,
    signature: String,
    packages: Vec<Package>,
}

/// The digests of outputs in the store, by the name of the binary package.
pub type Outputs = HashMap<String, HashSet<String>>;

/// Checks an account, the repository in a folder, and all outputs in the store. Without a store, it is left out. With `reads_all`,
/// the files of packages are read, too, and not only their sizes.
///
/// # Errors
/// The chain is broken, or a file cannot be read.
pub fn audit(
    account: &str,
    keyring: Option<&Keyring>,
    repository: &Path,
    outputs: Option<&Outputs>,
    reads_all: bool,
) -> Result<Audit, AuditError> {
    let account = Account::check(account, keyring)?;
    let mut audit = Audit {
        lines: account.lines.len() as u64,
        last: account.last.clone(),
        sealed: account.sealed,
        ..Audit::default()
    };
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut explained: HashMap<(&str, Name), &str> = HashMap::new();
    let mut adopted = HashSet::new();
    for line in &account.lines {
        match &line.entry {
            Entry::Generation { series, text, packages, .. } => {
                audit.signatures += 1;
                texts.entry(series).or_default().push(text);
                for package in packages {
                    let name = Name { name: package.name.clone(), variant: package.variant.clone() };
                    explained.insert((series, name), &package.listed);
                }
            }
            Entry::Adopted { series, text, .. } => {
                texts.entry(series).or_default().push(text);
                adopted.insert(series.as_str());
            }
            Entry::Sources { .. } => {}
            Entry::Document { .. } => audit.signatures += 1,
            Entry::Packages { packages, .. } => audit.signatures += packages.len() as u64,
            Entry::Refused { .. } => audit.refusals += 1,
            _ => {}
        }
    }
    let published = published(repository, keyring, reads_all, &mut audit.findings)?;
    for Published { series, text, signature, packages } in published {
        let signed = texts.remove(series.as_str()).unwrap_or_default();
        let hash = hash(text.as_bytes());
        match signed.iter().rposition(|signed| *signed == hash) {
            None => {
                audit.findings.push(format!("{series}: the account has no signature of what is published"))
            }
            Some(place) if place + 1 < signed.len() => audit.findings.push(format!(
                "{series}: {} later signatures of the account are not published",
                signed.len() - 1 - place
            )),
            Some(_) => {}
        }
        if let Some(keyring) = keyring
            && let Err(error) = keyring.verify_detached(text.as_bytes(), signature.as_bytes())
        {
            audit.findings.push(format!("{series}: the signature of what is published is none: {error}"));
        }
        for package in &packages {
            audit.packages += 1;
            let Package { name, listed, .. } = package;
            let shown = format!("{series}: {}", package.shown());
            match explained.get(&(series.as_str(), name.clone())) {
                Some(signed) if *signed == listed => {}
                // It was in the generation that the account began with.
                None if adopted.contains(series.as_str()) => audit.before += 1,
                _ => audit
                    .findings
                    .push(format!("{shown} is published, and no line of the account explains it")),
            }
            let made = outputs.map(|outputs| outputs.get(&name.name));
            if matches!(made, Some(Some(digests)) if !digests.contains(listed)) {
                audit.superseded += 1;
            } else if matches!(made, Some(None)) {
                audit.findings.push(format!("{shown} is published, and no build in the store made it"));
            }
        }
    }
    for (series, _) in texts {
        audit.findings.push(format!("{series}: the account has signatures, and nothing is published"));
    }
    Ok(audit)
}

/// Why an audit is not possible.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The account is damaged.
    #[error(transparent)]
    Account(#[from] Fault),
    /// A file of the repository cannot be read.
    #[error("the repository cannot be read: {0}")]
    Repository(#[from] io::Error),
}

fn published(
    repository: &Path,
    keyring: Option<&Keyring>,
    reads_all: bool,
    findings: &mut Vec<String>,
) -> Result<Vec<Published>, AuditError> {
    let mut found = Vec::new();
    let dists = repository.join("dists");
    let entries = match fs_err::read_dir(&dists) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        entries => Some(entries?),
    };
    let mut folders: Vec<PathBuf> = Vec::new();
    for entry in entries.into_iter().flatten() {
        folders.push(entry?.path());
    }
    folders.sort_unstable();
    for folder in folders {
        let mut files = files::Files { root: repository, folder: &folder, keyring, reads_all, findings };
        found.push(files.of_release()?);
    }
    let all = repository.join("packages/All");
    if all.is_dir() {
        let mut files = files::Files { root: repository, folder: &all, keyring, reads_all, findings };
        found.push(files.of_checksums()?);
    }
    let lists = repository.join("packages");
    if lists.join(lists::FOLDER).join(lists::FILES[0]).is_file() {
        let mut files = files::Files { root: repository, folder: &lists, keyring, reads_all, findings };
        found.push(files.of_lists()?);
    }
    Ok(found)
}
