//! What a person may do with a yard.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A permission. A person has any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// To see yards, runs and requests.
    Read,
    /// To retry, skip and bump packages. It includes [`Scope::Read`].
    Request,
    /// To drain and approve workers. It includes [`Scope::Read`].
    Manage,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 3] = [Scope::Read, Scope::Request, Scope::Manage];
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Scope::Read => "read",
            Scope::Request => "request",
            Scope::Manage => "manage",
        })
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        let found = Scope::ALL.into_iter().find(|scope| scope.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not a scope: read, request or manage"))
    }
}
