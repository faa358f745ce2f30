//! Rebuild numbers, ignored wherever a package names its own version.
//!
//! Each rebuild of a package from the same source gets a higher number (`1.0+bk1`, `1.0+bk2`), and a native package
//! carries it into names and texts: `tool-1.0+bk2.egg-info`, `Version: 1.0+bk2`. Only the number in the package's
//! own version is ignored, and only where the whole version appears: every other byte counts.

use memchr::memmem;
use std::borrow::Cow;

/// The versions whose numbers are ignored. Empty if the file does not come from a rebuild.
#[derive(Debug, Default, Clone)]
pub(crate) struct Numbers {
    versions: Vec<Version>,
}

#[derive(Debug, Clone)]
struct Version {
    /// The version with its number.
    text: Vec<u8>,
    /// Length without the number.
    kept_bytes: usize,
}

impl Numbers {
    /// Takes versions (such as `1.0+bk2`), each with the number of digits to ignore (1).
    pub(crate) fn new(versions: impl IntoIterator<Item = (String, usize)>) -> Self {
        let mut numbers = Self::default();
        for (version, digits) in versions {
            let text = version.into_bytes();
            if numbers.versions.iter().all(|other| other.text != text) {
                numbers.versions.push(Version { kept_bytes: text.len() - digits, text });
            }
        }
        numbers
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Bytes without these numbers.
    pub(crate) fn without<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.versions.iter().all(|version| memmem::find(bytes, &version.text).is_none()) {
            return Cow::Borrowed(bytes);
        }
        let mut kept = Vec::with_capacity(bytes.len());
        let mut filter = self.filter();
        filter.push(bytes, &mut |piece| kept.extend_from_slice(piece));
        filter.finish(&mut |piece| kept.extend_from_slice(piece));
        Cow::Owned(kept)
    }

    /// Like [`Numbers::without`], for bytes that arrive in pieces.
    pub(crate) fn filter(&self) -> Filter<'_> {
        Filter { numbers: self, pending: Vec::new(), passed: 0 }
    }

    /// The position of the first version in `bytes` at or after `from` that is not part of a longer one, and that
    /// version.
    fn find(&self, bytes: &[u8], from: usize) -> Option<(usize, &Version)> {
        let places = self.versions.iter().filter_map(|version| {
            let mut begin = from;
            loop {
                let at = begin + memmem::find(&bytes[begin..], &version.text)?;
                let is_longer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
                let before = at.checked_sub(1).map(|before| &bytes[before]);
                let is_within = is_longer(before) || before == Some(&b'.');
                if !is_within && !is_longer(bytes.get(at + version.text.len())) {
                    return Some((at, version));
                }
                begin = at + 1;
            }
        });
        places.min_by_key(|(at, _)| *at)
    }
}

/// See [`Numbers::filter`]. It holds back only as many bytes as a version is long.
pub(crate) struct Filter<'a> {
    numbers: &'a Numbers,
    pending: Vec<u8>,
    /// How much of `pending` has been passed on already; it is kept as the context before a version.
    passed: usize,
}

impl Filter<'_> {
    pub(crate) fn push(&mut self, piece: &[u8], out: &mut dyn FnMut(&[u8])) {
        // A version at the end of the bytes so far may still be the beginning of a longer one.
        let Some(held_bytes) = self.numbers.versions.iter().map(|version| version.text.len()).max() else {
            return out(piece);
        };
        self.pending.extend_from_slice(piece);
        self.pass(self.pending.len().saturating_sub(held_bytes), out);
    }

    pub(crate) fn finish(mut self, out: &mut dyn FnMut(&[u8])) {
        self.pass(self.pending.len(), out);
    }

    /// Passes on everything that begins before `end`.
    fn pass(&mut self, end: usize, out: &mut dyn FnMut(&[u8])) {
        let mut at = self.passed;
        while let Some((place, version)) =
            self.numbers.find(&self.pending, at).filter(|(place, _)| *place < end)
        {
            out(&self.pending[at..place + version.kept_bytes]);
            at = place + version.text.len();
        }
        if at < end {
            out(&self.pending[at..end]);
            at = end;
        }
        self.passed = at.min(1);
        self.pending.drain(..at - self.passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers() -> Numbers {
        Numbers::new([("1.0+bk2".to_owned(), 1), ("1.0-3+bk12".to_owned(), 2)])
    }

    fn without(text: &str) -> String {
        String::from_utf8(numbers().without(text.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn only_the_packages_own_number_is_removed() {
        assert_eq!(without("tool-1.0+bk2.egg-info"), "tool-1.0+bk.egg-info");
        assert_eq!(without("1.0+bk2 1:1.0-3+bk12,1.0+bk2"), "1.0+bk 1:1.0-3+bk,1.0+bk");
        for other in ["1.0+bk21", "11.0+bk2", "2.1.0+bk2", "1.0+bk3", "1.0+bk", "1.0", "2", ""] {
            assert_eq!(without(other), other);
        }
        assert_eq!(Numbers::default().without(b"1.0+bk2"), b"1.0+bk2".as_slice());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[1.0+bk2 \\-3]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..8)) {
            let whole = numbers().without(text.as_bytes()).into_owned();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let numbers = numbers();
            let (mut filter, mut kept) = (numbers.filter(), Vec::new());
            for pair in cuts.windows(2) {
                filter.push(&text.as_bytes()[pair[0]..pair[1]], &mut |piece| kept.extend_from_slice(piece));
            }
            filter.finish(&mut |piece| kept.extend_from_slice(piece));
            prop_assert_eq!(kept, whole);
        }
    }
}
