//! What can go wrong; every text reads after "failed to".

use std::io;
use std::path::PathBuf;

/// Why a repository could not be planned or published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A name, path or text of the input would not be safe in a repository.
    #[error("accept the {what} {value:?}: {reason}")]
    Input {
        /// Which input.
        what: &'static str,
        /// The input, shortened.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More input than any repository has.
    #[error("accept the repository: its {what} is over the limit of {limit}")]
    TooLarge {
        /// What grew.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// Two entries say the same name, version and architecture in one component.
    #[error("list {package} {version} ({architecture}) in component {component}: it is given twice")]
    Duplicate {
        /// The package's name.
        package: String,
        /// Its version.
        version: String,
        /// Its architecture; `source` for a source package.
        architecture: String,
        /// The component.
        component: String,
    },
    /// A published pool file has other content than the entry of the same path.
    #[error(
        "put {pool_path} into the pool: it holds {existing_sha256}, and the new file is {offered_sha256}"
    )]
    Conflict {
        /// Path in the repository.
        pool_path: String,
        /// SHA-256 of what is there, or of what the other entry says.
        existing_sha256: String,
        /// SHA-256 of what the entry offers.
        offered_sha256: String,
    },
    /// A file that is to be published is not what its entry says.
    #[error("publish {}: it is {found}, not {expected}", file.display())]
    FileChanged {
        /// The file.
        file: PathBuf,
        /// What the entry says: a size or a checksum.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// Something in the repository's directory was not made by this crate.
    #[error("use {} as part of the repository: {reason}", path.display())]
    Foreign {
        /// What is in the way.
        path: PathBuf,
        /// Why it cannot be used.
        reason: &'static str,
    },
    /// A file that this crate wrote is not as it was.
    #[error("read {}: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another publication or prune holds the repository.
    #[error("lock {}: another publication is at work", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// The repository is not what it was when the plan was made.
    #[error("carry out the plan for {}: the repository changed since; plan again", repository.display())]
    Changed {
        /// The repository.
        repository: PathBuf,
    },
    /// The signer's public key is not the one that was planned with.
    #[error("sign the repository: the signer's public key is not the planned one")]
    OtherKey,
    /// The signer said no.
    #[error("sign the repository")]
    Sign {
        /// What the signer said.
        source: crate::SignerError,
    },
    /// The file system said no.
    #[error("{action} {}", path.display())]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Compressing an index failed.
    #[error("compress {index}")]
    Compress {
        /// The index's path below the generation.
        index: String,
        /// What the compressor said.
        source: io::Error,
    },
}

/// The result of this crate's functions.
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
