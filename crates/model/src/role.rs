//! What a worker takes part in.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A kind of work. A worker has any of them; by default all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It scans parts of a tree.
    Scan,
    /// It reads stored outputs, where it is near them, and compares their hashes.
    Check,
    /// It builds packages.
    Build,
    /// It installs and removes what was built, in clean roots.
    Test,
}

impl Role {
    /// All roles, in the order of a run.
    pub const ALL: [Role; 4] = [Role::Scan, Role::Check, Role::Build, Role::Test];

    /// The set of all roles.
    pub fn all() -> BTreeSet<Role> {
        Role::ALL.into()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Role::Scan => "scan",
            Role::Check => "check",
            Role::Build => "build",
            Role::Test => "test",
        })
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = Role::ALL.into_iter().find(|role| role.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not a role: scan, check, build or test"))
    }
}
