//! Errors of this crate. Each message completes "failed to".

use std::io;
use std::path::PathBuf;

/// Why a repository could not be planned, published or read.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A name, path or text in the input would not be safe in a repository.
    #[error("accept the {what} {value:?}: {reason}")]
    Input {
        /// The kind of input.
        what: &'static str,
        /// The input, shortened.
        value: String,
        /// Why it was rejected.
        reason: &'static str,
    },
    /// The input is larger than any real repository.
    #[error("accept the repository: its {what} is over the limit of {limit}")]
    TooLarge {
        /// The quantity that is too large.
        what: &'static str,
        /// The maximum, in the unit of `what`.
        limit: u64,
    },
    /// Two entries have the same name, version and architecture in one component.
    #[error("list {package} {version} ({architecture}) in component {component}: it is a duplicate")]
    Duplicate {
        /// The package's name.
        package: String,
        /// Its version.
        version: String,
        /// Its architecture, or `source` for a source package.
        architecture: String,
        /// The component that lists both.
        component: String,
    },
    /// The content of a published pool file differs from that of the entry with the same path.
    #[error(
        "put {pool_path} into the pool: it has the SHA-256 {existing_sha256}, but the new file has {offered_sha256}"
    )]
    Conflict {
        /// Path in the repository, which both files have.
        pool_path: String,
        /// SHA-256 of the existing file, or of the other entry.
        existing_sha256: String,
        /// SHA-256 of this entry.
        offered_sha256: String,
    },
    /// A file to be published does not match its entry.
    #[error("publish {}: found {found}, expected {expected}", file.display())]
    FileChanged {
        /// The file's path.
        file: PathBuf,
        /// The size or checksum in the entry.
        expected: String,
        /// The actual size or checksum.
        found: String,
    },
    /// Something in the repository's directory was not made by this crate.
    #[error("use {} as part of the repository: {reason}", path.display())]
    Foreign {
        /// The file or folder that is in the way.
        path: PathBuf,
        /// Why it cannot be used.
        reason: &'static str,
    },
    /// A file that this crate wrote is damaged or has another version.
    #[error("read {}: {reason}", path.display())]
    Broken {
        /// The file's path.
        path: PathBuf,
        /// What is wrong with the file.
        reason: &'static str,
    },
    /// Another publication or prune holds the lock.
    #[error("lock {}: another publication is in progress", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// The repository has changed since the plan was made.
    #[error("carry out the plan for {}: the repository has changed since; plan again", repository.display())]
    Changed {
        /// The directory that the plan was made for.
        repository: PathBuf,
    },
    /// The signer's public key differs from that of the plan.
    #[error("sign the repository: the signer's public key differs from that of the plan")]
    OtherKey,
    /// The signer failed.
    #[error("sign the repository")]
    Sign {
        /// The signer's error.
        source: crate::SignerError,
    },
    /// The file system reported an error.
    #[error("{action} {}", path.display())]
    System {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or directory that the action failed on.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An index could not be compressed.
    #[error("compress {index}")]
    Compress {
        /// The index's path below the generation.
        index: String,
        /// The compressor's error.
        source: io::Error,
    },
}

/// Result with a [`PublishError`].
pub type Result<T> = std::result::Result<T, PublishError>;

/// Attaches an action and a path to a system error.
pub(crate) trait During<T> {
    fn during(self, action: &'static str, path: &std::path::Path) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, action: &'static str, path: &std::path::Path) -> Result<T> {
        self.map_err(|source| PublishError::System { action, path: path.to_owned(), source })
    }
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, action: &'static str, path: &std::path::Path) -> Result<T> {
        self.map_err(io::Error::from).during(action, path)
    }
}
