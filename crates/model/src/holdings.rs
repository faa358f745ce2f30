//! What a worker keeps from earlier builds.

use crate::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// The trees that it has, by hash: base roots, and trees of recipes. The last used first; not all, if there are many.
    pub trees: Vec<Sha256Hex>,
    /// The number of layers of dependencies.
    pub layers: u64,
    /// Their size.
    pub layers_bytes: u64,
    /// The number of files: sources, and outputs that its builds used or made.
    pub files: u64,
    /// Their size.
    pub files_bytes: u64,
    /// The size of everything, with the trees.
    pub bytes: u64,
}

impl Holdings {
    /// The most trees that a worker names.
    pub const TREES_MAX: usize = 16;
}
