//! The rules of ownership, applied to a session's table: the part of the preload library that surrounds the real
//! calls.

use super::attributes::{self, ABSENT};
use super::layout::{DEVICES, HEADER_DEVICES, HEADER_UNKNOWN};
use super::memory::{Full, Memory};
use super::ownership::{self, Facts, Unknown, View};
use super::table::{Change, Entry, FileId, Table};
use core::sync::atomic::Ordering::Relaxed;

/// The attribute that holds a file's capabilities; changing the owner removes it.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Why an attribute cannot be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The attribute does not exist.
    Missing,
    /// The attribute already exists.
    Exists,
    /// No memory is left.
    Full,
}

/// What the table records of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: the disk decides.
    Nothing,
    /// The attribute is absent, even if the disk has it.
    Absent,
    /// The attribute has a value of this length in bytes.
    Bytes(usize),
}

/// When an attribute may be set, as setxattr(2) distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetWhen {
    /// Always.
    Any,
    /// If the attribute does not exist.
    Create,
    /// If the attribute exists.
    Replace,
}

impl<M: Memory> Table<M> {
    /// The owner of files without an entry.
    pub fn unknown(&self) -> Unknown {
        if self.memory().load(HEADER_UNKNOWN, Relaxed) == 0 { Unknown::Root } else { Unknown::Real }
    }

    /// Whether a device is an overlayfs, where the first change to a file of a lower layer gives it a new birth
    /// time. `ask` returns the type of the file system, and the result is cached in the session.
    pub fn is_layered(&self, device: u64, ask: impl FnOnce() -> Option<u64>) -> bool {
        const OVERLAY: u64 = 0x794c_7630;
        const NO: u64 = 1;
        const YES: u64 = 2;
        // Overlays have no block device, so their device numbers have major number 0.
        if ownership::narrow_number(device).0 != 0 {
            return false;
        }
        let word = HEADER_DEVICES + device as usize % DEVICES;
        let known = self.memory().load(word, Relaxed);
        if known >> 2 == device && known != 0 {
            return known & 3 == YES;
        }
        let Some(kind) = ask() else { return false };
        let is_layered = kind == OVERLAY;
        self.memory().store(word, device << 2 | if is_layered { YES } else { NO }, Relaxed);
        is_layered
    }

    /// The entry of a file. An entry that is about an earlier file with the same inode is dropped.
    pub fn entry(&self, facts: &Facts) -> Option<Entry> {
        let entry = self.find(facts.key)?;
        if ownership::is_of(&entry, facts) {
            return Some(entry);
        }
        // A failure is harmless: the stale entry is not used.
        let _ = self.change(facts.key, |entry| match entry {
            Some(entry) if !ownership::is_of(&entry, facts) => Change::Remove,
            _ => Change::Keep,
        });
        None
    }

    /// How a file appears in the session.
    pub fn view(&self, facts: &Facts) -> View {
        match self.entry(facts) {
            Some(entry) => ownership::view(&entry),
            None => self.unknown().view(facts),
        }
    }

    /// Changes how a file appears: `after` maps the old look to the new one. `drop` names an attribute to
    /// remove.
    fn change_look(&self, facts: &Facts, after: impl FnOnce(View) -> View, drop: &[u8]) -> Result<(), Full> {
        let unknown = self.unknown();
        let mut is_full = false;
        self.change(facts.key, |entry| {
            let entry = entry.filter(|entry| ownership::is_of(entry, facts));
            let look = after(entry.map_or_else(|| unknown.view(facts), |entry| ownership::view(&entry)));
            let mut list = entry.map_or(0, |entry| entry.attributes);
            if !drop.is_empty() && attributes::find(self.memory(), list, drop).is_some() {
                match attributes::with(self.memory(), list, drop, None) {
                    Ok(without) => list = without,
                    Err(Full) => is_full = true,
                }
            }
            match ownership::entry_for(facts, look, list, unknown) {
                Some(new) => Change::Put(new),
                None => Change::Remove,
            }
        })?;
        if is_full { Err(Full) } else { Ok(()) }
    }

    /// Records a `chown`; [`ownership::UNCHANGED`] leaves an id unchanged.
    pub fn chown(&self, facts: &Facts, user: u32, group: u32) -> Result<(), Full> {
        if !self.may_have(facts.key) {
            let look = self.unknown().view(facts);
            let after = ownership::after_chown(look, user, group);
            if after == look && ownership::needs_no_entry(facts, after, self.unknown()) {
                return Ok(());
            }
        }
        let drop = if facts.mode & ownership::TYPE == ownership::FOLDER { &[][..] } else { CAPABILITY };
        self.change_look(facts, |look| ownership::after_chown(look, user, group), drop)
    }

    /// Records a `chmod`, with the facts after the real one.
    pub fn chmod(&self, facts: &Facts, mode: u32) -> Result<(), Full> {
        if !self.may_have(facts.key) {
            let look = self.unknown().view(facts);
            let after = ownership::after_chmod(look, mode);
            if after == look && ownership::needs_no_entry(facts, after, self.unknown()) {
                return Ok(());
            }
        }
        self.change_look(facts, |look| ownership::after_chmod(look, mode), &[])
    }

