//! `SHA512`: checksums of a folder's files, in the format of `sha512sum --tag` and pkgsrc's `digest`. A signed package has a line
//! of the same form with a tag of its own, and the digest of what its signature signs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Checksum;

/// The tag of a signed package.
const PKG_HASH: &str = "PKG_HASH";

/// Checksums by file name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checksums(BTreeMap<String, Checksum>);

impl Checksums {
    pub(super) fn insert(&mut self, name: &str, checksum: Checksum) {
        self.0.insert(name.to_owned(), checksum);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Checksum> {
        self.0.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Checksum)> {
        self.0.iter().map(|(name, checksum)| (name.as_str(), checksum))
    }

    /// Parses a list of checksums. Lines that this module would not write are ignored.
    pub(super) fn parse(text: &str) -> Self {
        let of_line = |line: &str| {
            let (tag, rest) = line.split_once(" (")?;
            let (name, digits) = rest.split_once(") = ")?;
            let checksum = match tag {
                "SHA512" => Checksum::Sha512(digits.to_owned()),
                PKG_HASH => Checksum::PkgHash(digits.to_owned()),
                _ => return None,
            };
            Some((name.to_owned(), checksum))
        };
        Self(text.lines().filter_map(of_line).collect())
    }

    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, checksum) in &self.0 {
            let tag = if matches!(checksum, Checksum::PkgHash(_)) { PKG_HASH } else { "SHA512" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{tag} ({name}) = {}", checksum.digits());
        }
        text
    }
}
