//! What can go wrong when a report is written. Each text reads after "failed to".

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a report could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WebError {
    /// The folder of the report could not be made.
    #[error("create the report folder `{}`", path.display())]
    CreateFolder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The report could not be put into JSON.
    #[error("put the report into JSON for `{}`", path.display())]
    Encode {
        /// The file that it was for.
        path: PathBuf,
        /// What the encoder said.
        source: serde_json::Error,
    },
    /// A file could not be written.
    #[error("write `{}`", path.display())]
    WriteFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A finished file could not be put in its place.
    #[error("rename `{}` to `{}`", from.display(), to.display())]
    Rename {
        /// The finished file.
        from: PathBuf,
        /// The place it was for.
        to: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
