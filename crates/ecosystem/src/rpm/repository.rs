//! The lists of a repository, and `repomd.xml`, which names them by digest. Both follow from the packages alone, so a signer
//! makes them again and compares.

use super::entry::Entry;
use super::metadata::{self, MetadataError};
use crate::{Compression, decompress, hex};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};

/// The folder of the lists in a repository.
pub const FOLDER: &str = "repodata";
/// The file that names the lists.
pub const TOP: &str = "repomd.xml";
/// The longest list that is read back.
const LIST_BYTES_MAX: u64 = 2 << 30;
/// gzip's default; every client reads it.
const GZIP_LEVEL: u32 = 6;
const HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The kinds of lists, with the element that holds all packages.
const KINDS: [(&str, &str); 3] = [
    (
        "primary",
        "metadata xmlns=\"http://linux.duke.edu/metadata/common\" xmlns:rpm=\"http://linux.duke.edu/metadata/rpm\"",
    ),
    ("filelists", "filelists xmlns=\"http://linux.duke.edu/metadata/filelists\""),
    ("other", "otherdata xmlns=\"http://linux.duke.edu/metadata/other\""),
];

/// The texts of all lists, by their kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists(pub BTreeMap<String, String>);

/// A list as a file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFile {
    /// Its name in [`FOLDER`].
    pub name: String,
    /// Its compressed content.
    pub content: Vec<u8>,
}

impl Lists {
    /// The lists of packages, in this order. A blank line stands between two packages, so that a change of one is found.
    pub fn new(entries: &[Entry]) -> Lists {
        let text = |(kind, root): (&str, &str)| {
            let part = |entry: &'_ Entry| match kind {
                "primary" => entry.primary.clone(),
                "filelists" => entry.filelists.clone(),
                _ => entry.other.clone(),
            };
            let parts: Vec<String> = entries.iter().map(part).collect();
            (kind.to_owned(), list_text(root, &parts))
        };
        Lists(KINDS.into_iter().map(text).collect())
    }

    /// The files, and the text of [`TOP`].
    ///
    /// # Errors
    /// A list cannot be compressed.
    pub fn files(&self) -> io::Result<(Vec<ListFile>, String)> {
        let (mut files, mut newest) = (Vec::new(), 0);
        let mut data = String::new();
        for (kind, _) in KINDS {
            let text = self.0.get(kind).map(String::as_str).unwrap_or_default();
            if kind == "primary" {
                newest = newest_build(text);
            }
            let mut encoder =
                flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::new(GZIP_LEVEL));
            encoder.write_all(text.as_bytes())?;
            let content = encoder.finish()?;
            let (digest, open) = (digest(&content), digest(text.as_bytes()));
            let name = format!("{digest}-{kind}.xml.gz");
            let _ = writeln!(
                data,
                "  <data type=\"{kind}\">\n    <checksum type=\"sha256\">{digest}</checksum>\n    \
                 <open-checksum type=\"sha256\">{open}</open-checksum>\n    <location href=\"{FOLDER}/{name}\"/>\n    \
                 <timestamp>{newest}</timestamp>\n    <size>{}</size>\n    <open-size>{}</open-size>\n  </data>",
                content.len(),
                text.len()
            );
            files.push(ListFile { name, content });
        }
        let top = format!(
            "{HEADER}<repomd xmlns=\"http://linux.duke.edu/metadata/repo\" \
             xmlns:rpm=\"http://linux.duke.edu/metadata/rpm\">\n  <revision>{newest}</revision>\n{data}</repomd>\n"
        );
        Ok((files, top))
    }

    /// Reads the lists that a text of [`TOP`] names; `open` returns the content of a file of [`FOLDER`].
    ///
    /// # Errors
    /// The text is not such a text, or a list cannot be read or has another digest.
    pub fn read(
        top: &str,
        open: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
    ) -> Result<Lists, MetadataError> {
        let failed = |error: io::Error| MetadataError(error.to_string());
        let mut lists = Lists::default();
        for (kind, listed) in metadata::repomd(&mut top.as_bytes())? {
            let name = listed.location.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
            let name = name.ok_or_else(|| MetadataError(format!("{} is in no {FOLDER}", listed.location)))?;
            let content = open(name).map_err(failed)?;
            if digest(&content) != listed.sha256 {
                return Err(MetadataError(format!("{name} has another digest")));
            }
            let mut text = String::new();
            let mut packed = &content[..];
            decompress(&mut packed, Compression::Gzip, LIST_BYTES_MAX)
                .and_then(|mut unpacked| unpacked.read_to_string(&mut text))
                .map_err(failed)?;
            lists.0.insert(kind, text);
        }
        Ok(lists)
    }

    /// The entries of the first list, as they were given to [`Lists::new`].
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries_of("primary")
    }

    /// The entries of a list.
    pub fn entries_of(&self, kind: &str) -> impl Iterator<Item = &str> {
        let text = self.0.get(kind).map(String::as_str).unwrap_or_default();
        parts(text)
    }

    /// Whether a list is what [`Lists::new`] makes of its entries, with nothing else before, between and after them.
    pub fn is_whole(&self, kind: &str) -> bool {
        let Some((_, root)) = KINDS.iter().find(|(other, _)| *other == kind) else { return false };
        let entries: Vec<&str> = self.entries_of(kind).collect();
        self.0.get(kind).is_some_and(|text| *text == list_text(root, &entries))
    }

    /// The digests of the packages that a list names, in its order.
    pub fn digests(&self, kind: &str) -> Vec<&str> {
        let text = self.0.get(kind).map(String::as_str).unwrap_or_default();
        let (before, after) = match kind {
            "primary" => ("pkgid=\"YES\">", '<'),
            _ => ("pkgid=\"", '"'),
        };
        // Text of packages cannot contain these: quotes are escaped in attributes, and brackets in texts.
        parts(text).filter_map(|part| part.split_once(before)?.1.split(after).next()).collect()
    }
}

fn list_text(root: &str, entries: &[impl AsRef<str>]) -> String {
    let mut text = format!("{HEADER}<{root} packages=\"{}\">\n", entries.len());
    for entry in entries {
        let _ = write!(text, "\n{}", entry.as_ref());
    }
    let _ = writeln!(text, "\n</{}>", root.split(' ').next().unwrap_or(root));
    text
}

/// The elements of packages in a list.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    const END: &str = "</package>\n";
    text.split_inclusive(END).filter(|part| part.ends_with(END)).filter_map(|part| {
        let start = part.find("<package ")?;
        Some(&part[start..])
    })
}

/// The newest time of a build, in seconds since 1970: a repository with the same packages has the same text.
fn newest_build(primary: &str) -> u64 {
    let times = primary.lines().filter_map(|line| line.trim_start().strip_prefix("<time file=\""));
    times.filter_map(|rest| rest.split('"').next()?.parse().ok()).max().unwrap_or(0)
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
