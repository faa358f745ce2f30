//! The pkgsrc part of a yard's configuration.

use crate::OptionRules;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::target::Target;
use std::path::PathBuf;

/// Settings of a set of pkgsrc packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the tree on this machine.
    pub tree: PathBuf,
    /// The folder of the tree's distfiles on this machine.
    pub distfiles: PathBuf,
    /// The layers of every root: the bootstrap kit's and the system's.
    pub layers: Vec<Artifact>,
    /// A hash of the inputs that these layers were made from.
    pub layers_digest: String,
    /// The prefix that packages are installed below.
    pub prefix: String,
    /// Path of the make program inside a root.
    pub make: String,
    /// Settings that make reads after those of the kit.
    pub mk_conf: String,
    /// The architecture, in pkgsrc's spelling (`MACHINE_ARCH`).
    pub architecture: String,
    /// The target that packages are compiled for.
    pub target: Target,
    /// Options of single packages and directories.
    pub packages: OptionRules,
}
