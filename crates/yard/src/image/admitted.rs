//! Who may take part in the builds of a yard: workers, tokens, those that were revoked; and the tokens of people. All machines of the yard have
//! the same files for that, whichever of them a command changed, and at once: a worker that has joined is known everywhere,
//! and a token that was used is used everywhere.
//!
//! A file that was removed is an empty document, so that it stays removed. If two machines change the same file at the same
//! time, the later one counts.

use super::is_inside;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Documents, store_error};
use kilnyard_mirror::Sha256Hex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

/// Begins the names of the documents.
const ADMITTED: &str = "admitted/";
/// The files, and the folders of files.
pub(super) const PARTS: [&str; 4] =
    ["state/farm/workers", "state/farm/tokens", "state/farm/people", "state/revoked.json"];
/// The largest file, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Reads after "failed to".
const SHARING: &str = "share the list of workers";

/// What was the same here and in the store when this machine last shared.
const KNOWN: &str = "state/farm/shared.json";

/// A file as it was last the same here and in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Same {
    version: u64,
    /// Absent if it was removed.
    hash: Option<Sha256Hex>,
}

/// What is known of the files. It is kept beside them, so that a change that could not be shared is shared later.
#[derive(Debug, Default)]
pub struct Admitted {
    /// Absent before the first call.
    known: Option<HashMap<String, Same>>,
}

impl Admitted {
    /// Takes over what other machines have changed, and sends what was changed here since the last call.
    ///
    /// # Errors
    /// The database or a file cannot be used.
    pub fn share(&mut self, home: &Path, documents: &Documents) -> Result<()> {
        let kept = || -> io::Result<HashMap<String, Same>> {
            match fs_err::read(home.join(KNOWN)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HashMap::new()),
                text => serde_json::from_slice(&text?).map_err(io::Error::other),
            }
        };
        let mut known = match self.known.take() {
            Some(known) => known,
            None => kept().context(Kind::Machine, SHARING)?,
        };
        let before = known.clone();
        let shared = share(&mut known, home, documents);
        if known != before {
            let text = serde_json::to_vec(&known).or_internal(SHARING)?;
            fs_err::create_dir_all(home.join("state/farm")).context(Kind::Machine, SHARING)?;
            super::receive::write(&home.join(KNOWN), &text, 0o600).context(Kind::Machine, SHARING)?;
        }
        self.known = Some(known);
        shared
    }
}

/// Shares all files, and notes which are the same now.
fn share(known: &mut HashMap<String, Same>, home: &Path, documents: &Documents) -> Result<()> {
    let listed = documents.documents().map_err(store_error)?;
    let versions: HashMap<String, u64> = listed
        .into_iter()
        .filter_map(|(name, version)| Some((name.strip_prefix(ADMITTED)?.to_owned(), version)))
        .collect();
    let here = files(home).context(Kind::Machine, SHARING)?;
    let all: BTreeSet<String> = versions.keys().chain(&here).chain(known.keys()).cloned().collect();
    for name in all {
        let version = versions.get(&name).copied();
        let same = known.get(&name);
        if let Some(version) = version.filter(|version| same.is_none_or(|same| same.version != *version)) {
            let hash = take(home, &name, documents)?;
            known.insert(name, Same { version, hash });
            continue;
        }
        let content = read(&home.join(&name)).context(Kind::Machine, SHARING)?;
        let hash = content.as_ref().map(|content| Sha256Hex::of(content));
        let is_same = same.is_some_and(|same| same.hash == hash);
        if is_same || (same.is_none() && hash.is_none()) {
            continue;
        }
        let saved = documents.save_document(&format!("{ADMITTED}{name}"), &content.unwrap_or_default());
        known.insert(name, Same { version: saved.map_err(store_error)?, hash });
    }
    Ok(())
}

/// Makes a file what its document says, and returns its hash.
fn take(home: &Path, name: &str, documents: &Documents) -> Result<Option<Sha256Hex>> {
    if !is_inside(name) || !PARTS.iter().any(|part| name.starts_with(part)) {
        let message = format!("failed to {SHARING}: the store names {name:?}");
        return Err(Error::new(Kind::Machine, message));
    }
    let path = home.join(name);
    let document = documents.document(&format!("{ADMITTED}{name}")).map_err(store_error)?;
    let content = document.map(|document| document.content).filter(|content| !content.is_empty());
    let Some(content) = content else {
        return match fs_err::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context(Kind::Machine, SHARING)
            }
            _ => Ok(None),
        };
    };
    if let Some(parent) = path.parent() {
        fs_err::create_dir_all(parent).context(Kind::Machine, SHARING)?;
    }
    super::receive::write(&path, &content, 0o600).context(Kind::Machine, SHARING)?;
    Ok(Some(Sha256Hex::of(&content)))
}

/// The names of the files that are here.
fn files(home: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for part in PARTS {
        let path = home.join(part);
        if path.is_file() {
            found.push(part.to_owned());
            continue;
        }
        let entries = match fs_err::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name().into_string();
            // Files with a dot in front are being written.
            found
                .extend(name.ok().filter(|name| !name.starts_with('.')).map(|name| format!("{part}/{name}")));
        }
    }
    found.retain(|name| !name.ends_with(".part"));
    Ok(found)
}

/// The content of a file; none if it is gone.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs_err::metadata(path) {
        Ok(metadata) if metadata.len() > BYTES_MAX => {
            return Err(io::Error::other(format!("{} is too large", path.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    match fs_err::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        content => content.map(Some),
    }
}
