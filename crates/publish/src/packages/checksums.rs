//! `SHA512`: checksums of a folder's files, in the format of `sha512sum --tag` and pkgsrc's `digest`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Checksums by file name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checksums(BTreeMap<String, String>);

impl Checksums {
    pub(super) fn insert(&mut self, name: &str, sha512: &str) {
        self.0.insert(name.to_owned(), sha512.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, sha512)| (name.as_str(), sha512.as_str()))
    }

    /// Parses a list of checksums. Lines that this module would not write are ignored.
    pub(super) fn parse(text: &str) -> Self {
        let of_line = |line: &str| {
            let (name, sha512) = line.strip_prefix("SHA512 (")?.split_once(") = ")?;
            Some((name.to_owned(), sha512.to_owned()))
        };
        Self(text.lines().filter_map(of_line).collect())
    }

    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, sha512) in &self.0 {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "SHA512 ({name}) = {sha512}");
        }
        text
    }
}
