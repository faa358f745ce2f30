//! Logs of builds, which the yard has too: the folder of a package in a run.

use super::trees::{facts, remove_file};
use super::{Entry, Kind, Uses, What};
use std::io;
use std::path::Path;
use std::time::SystemTime;

const LOGS: &str = "logs";
/// Packages of a tree are named by their folders in it: `logs/RUN/CATEGORY/PACKAGE`.
const DEPTH_MAX: usize = 4;

pub(super) struct KeptLogs<'a> {
    pub(super) yard: &'a Path,
    pub(super) uses: &'a Uses,
}

/// The folder of a package's logs.
pub(super) fn name(run: u64, package: &str) -> String {
    format!("{LOGS}/{run}/{package}")
}

impl KeptLogs<'_> {
    fn add(&self, folder: &str, depth: usize, entries: &mut Vec<Entry>) -> io::Result<()> {
        let mut entry = Entry {
            name: folder.to_owned(),
            bytes: 0,
            used: SystemTime::UNIX_EPOCH,
            is_needed: self.uses.is_used(folder),
        };
        for name in super::trees::names(&self.yard.join(folder))? {
            let path = self.yard.join(folder).join(&name);
            if let Some((bytes, changed, _)) = facts(&path) {
                entry.bytes = entry.bytes.saturating_add(bytes);
                entry.used = entry.used.max(changed);
            } else if depth < DEPTH_MAX && fs_err::symlink_metadata(&path).is_ok_and(|facts| facts.is_dir()) {
                self.add(&format!("{folder}/{name}"), depth + 1, entries)?;
            }
        }
        if entry.bytes > 0 {
            entries.push(entry);
        }
        Ok(())
    }
}

impl Kind for KeptLogs<'_> {
    fn what(&self) -> What {
        What::Log
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.add(LOGS, 0, &mut entries)?;
        Ok(entries)
    }

    fn discard(&self, name: &str) -> io::Result<bool> {
        let gone = self.uses.unless_used(name, || {
            let folder = self.yard.join(name);
            for file in super::trees::names(&folder)? {
                if facts(&folder.join(&file)).is_some() {
                    remove_file(&folder.join(file))?;
                }
            }
            Ok(Some(()))
        })?;
        // Folders that are empty now, up to that of all logs, unless a build is about to make its own below them.
        let mut empty = Path::new(name);
        while empty != Path::new(LOGS)
            && self.uses.unless_used_below(empty, || std::fs::remove_dir(self.yard.join(empty)).is_ok())
        {
            let Some(above) = empty.parent() else { break };
            empty = above;
        }
        Ok(gone.is_some())
    }
}
