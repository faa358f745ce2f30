//! Hashes files on disk.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};

/// How much is read from a file at a time; more is not faster.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// Hashes a file from its current position to its end, starting from the hasher's state. Returns the number of bytes.
pub(crate) fn hash_rest(file: &mut File, hasher: &mut Sha256) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut count = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(count),
            Ok(length) => {
                hasher.update(&buffer[..length]);
                count += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
