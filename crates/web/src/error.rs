//! Errors of writing a report. Each message completes "failed to".

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a report could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WebError {
    /// The report's folder could not be created.
    #[error("create the report folder `{}`", path.display())]
    CreateFolder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The report could not be encoded as JSON.
    #[error("encode the report as JSON for `{}`", path.display())]
    Encode {
        /// The file that it was meant for.
        path: PathBuf,
        /// The encoder's error.
        source: serde_json::Error,
    },
    /// A file could not be written.
    #[error("write `{}`", path.display())]
    WriteFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A finished file could not be renamed to its final name.
    #[error("rename `{}` to `{}`", from.display(), to.display())]
    Rename {
        /// The finished file.
        from: PathBuf,
        /// The final name.
        to: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
