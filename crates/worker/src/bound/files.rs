//! Files by hash: sources, dependencies, outputs, and parts of files that are being fetched.

use super::trees::{facts, names, remove_file};
use super::{Entry, Kind, Uses, What, needed_by_failed, now};
use kilnyard_mirror::{FileStore, Sha256Hex};
use std::fs::FileTimes;
use std::io;
use std::path::Path;

/// The end of the name of a file that is not complete.
const PART: &str = ".part";

pub(super) struct KeptFiles<'a> {
    pub(super) store: &'a FileStore,
    pub(super) yard: &'a Path,
    pub(super) uses: &'a Uses,
}

/// Records that a file is used now. The time of its last change stays: builds see it through hard links.
pub(super) fn touch(store: &FileStore, sha256: &Sha256Hex) {
    // If this fails, the file may be removed too early, and is fetched again.
    let file = std::fs::File::open(store.path(sha256));
    let _ = file.and_then(|file| file.set_times(FileTimes::new().set_accessed(now())));
}

/// Removes what interrupted copies left in a store of artifacts.
pub(super) fn remove_parts(folder: &Path) -> io::Result<()> {
    for name in names(folder)? {
        if name.ends_with(PART) {
            remove_file(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The hash in a name, whether the file is complete or not.
fn hash_of(name: &str) -> Option<&str> {
    let hash = name.strip_suffix(PART).unwrap_or(name);
    Sha256Hex::parse(hash).ok().map(|_| hash)
}

impl Kind for KeptFiles<'_> {
    fn what(&self) -> What {
        What::File
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let failed = needed_by_failed(self.yard)?;
        let folder = self.store.artifacts().folder();
        let mut entries = Vec::new();
        for part in names(folder)? {
            for name in names(&folder.join(&part))? {
                let Some(hash) = hash_of(&name) else { continue };
                let Some((bytes, changed, accessed)) = facts(&folder.join(&part).join(&name)) else {
                    continue;
                };
                let is_needed = failed.contains(hash) || self.uses.is_used(hash);
                entries.push(Entry { bytes, used: changed.max(accessed), is_needed, name });
            }
        }
        Ok(entries)
    }

    fn discard(&self, name: &str) -> io::Result<bool> {
        let Some(hash) = hash_of(name) else { return Ok(false) };
        let gone = self.uses.unless_used(hash, || {
            if needed_by_failed(self.yard)?.contains(hash) {
                return Ok(None);
            }
            remove_file(&self.store.artifacts().folder().join(&hash[..2]).join(name)).map(Some)
        })?;
        Ok(gone.is_some())
    }
}
