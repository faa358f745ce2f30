//! What a signature of a package signs: the text `+PKG_HASH`, with the SHA-512 of each block of the package (pkg_admin(1),
//! `gpg-sign-package` and `x509-sign-package`). A signed package is an `ar` archive of this text, its signature and the package.

use crate::hex;
use sha2::{Digest, Sha512};
use std::fmt::Write;
use std::io::{self, Read};

/// The size of a block in bytes: pkg_install's.
pub const BLOCK_BYTES: usize = 65_536;

/// The hexadecimal digits of the hash of a block.
const HASH_DIGITS: usize = 128;

/// The text of a package.
pub fn text(name: &str, size_bytes: u64, blocks: &[String]) -> String {
    let mut text = format!(
        "pkgsrc signature\n\nversion: 1\npkgname: {name}\nalgorithm: SHA512\nblock size: {BLOCK_BYTES}\nfile size: {size_bytes}\n\n"
    );
    for block in blocks {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{block}");
    }
    text.push_str("end pkgsrc signature\n");
    text
}

/// The hashes of blocks that were kept one after another.
pub fn split(kept: &str) -> Vec<String> {
    kept.as_bytes().chunks(HASH_DIGITS).map(|hash| String::from_utf8_lossy(hash).into_owned()).collect()
}

/// A reader that hashes each block of the bytes passing through it.
pub struct HashingBlocks<R> {
    inner: R,
    hash: Sha512,
    /// The bytes of the last block so far.
    filled: usize,
    blocks: Vec<String>,
}

impl<R> HashingBlocks<R> {
    /// Hashes what is read from `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, hash: Sha512::new(), filled: 0, blocks: Vec::new() }
    }

    /// The hashes of all blocks, the last of which may be shorter.
    pub fn finish(mut self) -> Vec<String> {
        if self.filled > 0 {
            self.blocks.push(hex(&self.hash.finalize()));
        }
        self.blocks
    }
}

impl<R: Read> Read for HashingBlocks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - self.filled));
            self.hash.update(now);
            self.filled += now.len();
            if self.filled == BLOCK_BYTES {
                self.blocks.push(hex(&self.hash.finalize_reset()));
                self.filled = 0;
            }
            rest = later;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_hashed_however_they_are_read() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        let expected: Vec<String> =
            bytes.chunks(BLOCK_BYTES).map(|block| hex(&Sha512::digest(block))).collect();
        for step in [1, 4096, BLOCK_BYTES, 150_000] {
            let mut reader = HashingBlocks::new(&bytes[..]);
            let mut buffer = vec![0; step];
            while reader.read(&mut buffer).unwrap() > 0 {}
            assert_eq!(reader.finish(), expected, "{step}");
        }
        assert!(HashingBlocks::new(&b""[..]).finish().is_empty());
        let text = text("a-1", 7, &expected[..1]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            (lines[3], lines[6], lines[8], lines.len()),
            ("pkgname: a-1", "file size: 7", &*expected[0], 10)
        );
    }
}
