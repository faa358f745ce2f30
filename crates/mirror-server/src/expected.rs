//! What the content of a file must be: its size and digest, where a list, a manifest or a path says so.

use kilnyard_model::sha256::Sha256Hex;
use sha2::{Digest, Sha256, Sha512};
use std::io::{self, Write};

/// The digest of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileDigest {
    /// SHA-256.
    Sha256(Sha256Hex),
    /// SHA-512: 128 hexadecimal digits, in lower case.
    Sha512(String),
}

/// A content that a file may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its digest.
    pub digest: FileDigest,
    /// Its size in bytes, if that is known.
    pub size: Option<u64>,
}

impl FileDigest {
    /// Reads a SHA-512.
    pub fn sha512(text: &str) -> Option<FileDigest> {
        let is_digest = text.len() == 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| FileDigest::Sha512(text.to_ascii_lowercase()))
    }
}

impl Expected {
    /// Whether its digest is a SHA-256.
    pub fn is_sha256(&self) -> bool {
        matches!(self.digest, FileDigest::Sha256(_))
    }
}

/// The encoding of files that are kept in it.
pub const ZSTD: &str = "zstd";

/// Hashes content as it arrives.
#[derive(Clone, Debug)]
pub struct Hasher {
    sha256: Sha256,
    sha512: Option<Sha512>,
    size: u64,
}

/// Hashes the content of what may be encoded.
pub enum Decoding {
    /// It is as it is.
    Plain(Box<Hasher>),
    /// It is compressed, and so far as it should be, or not.
    Zstd(Option<Box<zstd::stream::write::Decoder<'static, Hasher>>>),
}

impl Decoding {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Decoding::Plain(hasher) => hasher.update(bytes),
            Decoding::Zstd(decoder) => {
                if decoder.as_mut().is_some_and(|decoder| decoder.write_all(bytes).is_err()) {
                    *decoder = None;
                }
            }
        }
    }

    /// What the content is; of one that does not unpack, nothing that a file can be.
    pub fn finish(self) -> Found {
        match self {
            Decoding::Plain(hasher) => hasher.finish(),
            Decoding::Zstd(decoder) => {
                let whole = decoder.and_then(|mut decoder| decoder.flush().ok().map(|()| decoder));
                whole.map_or_else(Found::default, |decoder| decoder.into_inner().finish())
            }
        }
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What content is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
    /// Its SHA-512, if that was asked for.
    pub sha512: Option<String>,
    /// Its size in bytes.
    pub size: u64,
}

impl Hasher {
    /// Hashes with SHA-256, and with SHA-512 if it is wanted.
    pub fn new(with_sha512: bool) -> Hasher {
        Hasher { sha256: Sha256::new(), sha512: with_sha512.then(Sha512::new), size: 0 }
    }

    /// A hasher for content of which one of these is expected.
    pub fn of(expected: &[Expected]) -> Hasher {
        Hasher::new(expected.iter().any(|one| !one.is_sha256()))
    }

    /// The same, for content that arrives in this encoding.
    pub fn decoding(self, encoding: Option<&str>) -> Decoding {
        match encoding {
            Some(ZSTD) => Decoding::Zstd(zstd::stream::write::Decoder::new(self).ok().map(Box::new)),
            _ => Decoding::Plain(Box::new(self)),
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        if let Some(sha512) = &mut self.sha512 {
            sha512.update(bytes);
        }
        self.size += bytes.len() as u64;
    }

    /// What the content is.
    pub fn finish(self) -> Found {
        let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Found {
            sha256: text(&self.sha256.finalize()),
            sha512: self.sha512.map(|sha512| text(&sha512.finalize())),
            size: self.size,
        }
    }
}

impl Found {
    /// Whether it is one of these; also if nothing is expected.
    pub fn is_one_of(&self, expected: &[Expected]) -> bool {
        expected.is_empty() || expected.iter().any(|one| self.is(one))
    }

    fn is(&self, expected: &Expected) -> bool {
        expected.size.is_none_or(|size| size == self.size)
            && match &expected.digest {
                FileDigest::Sha256(digest) => digest.as_str() == self.sha256,
                FileDigest::Sha512(digest) => Some(digest) == self.sha512.as_ref(),
            }
    }
}
