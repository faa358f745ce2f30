//! The metadata: the entries whose names begin with `+`, which precede the files.

use std::io::Read;

use super::{MEMBER, PackageProblem};
use crate::archive::{Contents, Entry, Kind, read_bytes};

/// Limit on one metadata file. The largest packing lists, with 100,000 files, are 10 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// How a metadata file is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It is part of the content digest.
    Counts,
    /// Its text is needed, and it is part of the content digest.
    Read,
    /// Its text is needed, and it is part of the content digest, except for the lines with time and place.
    BuildInformation,
    /// Its text is needed, but it is not part of the content digest.
    LeftOut,
}

const CONTENTS: &str = "+CONTENTS";
const COMMENT: &str = "+COMMENT";
const DESCRIPTION: &str = "+DESC";
const BUILD_INFORMATION: &str = "+BUILD_INFO";
const RECIPE_VERSIONS: &str = "+BUILD_VERSION";
const SIZE: &str = "+SIZE_PKG";

/// The names that the package tools expect before the files. Any other name that begins with `+` is a file.
const FILES: [(&str, Use); 15] = [
    (CONTENTS, Use::Read),
    (COMMENT, Use::Read),
    (DESCRIPTION, Use::Read),
    ("+INSTALL", Use::Counts),
    ("+DEINSTALL", Use::Counts),
    ("+DISPLAY", Use::Counts),
    ("+MTREE_DIRS", Use::Counts),
    (RECIPE_VERSIONS, Use::LeftOut),
    (BUILD_INFORMATION, Use::BuildInformation),
    (SIZE, Use::Read),
    ("+SIZE_ALL", Use::Counts),
    ("+PRESERVE", Use::Counts),
    ("+VIEWS", Use::Counts),
    ("+REQUIRED_BY", Use::Counts),
    ("+INSTALLED_INFO", Use::Counts),
];

/// Lines of `+BUILD_INFO` with the time and place of a build.
const TIME_AND_PLACE: [&[u8]; 2] = [b"BUILD_DATE=", b"BUILD_HOST="];

/// The metadata read so far.
#[derive(Default)]
pub(super) struct Metadata {
    seen: [bool; FILES.len()],
    texts: [Option<String>; FILES.len()],
    are_files_begun: bool,
}

impl Metadata {
    /// Adds the next entry, of any kind, to the metadata and the contents.
    pub(super) fn take(
        &mut self,
        mut entry: Entry,
        bytes: &mut dyn Read,
        contents: &mut Contents,
    ) -> Result<(), PackageProblem> {
        let Some(number) = FILES.iter().position(|(name, _)| name.as_bytes() == entry.path) else {
            self.are_files_begun = true;
            return Ok(contents.add(entry, bytes, MEMBER)?);
        };
        let (name, of_use) = FILES[number];
        if self.are_files_begun {
            return Err(PackageProblem::Late { name });
        }
        if std::mem::replace(&mut self.seen[number], true) {
            return Err(PackageProblem::Twice { name });
        }
        if entry.kind != Kind::File {
            return Err(PackageProblem::NotText { name });
        }
        match of_use {
            Use::Counts => return Ok(contents.add(entry, bytes, MEMBER)?),
            Use::Read | Use::BuildInformation | Use::LeftOut => {}
        }
        let mut read = read_bytes(&entry, bytes, MEMBER, name, FILE_BYTES_MAX)?;
        if read.contains(&0) {
            return Err(PackageProblem::NotText { name });
        }
        self.texts[number] = Some(String::from_utf8_lossy(&read).into_owned());
        if of_use == Use::LeftOut {
            return Ok(());
        }
        if of_use == Use::BuildInformation {
            read = without_time_and_place(&read);
            entry.size_bytes = read.len() as u64;
        }
        Ok(contents.add(entry, &mut read.as_slice(), MEMBER)?)
    }

    /// Returns the texts. Fails if a mandatory one is missing.
    pub(super) fn complete(mut self) -> Result<Texts, PackageProblem> {
        let mut text = |name: &'static str| {
            let number = FILES.iter().position(|(other, _)| *other == name);
            number.and_then(|number| self.texts[number].take()).ok_or(PackageProblem::Missing { name })
        };
        Ok(Texts {
            contents: text(CONTENTS)?,
            comment: text(COMMENT)?,
            description: text(DESCRIPTION)?,
            build_information: text(BUILD_INFORMATION).unwrap_or_default(),
            recipe_versions: text(RECIPE_VERSIONS).unwrap_or_default(),
            size: text(SIZE).unwrap_or_default(),
        })
    }
}

fn without_time_and_place(text: &[u8]) -> Vec<u8> {
    let is_kept = |line: &&[u8]| !TIME_AND_PLACE.iter().any(|begin| line.starts_with(begin));
    text.split_inclusive(|byte| *byte == b'\n').filter(is_kept).flatten().copied().collect()
}

/// The metadata that a summary is made from.
pub(super) struct Texts {
    /// The packing list.
    pub(super) contents: String,
    pub(super) comment: String,
    pub(super) description: String,
    /// `NAME=value` lines; empty if the package has no build information.
    pub(super) build_information: String,
    /// The version of each recipe file; empty if it is not recorded.
    pub(super) recipe_versions: String,
    /// The size of the files; empty if it is not recorded.
    pub(super) size: String,
}

impl Texts {
    /// The reason why the package must not be put on a public server, if it states one.
    pub(super) fn restricted(&self) -> Option<&str> {
        let mut values =
            self.build_information.lines().filter_map(|line| line.strip_prefix("NO_BIN_ON_FTP="));
        values.find_map(|value| Some(value.trim()).filter(|value| !value.is_empty()))
    }
}
