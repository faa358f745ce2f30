//! A store of artifacts that the machines of a farm share.

use crate::{ArtifactError, Artifacts, Folder};
use kilnyard_model::sha256::Sha256Hex;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// See the module documentation.
pub trait Depot: Artifacts + fmt::Debug {
    /// Its address, without secrets.
    fn name(&self) -> String;

    /// Stores a copy of a file, if its content has this hash. An artifact that was stored before `fresh_seconds`, in seconds
    /// since 1970, counts as new afterwards, so that nothing removes it as one that is not needed.
    ///
    /// # Errors
    /// The content differs, the file cannot be read, or the store cannot be written.
    fn deposit(&self, path: &Path, sha256: &Sha256Hex, fresh_seconds: f64) -> Result<(), ArtifactError>;

    /// Whether it has each of these artifacts, in their order.
    ///
    /// # Errors
    /// The store cannot be read.
    fn contains_each(&self, wanted: &[Sha256Hex]) -> Result<Vec<bool>, ArtifactError> {
        wanted.iter().map(|sha256| self.contains(sha256)).collect()
    }

    /// Calls `each` with every artifact, in any order, until it returns false.
    ///
    /// # Errors
    /// The store cannot be read.
    fn each(&self, each: &mut dyn FnMut(Listed) -> bool) -> Result<(), ArtifactError>;

    /// Removes an artifact that was stored before this time, in seconds since 1970. Returns whether it did.
    ///
    /// # Errors
    /// The store cannot be written.
    fn remove_before(&self, sha256: &Sha256Hex, seconds: f64) -> Result<bool, ArtifactError>;

    /// Removes uploads of other machines that began before this time, in seconds since 1970, and were never adopted.
    /// Returns their number.
    ///
    /// # Errors
    /// The store cannot be written.
    fn sweep(&self, before_seconds: f64) -> Result<u64, ArtifactError>;

    /// Tests whether the store does what Kilnyard relies on, with small artifacts of its own.
    fn examine(&self) -> Vec<Finding>;

    /// A URL by which everyone who has it can read an artifact for this time; none if only this machine can read the store.
    ///
    /// # Errors
    /// The URL cannot be made.
    fn read_url(&self, sha256: &Sha256Hex, valid: Duration) -> Result<Option<String>, ArtifactError> {
        let _ = (sha256, valid);
        Ok(None)
    }

    /// Lets another machine upload content of this hash and size, in bytes, for this time; none if only this machine can
    /// write the store. `token` keeps the uploads of machines apart. Nothing becomes an artifact before it is adopted.
    ///
    /// # Errors
    /// The upload cannot begin.
    fn upload(
        &self,
        token: &str,
        sha256: &Sha256Hex,
        size_bytes: u64,
        valid: Duration,
    ) -> Result<Option<Upload>, ArtifactError> {
        let _ = (token, sha256, size_bytes, valid);
        Ok(None)
    }

    /// Makes what another machine has uploaded an artifact, here and in `into`, after it was read and hashed. `finished` has
    /// the id and the `ETag`s of an upload in parts.
    ///
    /// # Errors
    /// Nothing was uploaded, or its content or size differs; then it is removed.
    fn adopt(
        &self,
        token: &str,
        (sha256, size_bytes): (&Sha256Hex, u64),
        finished: Option<(&str, &[String])>,
        into: &Folder,
    ) -> Result<(), ArtifactError> {
        let _ = (token, size_bytes, finished, into);
        Err(ArtifactError::Missing(sha256.clone()))
    }
}

/// An artifact in a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its name.
    pub sha256: Sha256Hex,
    /// Its size as it is stored, in bytes.
    pub size_bytes: u64,
    /// When it was stored, in seconds since 1970 by the store's clock.
    pub modified_seconds: f64,
}

/// What a store does about one thing that Kilnyard relies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The thing, as the name of a feature.
    pub what: &'static str,
    /// What was found.
    pub outcome: Outcome,
}

/// See [`Finding`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as it should be.
    Works,
    /// It is missing, and Kilnyard works without it. The text says what is worse then, as a clause.
    Missing(String),
    /// Kilnyard must not use this store. The text says why, as a clause.
    Refuse(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Works => write!(f, "{}: works", self.what),
            Outcome::Missing(consequence) => write!(f, "{}: missing; {consequence}", self.what),
            Outcome::Refuse(reason) => write!(f, "{}: unusable: {reason}", self.what),
        }
    }
}

/// How to upload something. The URLs are secrets: `Debug` does not print them.
#[derive(Clone)]
pub enum Upload {
    /// One `PUT` of all of the content to `url`, with exactly these headers and `Content-Length`.
    Whole {
        /// The presigned URL.
        url: String,
        /// Names and values. On S3, the SHA-256 of the content is one of them, and part of the signature.
        headers: Vec<(String, String)>,
    },
    /// A `PUT` for each part, in any order; [`Depot::adopt`] then needs the `ETag` headers of the answers.
    Parts {
        /// The server's name of the upload.
        id: String,
        /// The size of each part other than the last, in bytes.
        part_bytes: u64,
        /// In the order of the content.
        parts: Vec<Part>,
    },
}

/// A part of an upload.
#[derive(Clone)]
pub struct Part {
    /// The presigned URL. The content is not part of the signature: [`Depot::adopt`] verifies it.
    pub url: String,
    /// Names and values that the request must have.
    pub headers: Vec<(String, String)>,
    /// Where it begins in the content, in bytes.
    pub offset_bytes: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upload::Whole { .. } => f.write_str("Upload::Whole"),
            Upload::Parts { part_bytes, parts, .. } => {
                write!(f, "Upload::Parts({} of {part_bytes} bytes)", parts.len())
            }
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} bytes at {})", self.size_bytes, self.offset_bytes)
    }
}
