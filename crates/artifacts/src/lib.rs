//! Artifacts: files that are named by the SHA-256 of their content, written once and never changed.
//!
//! [`Artifacts`] is the contract of a store, and [`Folder`] a store in a folder. Content is hashed while it is
//! written, and gets its name when all of it is on disk. A file may be stored compressed: its name is the hash of the
//! uncompressed form, which readers get.
//!
//! Invariant: a name that exists has the right content, no matter when a process was killed or power was lost. A disk
//! can still damage it, so [`copy`] hashes what it copies.
//!
//! Known downside: two writers of the same content both write it.

#![forbid(unsafe_code)]

mod depot;
mod folder;
pub mod patch;
#[cfg(feature = "suite")]
pub mod suite;

pub use depot::{Depot, Finding, Listed, Outcome, Part, Upload};
pub use folder::{Folder, hash_of};

use kilnyard_model::artifact::Artifact;
use kilnyard_model::sha256::Sha256Hex;
use sha2::{Digest, Sha256};
use std::io::{self, Read};

/// The form of a file in a store. The artifact is the same either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Uncompressed, so that it can be hard-linked.
    Plain,
    /// Compressed with zstd.
    Compressed,
}

/// Why an artifact could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The store does not have the artifact.
    #[error("artifact {0} not found")]
    Missing(Sha256Hex),
    /// The content does not match the name: the disk is damaged, or the store lied.
    #[error("artifact {expected} has different content, with hash {found}")]
    Differs {
        /// The name of the artifact.
        expected: Sha256Hex,
        /// The hash of its content.
        found: Sha256Hex,
    },
    /// The size differs from the one in the reference.
    #[error("artifact {sha256} does not have the expected size of {size_bytes} bytes")]
    Size {
        /// The name of the artifact.
        sha256: Sha256Hex,
        /// The size in the reference.
        size_bytes: u64,
    },
    /// A file or connection failed.
    #[error("failed to {action}: {source}")]
    Io {
        /// Reads after "failed to".
        action: String,
        /// The error of the file or connection.
        source: io::Error,
    },
}

impl ArtifactError {
    /// Makes [`ArtifactError::Io`].
    pub fn io(action: impl Into<String>, source: io::Error) -> ArtifactError {
        ArtifactError::Io { action: action.into(), source }
    }
}

/// A store of artifacts.
pub trait Artifacts: Send + Sync {
    /// Whether the store has an artifact. This does not read the content.
    fn contains(&self, sha256: &Sha256Hex) -> Result<bool, ArtifactError>;

    /// Opens the uncompressed content of an artifact. The content is not verified; use [`copy`] for that.
    fn open(&self, sha256: &Sha256Hex) -> Result<Box<dyn Read + Send + '_>, ArtifactError>;

    /// Stores the bytes of `from` up to its end, and returns their hash and size. If `from` fails, nothing is stored.
    fn insert(&self, from: &mut dyn Read, storage: Storage) -> Result<(Sha256Hex, u64), ArtifactError>;
}

/// Copies an artifact to another store, unless that store has it, and verifies its hash and size.
///
/// # Errors
/// The artifact is missing, or does not match its reference. The other store does not get it then.
pub fn copy(
    artifact: &Artifact,
    from: &dyn Artifacts,
    to: &dyn Artifacts,
    storage: Storage,
) -> Result<(), ArtifactError> {
    if to.contains(&artifact.sha256)? {
        return Ok(());
    }
    insert_checked(from.open(&artifact.sha256)?, artifact, to, storage)
}

/// Copies an artifact to another store as [`copy`] does, in place of a file of its name that is damaged.
///
/// # Errors
/// The artifact is missing, or does not match its reference. The other store keeps what it has then.
pub fn replace(
    artifact: &Artifact,
    from: &dyn Artifacts,
    to: &dyn Artifacts,
    storage: Storage,
) -> Result<(), ArtifactError> {
    insert_checked(from.open(&artifact.sha256)?, artifact, to, storage)
}

/// Copies an artifact of any size to another store, unless that store has it, and verifies its hash.
///
/// # Errors
/// The artifact is missing, or has other content, which the other store then keeps under the name of that.
pub fn copy_of_any_size(
    sha256: &Sha256Hex,
    from: &dyn Artifacts,
    to: &dyn Artifacts,
    storage: Storage,
) -> Result<(), ArtifactError> {
    if to.contains(sha256)? {
        return Ok(());
    }
    let (found, _) = to.insert(&mut *from.open(sha256)?, storage)?;
    match found == *sha256 {
        true => Ok(()),
        false => Err(ArtifactError::Differs { expected: sha256.clone(), found }),
    }
}

/// Stores content if it matches its reference.
fn insert_checked<'a>(
    content: Box<dyn Read + Send + 'a>,
    artifact: &'a Artifact,
    to: &dyn Artifacts,
    storage: Storage,
) -> Result<(), ArtifactError> {
    let mut checked =
        Checked { content, hasher: Sha256::new(), missing_bytes: artifact.size_bytes, artifact };
    match to.insert(&mut checked, storage) {
        Ok(_) => Ok(()),
        Err(error) => match error.fault() {
            Some(fault) => Err(fault),
            None => Err(error),
        },
    }
}

impl ArtifactError {
    /// The error of [`Checked`], if a store passed it on.
    fn fault(&self) -> Option<ArtifactError> {
        let ArtifactError::Io { source, .. } = self else { return None };
        let fault = source.get_ref()?.downcast_ref::<Fault>()?;
        Some(match fault {
            Fault::Differs { expected, found } => {
                ArtifactError::Differs { expected: expected.clone(), found: found.clone() }
            }
            Fault::Size { sha256, size_bytes } => {
                ArtifactError::Size { sha256: sha256.clone(), size_bytes: *size_bytes }
            }
        })
    }
}

/// A mismatch that [`Checked`] found.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("its hash is {found}, not {expected}")]
    Differs { expected: Sha256Hex, found: Sha256Hex },
    #[error("{sha256} does not have the expected size of {size_bytes} bytes")]
    Size { sha256: Sha256Hex, size_bytes: u64 },
}

/// Reads content, and fails at the end if it does not match its artifact.
struct Checked<'a> {
    content: Box<dyn Read + Send + 'a>,
    hasher: Sha256,
    missing_bytes: u64,
    artifact: &'a Artifact,
}

impl Read for Checked<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(bytes)?;
        self.hasher.update(&bytes[..count]);
        let size = || {
            let Artifact { sha256, size_bytes, .. } = self.artifact;
            io::Error::other(Fault::Size { sha256: sha256.clone(), size_bytes: *size_bytes })
        };
        self.missing_bytes = self.missing_bytes.checked_sub(count as u64).ok_or_else(size)?;
        if count == 0 && !bytes.is_empty() {
            if self.missing_bytes > 0 {
                return Err(size());
            }
            let (expected, found) = (self.artifact.sha256.clone(), Sha256Hex::finish(self.hasher.clone()));
            if expected != found {
                return Err(io::Error::other(Fault::Differs { expected, found }));
            }
        }
        Ok(count)
    }
}
