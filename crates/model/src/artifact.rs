//! Files that are known by their content.

use crate::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};

/// What kind of file an artifact is, in its uncompressed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Media {
    /// A tree of files in the canonical form of an archive (`root/src/archive.rs`).
    #[serde(rename = "application/vnd.kilnyard.tree+tar")]
    Tree,
    /// Bytes, of which nothing is known here.
    #[serde(rename = "application/octet-stream")]
    Bytes,
}

/// A reference to a file by the SHA-256 of its uncompressed form. How it is compressed where it lies, or on its way, says nothing
/// of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Artifact {
    /// The hash.
    pub sha256: Sha256Hex,
    /// The size of the uncompressed form.
    pub size_bytes: u64,
    /// What it is.
    pub media: Media,
}
