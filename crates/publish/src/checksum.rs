//! Checksums of files.

use sha2::{Digest, Sha256, Sha512};

use crate::state::hexadecimal;

/// A checksum of a file, in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checksum {
    /// SHA-256, used in Debian's indexes.
    Sha256(String),
    /// SHA-512, used in pkgsrc's indexes.
    Sha512(String),
}

impl Checksum {
    /// The hexadecimal digits.
    pub fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::Sha512(digits) => digits,
        }
    }

    /// A hasher of the same kind, to compare bytes with this checksum.
    pub(crate) fn hasher(&self) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::Sha512(_) => Hasher::Sha512(Sha512::new()),
        }
    }
}

/// A checksum in progress.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    /// The hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Sha256(hash) => hexadecimal(&hash.finalize()),
            Self::Sha512(hash) => hexadecimal(&hash.finalize()),
        }
    }
}
