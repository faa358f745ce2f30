//! Artifacts: files that are named by the SHA-256 of their content, written once and never changed.
//!
//! [`Artifacts`] is the contract of a store, and [`Folder`] a store in a folder. Content is hashed while it is written, and gets its name
//! when all of it is on disk. A file may be stored compressed: its name is the hash of the uncompressed form, which readers get.
//!
//! Invariant: a name that exists has the right content, whatever was killed or lost power when. A disk can still damage it, so that
//! [`copy`] hashes what it copies.
//!
//! Known downside: two writers of the same content both write it.

#![forbid(unsafe_code)]

mod folder;
#[cfg(feature = "suite")]
pub mod suite;

pub use folder::Folder;

use kilnyard_model::artifact::Artifact;
use kilnyard_model::sha256::Sha256Hex;
use sha2::{Digest, Sha256};
use std::io::{self, Read};

/// How a file lies in a store. It is the same artifact either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// As it is, so that it can be linked to.
    Plain,
    /// By zstd.
    Compressed,
}

/// Why an artifact could not be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It is not there.
    #[error("there is no artifact {0}")]
    Missing(Sha256Hex),
    /// Its content does not match its name: a damaged disk, or a lying store.
    #[error("the artifact {expected} has the content of {found}")]
    Differs {
        /// Its name.
        expected: Sha256Hex,
        /// The digest of its content.
        found: Sha256Hex,
    },
    /// Its size is not the expected one.
    #[error("the artifact {sha256} does not have {size_bytes} bytes")]
    Size {
        /// Its name.
        sha256: Sha256Hex,
        /// The size that was expected.
        size_bytes: u64,
    },
    /// The store failed.
    #[error("failed to {action}: {source}")]
    Io {
        /// What was done, reads after "failed to".
        action: String,
        /// Why.
        source: io::Error,
    },
}

impl ArtifactError {
    /// An error of a file or a connection.
    pub fn io(action: impl Into<String>, source: io::Error) -> ArtifactError {
        ArtifactError::Io { action: action.into(), source }
    }
}

/// Where artifacts are kept.
pub trait Artifacts: Send + Sync {
    /// Whether an artifact is there. Its content is not read.
    fn contains(&self, sha256: &Sha256Hex) -> Result<bool, ArtifactError>;

    /// The uncompressed content of an artifact. Whether it is what its name says is for the reader to find out.
    fn open(&self, sha256: &Sha256Hex) -> Result<Box<dyn Read + Send + '_>, ArtifactError>;

    /// Keeps what `from` gives, to its end; its hash and size. Nothing is kept where `from` fails.
    fn insert(&self, from: &mut dyn Read, storage: Storage) -> Result<(Sha256Hex, u64), ArtifactError>;
}

/// Copies an artifact from one store to another, where it lacks it, and checks it on the way.
///
/// # Errors
/// It is missing, or is not what its reference says: it is not in the other store then.
pub fn copy(
    artifact: &Artifact,
    from: &dyn Artifacts,
    to: &dyn Artifacts,
    storage: Storage,
) -> Result<(), ArtifactError> {
    if to.contains(&artifact.sha256)? {
        return Ok(());
    }
    let content = from.open(&artifact.sha256)?;
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
    /// The error of [`Checked`] that a store passed on.
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

/// What [`Checked`] found.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it is {found}, and should be {expected}")]
    Differs { expected: Sha256Hex, found: Sha256Hex },
    #[error("{sha256} does not have {size_bytes} bytes")]
    Size { sha256: Sha256Hex, size_bytes: u64 },
}

/// A content that fails at its end if it is not what it should be.
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
