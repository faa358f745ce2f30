//! Errors of reading an archive; every text reads after "failed to read it:".

use std::io;

/// A fault in the bytes of an archive, the same for packages of all families.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveProblem {
    /// Reading or decompressing failed; a truncated or corrupt compressed member also shows up here.
    #[error("its {member} is damaged or could not be read")]
    Content {
        /// Archive member, without its compression suffix.
        member: &'static str,
        /// The error of the system, the decompressor or the tar reader.
        source: io::Error,
    },
    /// Bytes remain in a member after its compressed stream ended.
    #[error("its {member} has {count_bytes} bytes after its end")]
    TrailingBytes {
        /// Archive member, without its compression suffix.
        member: &'static str,
        /// Number of excess bytes.
        count_bytes: u64,
    },
    /// A quantity exceeds that of any real package.
    #[error("its {what} is over the limit of {limit}")]
    TooLarge {
        /// The quantity that is over its limit.
        what: &'static str,
        /// The limit, in bytes or in entries.
        limit: u64,
    },
    /// A tar entry that cannot be interpreted safely.
    #[error("its {member} has an entry {path:?} that is refused: {reason}")]
    Entry {
        /// Archive member, without its compression suffix.
        member: &'static str,
        /// The entry's path, with invalid UTF-8 replaced.
        path: String,
        /// The reason for the refusal.
        reason: &'static str,
    },
}
