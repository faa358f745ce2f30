//! The table `signer`: a signer on another machine.

use serde::Deserialize;

/// The table `signer`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SignerTable {
    /// The name with which it joined, as `kilnyard workers` shows it.
    pub name: String,
    /// The name of this yard's repository in its policy.
    #[serde(default = "own")]
    pub repository: String,
}

fn own() -> String {
    crate::signing::OWN_REPOSITORY.to_owned()
}
