//! What a yard's configuration says of pkgsrc.

use std::path::PathBuf;

/// Settings of a set of pkgsrc packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The tree, on this machine.
    pub tree: PathBuf,
    /// Where the tree's distfiles are kept, on this machine.
    pub distfiles: PathBuf,
    /// The layers of every root: the bootstrap kit's and the system's.
    pub layers: Vec<String>,
    /// A hash of what these layers hold.
    pub layers_digest: String,
    /// Where packages are installed.
    pub prefix: String,
    /// The make program, inside a root.
    pub make: String,
    /// Settings that make reads after those of the kit.
    pub mk_conf: String,
    /// The architecture, as the family names it.
    pub architecture: String,
    /// How names are resolved where files are fetched: the text of `resolv.conf`. No part of a key.
    pub resolv_conf: String,
    /// Variables for commands that fetch, such as a proxy. No part of a key.
    pub fetch_environment: Vec<(String, String)>,
}
