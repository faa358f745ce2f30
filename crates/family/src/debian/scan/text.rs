//! Copies index files from an archive into the yard, and reads them from there into memory.
//!
//! The copy is streamed: the bytes are decompressed, counted, hashed and compressed again as they pass. They are
//! converted to text only when they are read.

use kilnyard_ecosystem::debian::deb822;
use kilnyard_ecosystem::{Compression, decompress};
use kilnyard_mirror::Sha256Hex;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole_by;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::path::Path;

/// The largest index file, compressed or not: five times Debian's largest.
pub const INDEX_BYTES_MAX: u64 = 256 << 20;

/// The total size of a yard's index files, uncompressed; all of them are in memory at once. Four times Debian
/// unstable with its sources.
const INDEXES_BYTES_MAX: u64 = 512 << 20;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The compression level of our own copies: fast to read, and half as large again as xz.
const ZSTD_LEVEL: i32 = 1;

/// Why an index file of the yard cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It unpacks to too much.
    #[error("it has more than {INDEX_BYTES_MAX} bytes")]
    TooLong,
    /// Error of the operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Decompresses an index file and stores our copy at `target` atomically. `expected` is the hash of the uncompressed
/// file, if the archive lists it.
pub fn keep(fetched: &Path, suffix: &str, expected: Option<&Sha256Hex>, target: &Path) -> Result<()> {
    let compression = Compression::of_suffix(suffix).unwrap_or(Compression::None);
    let mut file = fs_err::File::open(fetched).context(Kind::Machine, "open the fetched file")?;
    write_whole_by(target, |out| {
        let mut unpacked = decompress(&mut file, compression, INDEX_BYTES_MAX)?;
        let mut packed = zstd::Encoder::new(out, ZSTD_LEVEL)?;
        let mut hash = Sha256::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match unpacked.read(&mut chunk)? {
                0 => break,
                count => {
                    hash.update(&chunk[..count]);
                    packed.write_all(&chunk[..count])?;
                }
            }
        }
        packed.finish()?;
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        match expected {
            Some(expected) if expected.as_str() != hash => {
                Err(io::Error::other(format!("its SHA-256 is {hash}, but the Release file says {expected}")))
            }
            _ => Ok(()),
        }
    })
}

/// Reads index files, with one limit on their total size.
pub struct Reader<'a> {
    yard: &'a Yard,
    left_bytes: u64,
}

impl<'a> Reader<'a> {
    /// A reader of the files in the yard's `index`.
    pub fn new(yard: &'a Yard) -> Reader<'a> {
        Reader { yard, left_bytes: INDEXES_BYTES_MAX }
    }

    /// Reads and decompresses an index file of the yard.
    pub fn read(&mut self, name: &str) -> Result<String> {
        let bytes = unpacked(&self.yard.path("index").join(name))
            .context(Kind::Machine, format!("read the index {name}"))
            .map_err(|error| {
                error.hint(Remedy::command("clean --index").then(" && ").then_command("scan"))
            })?;
        self.left_bytes = self.left_bytes.checked_sub(bytes.len() as u64).ok_or_else(|| {
            let message =
                format!("the indexes of this yard have more than {INDEXES_BYTES_MAX} bytes in total");
            Error::new(Kind::Machine, message).hint("fewer suites or components in kilnyard.toml")
        })?;
        Ok(deb822::text_of(bytes))
    }
}

pub fn unpacked(path: &Path) -> std::result::Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    let decoder = zstd::Decoder::new(fs_err::File::open(path)?)?;
    decoder.take(INDEX_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > INDEX_BYTES_MAX { Err(Unreadable::TooLong) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xz(bytes: impl Read) -> Vec<u8> {
        let mut packed = Vec::new();
        liblzma::read::XzEncoder::new(bytes, 1).read_to_end(&mut packed).unwrap();
        packed
    }

    #[test]
    fn a_file_that_unpacks_beyond_the_limit_is_rejected_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (fetched, target) = (folder.path().join("Packages.xz"), folder.path().join("Packages.zst"));
        fs_err::write(&fetched, xz(io::repeat(0xff).take(INDEX_BYTES_MAX + 1))).unwrap();
        let error = keep(&fetched, ".xz", None, &target).unwrap_err().to_string();
        assert!(error.contains("more than the limit of 268435456 bytes"), "{error}");
        assert!(!target.exists());
    }

    #[test]
    fn invalid_utf8_is_kept_and_read_as_text_of_the_same_length() {
        let folder = tempfile::tempdir().unwrap();
        let (fetched, target) = (folder.path().join("Packages"), folder.path().join("Packages.zst"));
        fs_err::write(&fetched, b"Package: a\nMaintainer: J\xfcrgen\n").unwrap();
        keep(&fetched, "", None, &target).unwrap();
        assert_eq!(unpacked(&target).unwrap(), b"Package: a\nMaintainer: J\xfcrgen\n");
        assert_eq!(deb822::text_of(unpacked(&target).unwrap()), "Package: a\nMaintainer: J?rgen\n");
        let error = keep(&fetched, "", Some(&Sha256Hex::of(b"other")), &target).unwrap_err().to_string();
        assert!(error.contains("the Release file says"), "{error}");
    }
}
