//! What the bytes of a file must be.

use sha2::{Digest, Sha256, Sha512};

use crate::state::hexadecimal;

/// A checksum of a file, in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checksum {
    /// As Debian's indexes have it.
    Sha256(String),
    /// As pkgsrc's have it.
    Sha512(String),
}

impl Checksum {
    /// The digits.
    pub fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::Sha512(digits) => digits,
        }
    }

    /// What takes in the bytes that are to be compared with it.
    pub(crate) fn hasher(&self) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::Sha512(_) => Hasher::Sha512(Sha512::new()),
        }
    }
}

/// A checksum that is being made.
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

    /// The digits.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Sha256(hash) => hexadecimal(&hash.finalize()),
            Self::Sha512(hash) => hexadecimal(&hash.finalize()),
        }
    }
}
