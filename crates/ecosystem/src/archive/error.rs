//! What can be wrong with an archive; every text reads after "failed to read it:".

use std::io;

/// What is wrong with the bytes of an archive, whichever family's package it is.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveProblem {
    /// Reading or decompressing failed; this is also how a truncated or corrupt compressed member shows.
    #[error("its {member} is damaged or could not be read")]
    Content {
        /// The member, without its compressor's suffix.
        member: &'static str,
        /// What the system, the decompressor or the tar reader said.
        source: io::Error,
    },
    /// Bytes remain in a member after its compressed stream ended.
    #[error("its {member} has {count_bytes} bytes after its end")]
    TrailingBytes {
        /// The member, without its compressor's suffix.
        member: &'static str,
        /// How many.
        count_bytes: u64,
    },
    /// Something is larger than any real package's.
    #[error("its {what} is over the limit of {limit}")]
    TooLarge {
        /// What grew.
        what: &'static str,
        /// The bound, in bytes or in entries.
        limit: u64,
    },
    /// A tar entry says something that cannot be understood safely.
    #[error("its {member} has an entry {path:?} that is refused: {reason}")]
    Entry {
        /// The member, without its compressor's suffix.
        member: &'static str,
        /// The entry's path, lossily.
        path: String,
        /// Why it is refused.
        reason: &'static str,
    },
}
