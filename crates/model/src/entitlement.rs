//! What a yard is entitled to of workers that several yards share.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of work comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkClass {
    /// Updates that close holes.
    Security,
    /// What is released next.
    Release,
    /// Everything else.
    #[default]
    Rebuild,
    /// Builds of proposed changes.
    Try,
}

impl fmt::Display for WorkClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            WorkClass::Security => "security",
            WorkClass::Release => "release",
            WorkClass::Rebuild => "rebuild",
            WorkClass::Try => "try",
        })
    }
}

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Entitlement {
    /// Its part of the core time among yards of its class; above 0.
    pub weight: f64,
    /// Its class.
    pub class: WorkClass,
}

impl Default for Entitlement {
    fn default() -> Entitlement {
        Entitlement { weight: 1.0, class: WorkClass::default() }
    }
}

impl Entitlement {
    /// Whether the weight can be used. Larger ones are a mistake, and would starve others within the class.
    pub fn is_valid(&self) -> bool {
        self.weight.is_finite() && (0.001..=1000.0).contains(&self.weight)
    }
}
