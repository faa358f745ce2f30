//! The binary packages that the yard's repository offers now, as its indexes say.
//!
//! New outputs are judged by it: their versions must be higher, and a name stays with the source that publishes it.
//! The repository is asked and not the yard's store, because machines install from the repository, and because it is
//! still there when the store is lost.

use super::deb822::{self, Stanza};
use std::collections::HashMap;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Published {
    binaries: HashMap<String, PublishedBinary>,
}

/// A published binary package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedBinary {
    /// Its version, with the number of the rebuild.
    pub version: String,
    /// The source that made it.
    pub source: String,
    /// The version of that source, without the number of a rebuild where the suffix of the yard is known.
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

    /// The binary package of this name.
    pub fn get(&self, name: &str) -> Option<&PublishedBinary> {
        self.binaries.get(name)
    }

    /// All binary packages, in no order.
    pub fn all(&self) -> impl Iterator<Item = (&str, &PublishedBinary)> {
        self.binaries.iter().map(|(name, binary)| (name.as_str(), binary))
    }

    /// The highest number of a rebuild that is published of this version of a source; 0 where there is none. A binary
    /// package with a version of its own counts for every version of its source: its next one may have the same base.
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
    /// None where a field is missing.
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

/// The name and the version of the source in the field `Source`: `gcc-defaults (1.203)`.
pub(super) fn maker<'a>(stanza: &Stanza<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let Some(field) = stanza.get("Source") else { return (None, None) };
    let name = field.split([' ', '\t', '\n', '(']).next();
    let version = field.split_once('(').map(|(_, rest)| rest.trim_end().trim_end_matches(')').trim());
    (name, version)
}

/// A version without the number of a rebuild, and that number; none where the version has no such number.
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
    fn the_number_of_a_rebuild_is_that_of_the_same_recipe() {
        let mut published = Published::default();
        published.add(INDEX, "+bk");
        assert_eq!(published.get("hello").unwrap().source_version, "2");
        assert_eq!(published.revision("zlib", "1:1.2-1", "+bk"), 3);
        assert_eq!(published.revision("zlib", "1:1.3-1", "+bk"), 0);
        assert_eq!(published.revision("hello", "2", "+bk"), 7);
        assert_eq!(published.revision("unknown", "2", "+bk"), 0);
        // Another version of the source may make `gcc` in the same version of its own.
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
