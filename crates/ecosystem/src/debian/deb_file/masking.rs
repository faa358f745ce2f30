//! The canonical form of a package, with its own version masked.

use crate::archive::{Canonical, Numbers};

/// Identifies the form. Change this when the form changes; it changes every digest.
const FORM: &[u8] = b"kilnyard deb content 1";

pub(super) struct Masking {
    pub(super) canonical: Canonical,
    own_version: Vec<u8>,
    numbers: Numbers,
}

impl Masking {
    pub(super) fn new(own_version: &str, numbers: &Numbers) -> Self {
        let own_version = numbers.without(own_version.as_bytes()).into_owned();
        Self { canonical: Canonical::new(FORM), own_version, numbers: numbers.clone() }
    }

    /// Adds bytes without rebuild numbers.
    pub(super) fn unnumbered(&mut self, bytes: &[u8]) {
        self.canonical.literal(&self.numbers.without(bytes));
    }

    /// Adds bytes with a placeholder for every occurrence of the package's own version.
    pub(super) fn masked(&mut self, bytes: &[u8]) {
        let bytes = self.numbers.without(bytes);
        let mut begin = 0;
        for at in occurrences(&bytes, &self.own_version) {
            self.canonical.literal(&bytes[begin..at]);
            self.canonical.placeholder();
            begin = at + self.own_version.len();
        }
        self.canonical.literal(&bytes[begin..]);
    }
}

/// Offsets of `word` in `bytes` as a whole word, left to right, without overlap.
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
        let mut masking = Masking::new(version, &Numbers::default());
        masking.masked(text.as_bytes());
        masking.canonical.finish()
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
    fn masking_hides_the_version_and_nothing_else() {
        assert_eq!(masked("1", "a (= 1), libb1"), masked("2", "a (= 2), libb1"));
        assert_ne!(masked("1", "a (= 1), libb1"), masked("2", "a (= 2), libb2"));
        assert_ne!(masked("1", "a (= 1)"), masked("1", "a (= 2)"));
    }
}
