//! Files that a run needs: they are kept whatever their age, until the run ends or its pins expire.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder of pins, below the mirror's.
const PINS: &str = "pins";
/// The most lists of pins.
const LISTS_MAX: usize = 256;

/// A list of pins.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct List {
    /// Until when it holds, in seconds since 1970.
    until: u64,
    /// The paths of the files.
    keys: Vec<String>,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
    lists: Mutex<Lists>,
}

/// The lists, and when the folder had changed last as they were read: commands write there, too.
#[derive(Debug, Default)]
struct Lists {
    read: Option<SystemTime>,
    by_name: BTreeMap<String, List>,
}

impl Pins {
    /// Reads those of a mirror's folder.
    pub fn open(folder: &Path) -> io::Result<Pins> {
        let folder = folder.join(PINS);
        fs_err::create_dir_all(&folder)?;
        let pins = Pins { folder, lists: Mutex::default() };
        pins.read(&mut pins.lists.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(pins)
    }

    /// Reads the lists, if the folder has changed.
    fn read(&self, lists: &mut Lists) -> io::Result<()> {
        let changed = fs_err::metadata(&self.folder)?.modified().ok();
        // A change in the same moment has the same time.
        let is_settled = |changed: SystemTime| {
            let seconds = changed.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            seconds + 2 < crate::cache::now()
        };
        if changed.is_some_and(is_settled) && lists.read == changed {
            return Ok(());
        }
        let mut by_name = BTreeMap::new();
        for entry in fs_err::read_dir(&self.folder)? {
            let path = entry?.path();
            let name =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
            let list = fs_err::read(&path).ok().and_then(|text| serde_json::from_slice::<List>(&text).ok());
            if let (Some(name), Some(list)) = (name, list) {
                by_name.insert(name.to_owned(), list);
            }
        }
        *lists = Lists { read: changed, by_name };
        Ok(())
    }

    /// Whether a list may have this name.
    pub fn is_name(name: &str) -> bool {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(is_allowed)
    }

    /// Keeps files until this time, in seconds since 1970, in place of those that the list had.
    ///
    /// # Errors
    /// It cannot be written, or there are too many lists.
    pub fn set(&self, name: &str, keys: Vec<String>, until: u64) -> io::Result<()> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        self.read(&mut lists)?;
        let lists = &mut lists.by_name;
        let now = crate::cache::now();
        let expired: Vec<String> =
            lists.iter().filter(|(_, list)| list.until <= now).map(|(name, _)| name.clone()).collect();
        for name in expired {
            lists.remove(&name);
            let _ = fs_err::remove_file(self.file(&name));
        }
        if lists.len() >= LISTS_MAX && !lists.contains_key(name) {
            return Err(io::Error::other("there are too many lists of pins"));
        }
        let list = List { until, keys };
        let staged = self.folder.join(format!("{name}.part"));
        fs_err::write(&staged, serde_json::to_vec(&list)?)?;
        fs_err::rename(&staged, self.file(name))?;
        lists.insert(name.to_owned(), list);
        Ok(())
    }

    /// Ends a list. It may have ended already.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn end(&self, name: &str) -> io::Result<()> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).by_name.remove(name);
        match fs_err::remove_file(self.file(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// The paths of all files that are kept.
    pub fn pinned(&self) -> HashSet<String> {
        let now = crate::cache::now();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        // If the folder cannot be read, what was known counts.
        let _ = self.read(&mut lists);
        lists
            .by_name
            .values()
            .filter(|list| list.until > now)
            .flat_map(|list| list.keys.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_hold_until_they_end_or_expire_and_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let pins = Pins::open(folder.path()).unwrap();
        let later = crate::cache::now() + 1000;
        pins.set("one", vec!["a".into(), "b".into()], later).unwrap();
        pins.set("two", vec!["c".into()], 1).unwrap();
        assert_eq!(pins.pinned(), HashSet::from(["a".to_owned(), "b".to_owned()]));
        let pins = Pins::open(folder.path()).unwrap();
        assert_eq!(pins.pinned().len(), 2);
        // Another process, such as a command, may write them.
        Pins::open(folder.path()).unwrap().set("other", vec!["e".into()], later).unwrap();
        assert!(pins.pinned().contains("e"));
        Pins::open(folder.path()).unwrap().end("other").unwrap();
        assert!(!pins.pinned().contains("e"));
        pins.set("one", vec!["d".into()], later).unwrap();
        assert_eq!(pins.pinned(), HashSet::from(["d".to_owned()]));
        pins.end("one").unwrap();
        pins.end("one").unwrap();
        assert!(pins.pinned().is_empty() && Pins::open(folder.path()).unwrap().pinned().is_empty());
        assert!(!Pins::is_name("../x") && !Pins::is_name("") && Pins::is_name("run-7"));
        for number in 0..LISTS_MAX {
            pins.set(&number.to_string(), Vec::new(), later).unwrap();
        }
        assert!(pins.set("more", Vec::new(), later).is_err() && pins.set("7", Vec::new(), later).is_ok());
    }
}
