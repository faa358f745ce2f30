//! The canonical form of a package, from which its content digest is computed.
//!
//! Every piece is written with a tag and its length, so that shifting bytes from one piece to the next changes the
//! form.

use sha2::{Digest, Sha256};

use crate::hex;

pub(crate) struct Canonical {
    hash: Sha256,
}

impl Canonical {
    /// `form` identifies the version of the canonical form; changing it changes every digest.
    pub(crate) fn new(form: &[u8]) -> Self {
        let mut canonical = Self { hash: Sha256::new() };
        canonical.literal(form);
        canonical
    }

    /// Adds bytes unchanged.
    pub(crate) fn literal(&mut self, bytes: &[u8]) {
        self.hash.update(b"L");
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }

    /// Marks the place of a value that is left out.
    pub(crate) fn placeholder(&mut self) {
        self.hash.update(b"V");
    }

    pub(crate) fn finish(self) -> String {
        hex(&self.hash.finalize())
    }
}
