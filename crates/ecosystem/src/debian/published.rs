//! The binary packages that the yard's repository currently offers, according to its indexes.
//!
//! New outputs are checked against it: their versions must be higher, and a name stays with the source that
//! publishes it. The repository is consulted rather than the yard's store because machines install from the
//! repository, and because it survives the loss of the store.

use super::deb822::{self, Stanza};
use std::collections::HashMap;

/// The published binary packages by name; see the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Published {
    binaries: HashMap<String, PublishedBinary>,
}

/// A published binary package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedBinary {
    /// Version, including the rebuild number.
    pub version: String,
    /// Name of the source that it was built from.
    pub source: String,
    /// Version of that source, without the rebuild number if it ends with the yard's suffix.
    pub source_version: String,
}

impl Published {
    /// Adds the stanzas of a `Packages` file.
    pub fn add(&mut self, index: &str, suffix: &str) {
        for stanza in deb822::stanzas(index) {
            if let (Some(name), Some(binary)) = (stanza.get("Package"), PublishedBinary::of(&stanza, suffix))
            {
                self.binaries.insert(name.to_owned(), binary);
            }
        }
    }

    /// The published package of this name; `None` if the repository does not offer it.
    pub fn get(&self, name: &str) -> Option<&PublishedBinary> {
        self.binaries.get(name)
    }

    /// All binary packages, in arbitrary order.
    pub fn all(&self) -> impl Iterator<Item = (&str, &PublishedBinary)> {
        self.binaries.iter().map(|(name, binary)| (name.as_str(), binary))
    }

    /// The highest published rebuild number of this version of a source, or 0 if there is none. A binary package
    /// with its own version scheme counts for every version of its source: its next version may have the same base.
    pub fn revision(&self, source: &str, source_version: &str, suffix: &str) -> u32 {
        let of_source = self.binaries.values().filter(|binary| binary.source == source);
        let revisions = of_source.filter_map(|binary| {
            let (base, number) = split_number(&binary.version, suffix)?;
            let counts = base != binary.source_version || base == source_version;
            counts.then_some(number)
        });
        revisions.max().unwrap_or(0)
    }
}

impl PublishedBinary {
    /// `None` if a required field is missing.
    pub fn of(stanza: &Stanza, suffix: &str) -> Option<PublishedBinary> {
        let (name, version) = (stanza.get("Package")?, stanza.get("Version")?);
        let (source, source_version) = maker(stanza);
        let source_version = source_version.unwrap_or(version);
        let plain = split_number(source_version, suffix).map_or(source_version, |(base, _)| base);
        Some(PublishedBinary {
            version: version.to_owned(),
            source: source.unwrap_or(name).to_owned(),
            source_version: plain.to_owned(),
        })
    }
}

/// Name and version of the source in the field `Source`: `gcc-defaults (1.203)`.
pub(super) fn maker<'a>(stanza: &Stanza<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let Some(field) = stanza.get("Source") else { return (None, None) };
    let name = field.split([' ', '\t', '\n', '(']).next();
    let version = field.split_once('(').map(|(_, rest)| rest.trim_end().trim_end_matches(')').trim());
    (name, version)
}

/// Splits a version into its base and its rebuild number; `None` if it has no such number.
pub(super) fn split_number<'a>(version: &'a str, suffix: &str) -> Option<(&'a str, u32)> {
    let (base, digits) = version.rsplit_once(suffix)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((base, digits.parse().ok().filter(|_| is_number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "Package: zlib1g\nSource: zlib (1:1.2-1)\nVersion: 1:1.2-1+bk3\n\n\
Package: hello\nVersion: 2+bk7\n\n\
Package: gcc\nSource: gcc-defaults (1.203)\nVersion: 4:12.2.0-3+bk5\n\n\
Package: cpp\nSource: gcc-defaults (1.203)\nVersion: 1.203+bk5\n";

    #[test]
    fn the_rebuild_number_belongs_to_one_recipe_version() {
        let mut published = Published::default();
        published.add(INDEX, "+bk");
        assert_eq!(published.get("hello").unwrap().source_version, "2");
        assert_eq!(published.revision("zlib", "1:1.2-1", "+bk"), 3);
        assert_eq!(published.revision("zlib", "1:1.3-1", "+bk"), 0);
        assert_eq!(published.revision("hello", "2", "+bk"), 7);
        assert_eq!(published.revision("unknown", "2", "+bk"), 0);
        // A different version of the source may build `gcc` with the same version of its own.
        assert_eq!(published.revision("gcc-defaults", "1.204", "+bk"), 5);
    }

    #[test]
    fn only_the_last_suffix_with_digits_is_a_number() {
        assert_eq!(split_number("1+bk2", "+bk"), Some(("1", 2)));
        assert_eq!(split_number("1+bk2+bk10", "+bk"), Some(("1+bk2", 10)));
        for plain in ["1", "1+bk", "1+bkx", "1+bk1cross1", "1+bk99999999999"] {
            assert_eq!(split_number(plain, "+bk"), None, "{plain}");
        }
    }
}
