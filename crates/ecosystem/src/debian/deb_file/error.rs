//! What can be wrong with a `.deb`; every text reads after "failed to".

use std::io;
use std::path::PathBuf;

use crate::archive::ArchiveProblem;

/// Why a `.deb` could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DebFileError {
    /// The file system said no.
    #[error("open the package file {}", path.display())]
    Read {
        /// The package file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a package, is damaged, or is beyond a bound.
    #[error("read {} as a Debian package", path.display())]
    Format {
        /// The package file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: DebProblem,
    },
}

/// What is wrong with the bytes of a `.deb`; every text reads after "failed to read it:".
#[derive(Debug, thiserror::Error)]
pub enum DebProblem {
    /// The file does not begin as an `ar` archive.
    #[error("it is not an ar archive")]
    NotAnArchive,
    /// A member header is not one.
    #[error("the member header at byte {offset} is damaged: {reason}")]
    MemberHeader {
        /// Where the header begins.
        offset: u64,
        /// Which part of it is wrong.
        reason: &'static str,
    },
    /// A member claims more bytes than the file has left.
    #[error("member {member} claims {claimed_bytes} bytes where {left_bytes} are left")]
    MemberTooLong {
        /// The member's name.
        member: String,
        /// What its header says.
        claimed_bytes: u64,
        /// What the file has.
        left_bytes: u64,
    },
    /// More members than any package has.
    #[error("it has more than {limit} members")]
    TooManyMembers {
        /// The bound.
        limit: usize,
    },
    /// A member that must be there is not.
    #[error("it has no {member} member")]
    MissingMember {
        /// The missing member, without its compressor's suffix.
        member: &'static str,
    },
    /// Another member where a certain one must be.
    #[error("it has the member {found} in the place of {expected}")]
    UnexpectedMember {
        /// The member's name.
        found: String,
        /// What must be there.
        expected: &'static str,
    },
    /// A member is compressed in a way that is not supported.
    #[error("member {member} is compressed in an unsupported way")]
    UnsupportedCompression {
        /// The member's name.
        member: String,
    },
    /// The format's version is not 2.
    #[error("its format version is {found:?}, not 2")]
    FormatVersion {
        /// What `debian-binary` says, shortened.
        found: String,
    },
    /// One of its archives is not as it must be.
    #[error(transparent)]
    Archive(#[from] ArchiveProblem),
    /// The control archive has no `control` file, or two.
    #[error("its control archive has {count} control files")]
    ControlFileCount {
        /// How many.
        count: usize,
    },
    /// The control file is not UTF-8, as policy demands.
    #[error("its control file is not UTF-8")]
    ControlNotText,
    /// The control file has no usable `Version`.
    #[error("its control file has no version")]
    NoVersion,
}
