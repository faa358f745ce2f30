//! Stanzas of `Field: value` lines (deb822(5)), read without copying.
//!
//! An archive's `Packages` and `Sources` are read whole and walked in place: a [`Stanza`] is a slice of the text,
//! and a field is located on request. Folded and multi-line values keep their line breaks; [`unfold`] joins them
//! into one line. [`text_of`] makes a text from bytes that need not be UTF-8.

use kilnyard_model::text;
use std::collections::HashSet;

/// Converts bytes to text in place: each byte that is not part of valid UTF-8 becomes a `?`. The length stays the
/// same, whereas `from_utf8_lossy` would make three bytes of one. Names, versions and relations are ASCII; a
/// maintainer's name in another encoding must not stop anything, and a `?` is not part of a valid name, version or
/// path.
pub fn text_of(mut bytes: Vec<u8>) -> String {
    let mut start = 0;
    while let Err(error) = std::str::from_utf8(&bytes[start..]) {
        let bad = start + error.valid_up_to();
        let end = error.error_len().map_or(bytes.len(), |length| bad + length);
        bytes[bad..end].fill(b'?');
        start = end;
    }
    // The bytes are valid now; this checks once more rather than trusting it.
    String::from_utf8(bytes).unwrap_or_default()
}

/// One stanza: a run of lines without an empty line between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stanza<'a> {
    text: &'a str,
}

impl<'a> Stanza<'a> {
    /// Takes a text as one stanza, whatever it contains.
    pub fn new(text: &'a str) -> Self {
        Stanza { text }
    }

    /// The stanza as it appears in the file, without the empty line after it.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The fields in order: name and raw value (leading whitespace removed, folded lines kept).
    pub fn fields(&self) -> Fields<'a> {
        Fields { rest: self.text }
    }

    /// The value of a field; names are case-insensitive (deb822(5)).
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.fields().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// A fault that could make two readers interpret the stanza differently: it breaks the rules of deb822(5) and
    /// Policy 5.1 on field names, on unique fields, or that only an empty line ends a stanza. The text reads after
    /// the name of the file with the stanza.
    pub fn fault(&self) -> Option<String> {
        let mut names = HashSet::new();
        for line in self.text.trim_end_matches('\n').split('\n') {
            if line.trim().is_empty() {
                return Some("has an empty line within its fields".to_owned());
            }
            if line.contains(['\0', '\r']) {
                return Some("has a control character in its fields".to_owned());
            }
            if line.starts_with([' ', '\t']) && !names.is_empty() {
                continue;
            }
            let name = line.split_once(':').map_or("", |(name, _)| name);
            if !is_field_name(name) {
                return Some(format!("has the line `{}`, which is not a field", text::line(line)));
            }
            if !names.insert(name.to_ascii_lowercase()) {
                return Some(format!("has the field {name} twice"));
            }
        }
        None
    }
}

/// Printable, without blanks or colons, and not the start of a comment or a signature.
fn is_field_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(['#', '-']) && name.bytes().all(|b| b.is_ascii_graphic())
}

/// Iterator returned by [`Stanza::fields`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let bytes = self.rest.as_bytes();
            let mut end = line_end(bytes, 0);
            while bytes.get(end).is_some_and(|b| *b == b' ' || *b == b'\t') {
                end = line_end(bytes, end);
            }
            let (field, rest) = self.rest.split_at(end);
            self.rest = rest;
            if field.starts_with('#') {
                continue;
            }
            // A colon in a continuation line does not end a name.
            if let Some((name, value)) = field.split_once(':').filter(|(name, _)| !name.contains('\n')) {
                return Some((name.trim(), value.trim_matches([' ', '\t', '\n', '\r'])));
            }
        }
    }
}

/// The offset just after the line that begins at `start`.
fn line_end(bytes: &[u8], start: usize) -> usize {
    match bytes[start..].iter().position(|b| *b == b'\n') {
        Some(position) => start + position + 1,
        None => bytes.len(),
    }
}

/// The stanzas of a text, in order; empty ones are skipped.
pub fn stanzas(text: &str) -> Stanzas<'_> {
    Stanzas { rest: text }
}

/// Iterator returned by [`stanzas`].
#[derive(Clone, Debug)]
pub struct Stanzas<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Stanzas<'a> {
    type Item = Stanza<'a>;

    fn next(&mut self) -> Option<Stanza<'a>> {
        self.rest = self.rest.trim_start_matches(['\n', '\r']);
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.find("\n\n").map_or(self.rest.len(), |position| position + 1);
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(Stanza { text })
    }
}

/// A folded value as one line.
pub fn unfold(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fold_and_compare_without_case() {
        let text =
            "Package: a\nDepends: b,\n c (>= 1),\n\td\n# comment\nDescription: x\n .\n y\n\n\nPackage: e\n";
        let all: Vec<Stanza> = stanzas(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].get("package"), Some("a"));
        assert_eq!(unfold(all[0].get("Depends").unwrap()), "b, c (>= 1), d");
        assert_eq!(all[0].get("Description"), Some("x\n .\n y"));
        assert_eq!(all[1].get("Package"), Some("e"));
        assert_eq!(all[1].get("Depends"), None);
    }

    #[test]
    fn bytes_become_a_text_of_the_same_length() {
        assert_eq!(text_of("Maintainer: Jürgen\n".into()), "Maintainer: Jürgen\n");
        assert_eq!(text_of(b"Maintainer: J\xfcrgen\n".to_vec()), "Maintainer: J?rgen\n");
        assert_eq!(text_of(b"a\xe2\x82".to_vec()), "a??");
        assert_eq!(text_of(b"\xe2\x82\xffa\xf0".to_vec()), "???a?");
        let bytes = vec![0xff; 100_000];
        assert_eq!(text_of(bytes).len(), 100_000);
        assert_eq!(text_of(Vec::new()), "");
    }

    #[test]
    fn lines_without_a_colon_are_skipped() {
        let stanza = Stanza::new("nonsense\nA: 1\n continued\nmore nonsense\nB:2");
        assert_eq!(stanza.fields().collect::<Vec<_>>(), vec![("A", "1\n continued"), ("B", "2")]);
        assert_eq!(stanzas("").count(), 0);
        assert_eq!(stanzas("\n\n\n").count(), 0);
    }

    #[test]
    fn a_colon_in_a_continuation_line_does_not_make_a_field() {
        let stanza = Stanza::new("nonsense\n Version: 9\nPackage: a\n");
        assert_eq!(stanza.fields().collect::<Vec<_>>(), vec![("Package", "a")]);
    }

    #[test]
    fn ambiguous_stanzas_are_faults() {
        assert_eq!(Stanza::new("Package: a\nDescription: b\n c: d\n .\nX-1: \n").fault(), None);
        for (bad, reason) in [
            ("Package: a\nVersion: 1\npackage: b\n", "the field package twice"),
            ("Package: a\n\nPackage: b\n", "an empty line"),
            ("Package: a\n \nVersion: b\n", "an empty line"),
            ("", "an empty line"),
            ("Package: a\n\u{b}Version: 1", "not a field"),
            ("Package: a\nFilename\u{b}: x", "not a field"),
            ("Package: a\nFilename : x", "not a field"),
            ("Package: a\n#: x", "not a field"),
            (" Package: a", "not a field"),
            ("Package: a\nnonsense", "not a field"),
            ("Package: a\r\nVersion: 1", "control character"),
        ] {
            let fault = Stanza::new(bad).fault().unwrap();
            assert!(fault.contains(reason), "{bad:?}: {fault}");
        }
    }
}
