//! Errors of reading a `.deb`; every text reads after "failed to".

use std::io;
use std::path::PathBuf;

use crate::archive::ArchiveProblem;

/// The reason why a `.deb` could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DebFileError {
    /// The file could not be opened or read.
    #[error("open the package file {}", path.display())]
    Read {
        /// Path of the package file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a package, is damaged, or exceeds a limit.
    #[error("read {} as a Debian package", path.display())]
    Format {
        /// Path of the package file.
        path: PathBuf,
        /// The fault in the file.
        #[source]
        problem: DebProblem,
    },
}

/// A fault in the bytes of a `.deb`; every text reads after "failed to read it:".
#[derive(Debug, thiserror::Error)]
pub enum DebProblem {
    /// The file does not begin like an `ar` archive.
    #[error("it is not an ar archive")]
    NotAnArchive,
    /// A member header is malformed.
    #[error("the member header at byte {offset} is damaged: {reason}")]
    MemberHeader {
        /// Offset of the header in the file.
        offset: u64,
        /// The faulty part of the header.
        reason: &'static str,
    },
    /// A member claims more bytes than the file has left.
    #[error("member {member} claims {claimed_bytes} bytes, but only {left_bytes} are left")]
    MemberTooLong {
        /// Member name.
        member: String,
        /// The size in its header.
        claimed_bytes: u64,
        /// The bytes that the file has left.
        left_bytes: u64,
    },
    /// More members than any package has.
    #[error("it has more than {limit} members")]
    TooManyMembers {
        /// Largest accepted number of members.
        limit: usize,
    },
    /// A required member is missing.
    #[error("it has no {member} member")]
    MissingMember {
        /// The missing member, without its compression suffix.
        member: &'static str,
    },
    /// A different member than the expected one.
    #[error("it has the member {found} in place of {expected}")]
    UnexpectedMember {
        /// Name of the actual member.
        found: String,
        /// The member that belongs there.
        expected: &'static str,
    },
    /// A member uses an unsupported compression.
    #[error("member {member} has an unsupported compression")]
    UnsupportedCompression {
        /// Member name.
        member: String,
    },
    /// The format's version is not 2.
    #[error("its format version is {found:?}, not 2")]
    FormatVersion {
        /// The content of `debian-binary`, shortened.
        found: String,
    },
    /// One of its archives is invalid.
    #[error(transparent)]
    Archive(#[from] ArchiveProblem),
    /// The control archive has no `control` file, or two.
    #[error("its control archive has {count} control files")]
    ControlFileCount {
        /// Number of control files found.
        count: usize,
    },
    /// The control file is not UTF-8, which Policy requires.
    #[error("its control file is not UTF-8")]
    ControlNotText,
    /// The control file has no `Version`, or an empty one.
    #[error("its control file has no version")]
    NoVersion,
}
