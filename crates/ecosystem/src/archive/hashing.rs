//! Hashes a file while it is read for another purpose.

use std::io::{self, Read};

use sha2::Digest;

use crate::hex;

/// A reader that hashes the bytes passing through it.
pub(crate) struct Hashing<R, H> {
    inner: R,
    hash: H,
}

impl<R, H: Digest> Hashing<R, H> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hash: H::new() }
    }

    /// The hash of all bytes read, in lower-case hexadecimal, and the inner reader.
    pub(crate) fn finish(self) -> (String, R) {
        (hex(&self.hash.finalize()), self.inner)
    }
}

impl<R: Read, H: Digest> Read for Hashing<R, H> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}
