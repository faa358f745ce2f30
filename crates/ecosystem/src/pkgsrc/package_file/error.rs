//! Errors of reading a package file; every text reads after "failed to".

use std::io;
use std::path::PathBuf;

use crate::archive::ArchiveProblem;

/// The reason why a package file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PackageFileError {
    /// The file could not be opened or read.
    #[error("open the package file {}", path.display())]
    Read {
        /// Path of the package file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a package, is incomplete, or exceeds a limit.
    #[error("read {} as a binary package", path.display())]
    Format {
        /// Path of the package file.
        path: PathBuf,
        /// The fault in the file.
        #[source]
        problem: PackageProblem,
    },
}

/// A fault in the bytes of a package file; every text reads after "failed to read it:".
#[derive(Debug, thiserror::Error)]
pub enum PackageProblem {
    /// The file has no bytes.
    #[error("it is empty")]
    Empty,
    /// The file is an `ar` archive, like signed packages.
    #[error("signed packages are not supported: publish it unsigned; the repository is signed as a whole")]
    Signed,
    /// The file has an unsupported compression.
    #[error(
        "it is compressed with {name}, which is not supported: set PKG_COMPRESSION to gzip, xz, zstd or none"
    )]
    UnsupportedCompression {
        /// Name of the compressor.
        name: &'static str,
    },
    /// The archive within is invalid.
    #[error(transparent)]
    Archive(#[from] ArchiveProblem),
    /// The archive has no end marker.
    #[error("it is truncated: its archive has no end marker")]
    CutOff,
    /// A file that every package has is missing.
    #[error("it has no {name}")]
    Missing {
        /// Name of the missing file.
        name: &'static str,
    },
    /// A metadata file occurs twice, and readers would disagree on which one counts.
    #[error("it has {name} twice")]
    Twice {
        /// Name of the duplicate file.
        name: &'static str,
    },
    /// A metadata file follows other files, where the package tools do not find it.
    #[error("its {name} comes after the files that it installs")]
    Late {
        /// Name of the misplaced file.
        name: &'static str,
    },
    /// A metadata file is not a regular file, or contains a zero byte, at which the package tools would end the
    /// text.
    #[error("its {name} is not text")]
    NotText {
        /// Name of the faulty file.
        name: &'static str,
    },
    /// The packing list has no `@name`, or several.
    #[error("its packing list has {count} names")]
    NameCount {
        /// Number of names found.
        count: usize,
    },
    /// The packing list has an invalid package name.
    #[error("its name {name:?} is not a valid package name")]
    Name {
        /// The name, shortened.
        name: String,
    },
}
