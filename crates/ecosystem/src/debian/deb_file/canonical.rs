//! The canonical form that the content digest is taken over.
//!
//! Every piece is written with a tag and its length, so two different packages cannot have the same form by shifting
//! bytes from one piece to the next.

use sha2::{Digest, Sha256};

use crate::hex;

/// A change of the form changes this line, and with it every digest.
const FORM: &[u8] = b"kilnyard deb content 1";

/// Collects the canonical form.
pub(super) struct Canonical {
    hash: Sha256,
    own_version: String,
}

impl Canonical {
    pub(super) fn new(own_version: &str) -> Self {
        let mut canonical = Self { hash: Sha256::new(), own_version: own_version.to_owned() };
        canonical.literal(FORM);
        canonical
    }

    /// Bytes as they are.
    pub(super) fn literal(&mut self, bytes: &[u8]) {
        self.hash.update(b"L");
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }

    /// The mark in the place of a value that is left out.
    pub(super) fn placeholder(&mut self) {
        self.hash.update(b"V");
    }

    /// Bytes with the mark in the place of every occurrence of the own version.
    pub(super) fn masked(&mut self, bytes: &[u8]) {
        let version = self.own_version.clone();
        let mut begin = 0;
        for at in occurrences(bytes, version.as_bytes()) {
            self.literal(&bytes[begin..at]);
            self.placeholder();
            begin = at + version.len();
        }
        self.literal(&bytes[begin..]);
    }

    pub(super) fn finish(self) -> String {
        hex(&self.hash.finalize())
    }
}

/// Where `word` stands in `bytes` as a whole word, left to right, without overlap.
fn occurrences(bytes: &[u8], word: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    if word.is_empty() {
        return found;
    }
    let mut at = 0_usize;
    while let Some(end) = at.checked_add(word.len()).filter(|end| *end <= bytes.len()) {
        let is_whole = (at == 0 || !belongs_to_a_version(bytes[at - 1]))
            && bytes.get(end).is_none_or(|byte| !belongs_to_a_version(*byte));
        if is_whole && &bytes[at..end] == word {
            found.push(at);
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

fn belongs_to_a_version(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'~' | b':' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(version: &str, text: &str) -> String {
        let mut canonical = Canonical::new(version);
        canonical.masked(text.as_bytes());
        canonical.finish()
    }

    #[test]
    fn only_whole_words_are_occurrences() {
        assert_eq!(occurrences(b"libfoo1 (= 1), 1.0, 1~, +1, 1:1 1", b"1"), [11, 32]);
        assert_eq!(occurrences(b"1.0-1+b2", b"1.0-1+b2"), [0]);
        assert_eq!(occurrences(b"(=1.0-1)", b"1.0-1"), [2]);
        assert_eq!(occurrences(b"abc", b""), [] as [usize; 0]);
        assert_eq!(occurrences(b"", b"1"), [] as [usize; 0]);
    }

    #[test]
    fn masking_forgets_the_version_and_nothing_else() {
        assert_eq!(masked("1", "a (= 1), libb1"), masked("2", "a (= 2), libb1"));
        assert_ne!(masked("1", "a (= 1), libb1"), masked("2", "a (= 2), libb2"));
        assert_ne!(masked("1", "a (= 1)"), masked("1", "a (= 2)"));
    }
}
