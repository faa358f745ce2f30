//! What can be wrong with a package file; every text reads after "failed to".

use std::io;
use std::path::PathBuf;

use crate::archive::ArchiveProblem;

/// Why a package file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PackageFileError {
    /// The file system said no.
    #[error("open the package file {}", path.display())]
    Read {
        /// The package file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a package, is not whole, or is beyond a bound.
    #[error("read {} as a binary package", path.display())]
    Format {
        /// The package file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: PackageProblem,
    },
}

/// What is wrong with the bytes of a package file; every text reads after "failed to read it:".
#[derive(Debug, thiserror::Error)]
pub enum PackageProblem {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is an `ar` archive, as signed packages are.
    #[error(
        "it is a signed package, which is not supported: publish it unsigned, the repository is signed as a whole"
    )]
    Signed,
    /// It is packed in a way that is not supported.
    #[error("it is packed by {name}, which is not supported: set PKG_COMPRESSION to gzip, xz, zstd or none")]
    UnsupportedCompression {
        /// The packer.
        name: &'static str,
    },
    /// The archive within is not as it must be.
    #[error(transparent)]
    Archive(#[from] ArchiveProblem),
    /// The archive ends without its end mark.
    #[error("it is cut off: its archive has no end mark")]
    CutOff,
    /// A file that every package has is not there.
    #[error("it has no {name}")]
    Missing {
        /// The file.
        name: &'static str,
    },
    /// A file of the metadata is there twice, and readers would disagree.
    #[error("it has {name} twice")]
    Twice {
        /// The file.
        name: &'static str,
    },
    /// A file of the metadata stands behind other files, where the package tools do not look for it.
    #[error("its {name} stands behind the files that it installs")]
    Late {
        /// The file.
        name: &'static str,
    },
    /// A file of the metadata is no file, or its text ends at a zero byte for the package tools.
    #[error("its {name} is not text")]
    NotText {
        /// The file.
        name: &'static str,
    },
    /// The packing list names no package, or several.
    #[error("its packing list has {count} names")]
    NameCount {
        /// How many.
        count: usize,
    },
    /// The packing list's name cannot be the one of a package.
    #[error("its name {name:?} is none of a package")]
    Name {
        /// The name, shortened.
        name: String,
    },
}
