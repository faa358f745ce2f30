//! Who the processes behind one filter believe to be.
//!
//! As long as none has changed that, there is nothing to look up. Else a process is who it has become itself, or
//! who its nearest ancestor has become that did.

use super::tracee::{started, status};
use crate::shared::identity::{Become, GROUP_VARIABLES, GROUPS_VARIABLE, Ids, Refusal, USER_VARIABLES};
use std::collections::BTreeMap;
use std::ffi::CStr;

/// Ancestors that are looked at: more than real processes have.
const ANCESTORS_MAX: usize = 1000;

/// Processes that changed who they are and are remembered, before the dead ones are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// A process's ids and groups.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    pub users: Ids,
    pub groups: Ids,
    /// Groups beside the first one, if they were set.
    pub more: Option<Vec<u32>>,
}

impl Identity {
    /// As an environment tells, which is strings with zeros behind them.
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

    /// Whether it may become whom it wants.
    pub fn is_privileged(&self) -> bool {
        self.users.effective == 0
    }

    /// Whose what it makes is.
    pub fn makes_as(&self) -> (u32, u32) {
        (self.users.files, self.groups.files)
    }

    /// Becomes somebody else, as a user or as a group.
    pub fn after(mut self, is_user: bool, asked: Become) -> Result<Identity, Refusal> {
        let is_privileged = self.is_privileged();
        let ids = if is_user { &mut self.users } else { &mut self.groups };
        *ids = ids.after(asked, is_privileged)?;
        Ok(self)
    }
}

/// The processes behind one filter.
pub struct Identities {
    first: Identity,
    changed: BTreeMap<(u32, u64), Identity>,
}

impl Identities {
    /// All are as the first one began.
    pub fn new(first: Identity) -> Identities {
        Identities { first, changed: BTreeMap::new() }
    }

    /// Who a thread's process is.
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

    /// A thread's process has become somebody.
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
