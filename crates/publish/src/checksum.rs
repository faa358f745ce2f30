//! Checksums of files.

use sha2::{Digest, Sha256, Sha512};
use std::io::{self, Read};
use std::path::Path;

use crate::packages::signed::SignedPackage;
use crate::state::hexadecimal;

/// A checksum of a file, in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checksum {
    /// SHA-256, used in Debian's indexes.
    Sha256(String),
    /// SHA-512, used in pkgsrc's indexes.
    Sha512(String),
    /// The SHA-256 of the text `+PKG_HASH` of a signed package, which names the hashes of its blocks.
    PkgHash(String),
}

impl Checksum {
    /// The hexadecimal digits.
    pub fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::Sha512(digits) | Self::PkgHash(digits) => digits,
        }
    }

    /// Whether bytes have this checksum.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish() == self.digits()
    }

    /// Whether a file has this checksum. One that cannot be read has none.
    pub fn is_of_file(&self, path: &Path) -> bool {
        let Ok(mut file) = fs_err::File::open(path) else { return false };
        let (mut hasher, mut part) = (self.hasher(), vec![0; 256 << 10]);
        loop {
            match file.read(&mut part) {
                Ok(0) => return hasher.finish() == self.digits(),
                Ok(count) => hasher.update(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// A hasher of the same kind, to compare bytes with this checksum.
    pub(crate) fn hasher(&self) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::Sha512(_) => Hasher::Sha512(Sha512::new()),
            Self::PkgHash(_) => Hasher::PkgHash(Box::new(SignedPackage::new())),
        }
    }
}

/// A checksum in progress.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
    PkgHash(Box<SignedPackage>),
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
            Self::PkgHash(package) => package.update(bytes),
        }
    }

    /// The hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Sha256(hash) => hexadecimal(&hash.finalize()),
            Self::Sha512(hash) => hexadecimal(&hash.finalize()),
            Self::PkgHash(package) => package.finish(),
        }
    }
}
