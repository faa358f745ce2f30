//! What a yard's configuration says of pkgsrc.

use kilnyard_model::artifact::Artifact;
use kilnyard_model::target::Target;
use std::path::PathBuf;

/// Settings of a set of pkgsrc packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The tree, on this machine.
    pub tree: PathBuf,
    /// Where the tree's distfiles are kept, on this machine.
    pub distfiles: PathBuf,
    /// The layers of every root: the bootstrap kit's and the system's.
    pub layers: Vec<Artifact>,
    /// A hash of what these layers were made from.
    pub layers_digest: String,
    /// Where packages are installed.
    pub prefix: String,
    /// The make program, inside a root.
    pub make: String,
    /// Settings that make reads after those of the kit.
    pub mk_conf: String,
    /// The architecture, as the family names it.
    pub architecture: String,
    /// What is built for.
    pub target: Target,
}