    /// Records a file that was just made, with its owner, mode and device number.
    pub fn made(&self, facts: &Facts, look: View) -> Result<(), Full> {
        self.change(facts.key, |_| match ownership::entry_for(facts, look, 0, self.unknown()) {
            Some(entry) => Change::Put(entry),
            None => Change::Remove,
        })
    }

    /// Records that a name of a file was removed; the facts are those from before.
    pub fn name_removed(&self, facts: &Facts) {
        if ownership::was_last_name(facts) && self.may_have(facts.key) {
            // The inode may have become another file's by now; its birth time shows that. The change
            // fails only if the lock cannot be reached, and then a stale entry is recognized the same
            // way.
            let _ = self.change(facts.key, |entry| match entry {
                Some(entry) if ownership::is_of(&entry, facts) => Change::Remove,
                _ => Change::Keep,
            });
        }
    }

    /// Adds an entry from a saved state.
    pub fn restore(&self, key: FileId, entry: Entry) -> Result<(), Full> {
        self.change(key, |_| Change::Put(entry))
    }

    /// Reads an attribute; the value is copied if it fits into the buffer.
    pub fn attribute(&self, facts: &Facts, name: &[u8], to: &mut [u8]) -> Known {
        let list = self.entry(facts).map_or(0, |entry| entry.attributes);
        match attributes::find(self.memory(), list, name) {
            None => Known::Nothing,
            Some(attribute) if attribute.value_bytes == ABSENT => Known::Absent,
            Some(attribute) => {
                let bytes = attribute.value_bytes as usize;
                if bytes <= to.len() {
                    attributes::copy_value(self.memory(), &attribute, &mut to[..bytes]);
                }
                Known::Bytes(bytes)
            }
        }
    }

    /// Sets an attribute, or makes it absent. `is_on_disk` decides whether it exists if the table does not say.
    pub fn set_attribute(
        &self,
        facts: &Facts,
        name: &[u8],
        value: Option<&[u8]>,
        when: SetWhen,
        is_on_disk: bool,
    ) -> Result<(), Refused> {
        let unknown = self.unknown();
        let mut result = Ok(());
        let changed = self.change(facts.key, |entry| {
            let entry = entry.filter(|entry| ownership::is_of(entry, facts));
            let list = entry.map_or(0, |entry| entry.attributes);
            let there = match attributes::find(self.memory(), list, name) {
                Some(attribute) => attribute.value_bytes != ABSENT,
                None => is_on_disk,
            };
            match (when, there) {
                (SetWhen::Create, true) => result = Err(Refused::Exists),
                (SetWhen::Replace, false) => result = Err(Refused::Missing),
                _ => {}
            }
            if result.is_err() {
                return Change::Keep;
            }
            let look = entry.map_or_else(|| unknown.view(facts), |entry| ownership::view(&entry));
            match attributes::with(self.memory(), list, name, value) {
                Ok(list) => match ownership::entry_for(facts, look, list, unknown) {
                    Some(entry) => Change::Put(entry),
                    None => Change::Remove,
                },
                Err(Full) => {
                    result = Err(Refused::Full);
                    Change::Keep
                }
            }
        });
        changed.map_err(|Full| Refused::Full).and(result)
    }

    /// Visits the names of a file's attributes, each with whether it exists.
    pub fn attribute_names(&self, facts: &Facts, mut visit: impl FnMut(&[u8], bool)) {
        let list = self.entry(facts).map_or(0, |entry| entry.attributes);
        let mut name = [0; attributes::NAME_BYTES_MAX];
        for attribute in attributes::all(self.memory(), list) {
            let name = &mut name[..(attribute.name_bytes as usize).min(attributes::NAME_BYTES_MAX)];
            attributes::copy_name(self.memory(), &attribute, name);
            visit(name, attribute.value_bytes != ABSENT);
        }
    }

    /// Merges the table's attribute names into a list from the disk, which ends at `end` in the buffer: removes
    /// the names that the table knows, and appends those that exist. Returns the new end, or `None` if the list
    /// does not fit.
    pub fn merge_names(&self, facts: &Facts, buffer: &mut [u8], mut end: usize) -> Option<usize> {
        let mut does_fit = true;
        self.attribute_names(facts, |name, is_there| {
            let mut at = 0;
            while at < end {
                let length =
                    buffer[at..end].iter().position(|letter| *letter == 0).map_or(end - at, |zero| zero + 1);
                if buffer[at..at + length - 1] == *name {
                    buffer.copy_within(at + length..end, at);
                    end -= length;
                } else {
                    at += length;
                }
            }
            if is_there {
                match buffer.get_mut(end..end + name.len() + 1) {
                    Some(place) => {
                        place[..name.len()].copy_from_slice(name);
                        place[name.len()] = 0;
                        end += name.len() + 1;
                    }
                    None => does_fit = false,
                }
            }
        });
        does_fit.then_some(end)
    }
}
