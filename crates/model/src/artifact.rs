//! References to files by their content.

use crate::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};

/// The type of an artifact's uncompressed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Media {
    /// A tree of files in the canonical form of an archive (`root/src/archive.rs`).
    #[serde(rename = "application/vnd.kilnyard.tree+tar")]
    Tree,
    /// Any other file.
    #[serde(rename = "application/octet-stream")]
    Bytes,
}

/// A reference to a file by the SHA-256 of its uncompressed form. It does not depend on how the file is compressed in
/// a store or in transit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Artifact {
    /// The hash of the uncompressed form.
    pub sha256: Sha256Hex,
    /// The size of the uncompressed form.
    pub size_bytes: u64,
    /// The type of the uncompressed form.
    pub media: Media,
}

/// The result of reading a stored artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checked {
    /// Its content has the hash of its name.
    Intact,
    /// The store does not have it.
    Missing,
    /// Its content has another hash.
    Damaged,
}
