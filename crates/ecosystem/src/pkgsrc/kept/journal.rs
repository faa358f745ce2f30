//! Writes the journal of kept scan results.

use super::fact::{Fact, Places};
use super::{BEGINNING, Current, asked, checksum, each_file};
use crate::pkgsrc::own_settings::ScanSettings;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;

/// A journal that is being written; results are appended.
#[derive(Debug)]
pub struct Journal {
    file: fs_err::File,
    places: Places,
    /// Known facts about files, so that no file is read twice.
    facts: HashMap<String, Fact>,
    /// Files that have a record.
    recorded: HashSet<String>,
    /// Directories for which the files behind their options are recorded.
    checked: HashSet<String>,
    /// Files written after this time may have changed while they were read.
    began_nanoseconds: i128,
}

/// The records that are written together with one result.
#[derive(Default)]
struct Addition {
    text: Vec<u8>,
    files: Vec<String>,
    folders: Vec<String>,
}

impl Journal {
    /// Starts a new journal with the results that are still valid, and atomically replaces the old one.
    pub fn begin(
        path: &Path,
        places: &Places,
        facts: &str,
        settings: &ScanSettings,
        current: &Current,
        began_nanoseconds: i128,
    ) -> io::Result<Journal> {
        let part = path.with_extension("part");
        let mut file = fs_err::File::create(&part)?;
        file.write_all(format!("{BEGINNING}{facts}\n").as_bytes())?;
        if !settings.is_empty() {
            let line = settings.line();
            file.write_all(format!("settings {} {line}\n", checksum(line.as_bytes())).as_bytes())?;
        }
        let mut journal = Journal {
            file,
            places: places.clone(),
            facts: current.facts.clone(),
            recorded: HashSet::new(),
            checked: HashSet::new(),
            began_nanoseconds,
        };
        let mut locations: Vec<&String> = current.stanzas.keys().collect();
        locations.sort_unstable();
        for location in locations {
            journal.add(location, &current.stanzas[location])?;
        }
        journal.file.sync_all()?;
        fs_err::rename(&part, path)?;
        Ok(journal)
    }

    /// Adds a result. It is not kept if it depends on a file that is being changed or no longer exists.
    pub fn add(&mut self, location: &str, stanzas: &[u8]) -> io::Result<()> {
        let mut new = Addition::default();
        let is_known = each_file(location, stanzas, &mut |path| {
            self.record(&path, Missing::Refused, &mut new) && self.ask(&path, &mut new)
        });
        if is_known == Some(true) {
            let Addition { mut text, files, folders } = new;
            text.extend(format!("scan {} {} {location}\n", checksum(stanzas), stanzas.len()).into_bytes());
            text.extend(stanzas);
            self.recorded.extend(files);
            self.checked.extend(folders);
            self.file.write_all(&text)?;
        }
        Ok(())
    }

    /// Records a file unless it already is; returns whether a result that depends on it can be kept. Files of
    /// layers need no record.
    fn record(&mut self, path: &str, missing: Missing, new: &mut Addition) -> bool {
        if self.recorded.contains(path) || new.files.iter().any(|other| other == path) {
            return true;
        }
        let Some(place) = self.places.find(path) else { return true };
        let fact = match self.facts.get(path) {
            Some(fact) => fact.clone(),
            None => match Fact::of(&place) {
                Ok(fact) => fact,
                Err(_) => return false,
            },
        };
        let is_good = fact.is_before(self.began_nanoseconds)
            && (fact != Fact::Absent || matches!(missing, Missing::Recorded));
        if is_good {
            new.text.extend(format!("file {}\n", fact.write(path)).into_bytes());
            new.files.push(path.to_owned());
        }
        is_good
    }

    /// Records the files that make reads elsewhere because it read this one; returns whether the result can be
    /// kept.
    fn ask(&mut self, path: &str, new: &mut Addition) -> bool {
        let Some(folder) = asked::folder(&self.places, path) else { return true };
        if self.checked.contains(folder) || new.folders.iter().any(|other| other == folder) {
            return true;
        }
        let files = asked::files(&self.places, folder);
        if !files.iter().all(|file| self.record(file, Missing::Recorded, new)) {
            return false;
        }
        if !files.is_empty() {
            let list = format!("{folder} {}", files.join(" "));
            new.text.extend(format!("asked {} {list}\n", checksum(list.as_bytes())).into_bytes());
        }
        new.folders.push(folder.to_owned());
        true
    }
}

/// How a missing file is handled.
#[derive(Clone, Copy)]
enum Missing {
    /// make reports that it read the file, so the result cannot be trusted.
    Refused,
    /// make would read the file if it existed.
    Recorded,
}
