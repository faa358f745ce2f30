//! The ids that the processes behind one filter appear to have.
//!
//! As long as no process has changed its ids, there is nothing to look up. Otherwise a process has the ids that it
//! assumed itself, or else those of its nearest ancestor that did.

use super::tracee::{started, status};
use crate::shared::identity::{GROUP_VARIABLES, GROUPS_VARIABLE, IdChange, Ids, Refusal, USER_VARIABLES};
use std::collections::BTreeMap;
use std::ffi::CStr;

/// How many ancestors are checked: more than real processes have.
const ANCESTORS_MAX: usize = 1000;

/// How many processes with changed ids are recorded before the dead ones are dropped.
const REMEMBERED_MAX: usize = 1024;

/// The user ids, group ids and supplementary groups of a process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    pub users: Ids,
    pub groups: Ids,
    /// Supplementary groups, if they were set.
    pub more: Option<Vec<u32>>,
}

impl Identity {
    /// The identity from an environment, which consists of NUL-terminated strings.
    pub fn of_environment(text: &[u8]) -> Identity {
        let get = |name: &CStr| {
            let value = text
                .split(|byte| *byte == 0)
                .find_map(|line| line.strip_prefix(name.to_bytes())?.strip_prefix(b"="))?;
            std::str::from_utf8(value).ok()
        };
        let ids = |names: [&CStr; 4]| {
            let [real, effective, saved, files] =
                names.map(|name| get(name).and_then(|value| value.parse().ok()).unwrap_or(0));
            Ids { real, effective, saved, files }
        };
        let more = get(GROUPS_VARIABLE)
            .map(|value| value.split(',').filter_map(|number| number.parse().ok()).collect());
        Identity { users: ids(USER_VARIABLES), groups: ids(GROUP_VARIABLES), more }
    }

    /// Whether the process may assume any id.
    pub fn is_privileged(&self) -> bool {
        self.users.effective == 0
    }

    /// The owner of new files.
    pub fn new_file_owner(&self) -> (u32, u32) {
        (self.users.files, self.groups.files)
    }

    /// The identity after a request to change user or group ids.
    pub fn after(mut self, is_user: bool, asked: IdChange) -> Result<Identity, Refusal> {
        let is_privileged = self.is_privileged();
        let ids = if is_user { &mut self.users } else { &mut self.groups };
        *ids = ids.after(asked, is_privileged)?;
        Ok(self)
    }
}

/// The identities of the processes behind one filter.
pub struct Identities {
    first: Identity,
    changed: BTreeMap<(u32, u64), Identity>,
}

impl Identities {
    /// All processes start with the identity of the first one.
    pub fn new(first: Identity) -> Identities {
        Identities { first, changed: BTreeMap::new() }
    }

    /// The identity of a thread's process.
    pub fn of(&self, thread: u32) -> Identity {
        if self.changed.is_empty() {
            return self.first.clone();
        }
        let mut process = status(thread, "Tgid", 10);
        for _ in 0..ANCESTORS_MAX {
            let Some(number) = process.filter(|number| *number > 1) else { break };
            if let Some(identity) = started(number).and_then(|started| self.changed.get(&(number, started))) {
                return identity.clone();
            }
            process = status(number, "PPid", 10);
        }
        self.first.clone()
    }

    /// Records the new identity of a thread's process.
    pub fn set(&mut self, thread: u32, identity: Identity) {
        if self.changed.len() >= REMEMBERED_MAX {
            self.changed.retain(|(number, since), _| started(*number) == Some(*since));
        }
        let number = status(thread, "Tgid", 10).unwrap_or(thread);
        if let Some(started) = started(number) {
            self.changed.insert((number, started), identity);
        }
    }
}
