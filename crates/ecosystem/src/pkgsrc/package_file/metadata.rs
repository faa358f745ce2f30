//! The metadata: the entries whose names begin with `+`, in front of the files.

use std::io::Read;

use super::{MEMBER, PackageProblem};
use crate::archive::{Contents, Entry, Kind, read_bytes};

/// One file of the metadata. The largest packing lists, with 100,000 files, are 10 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What becomes of a file of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It counts for the content.
    Counts,
    /// Its text is needed, and it counts for the content.
    Read,
    /// Its text is needed, and it counts but for the lines that say when and where.
    BuildInformation,
    /// Its text is needed, and it does not count.
    LeftOut,
}

const CONTENTS: &str = "+CONTENTS";
const COMMENT: &str = "+COMMENT";
const DESCRIPTION: &str = "+DESC";
const BUILD_INFORMATION: &str = "+BUILD_INFO";
const RECIPE_VERSIONS: &str = "+BUILD_VERSION";
const SIZE: &str = "+SIZE_PKG";

/// The names that the package tools look for in front of the files. Another one that begins with `+` is a file.
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

/// Lines of `+BUILD_INFO` that say when and where a package was built.
const TIME_AND_PLACE: [&[u8]; 2] = [b"BUILD_DATE=", b"BUILD_HOST="];

/// The metadata so far.
#[derive(Default)]
pub(super) struct Metadata {
    seen: [bool; FILES.len()],
    texts: [Option<String>; FILES.len()],
    are_files_begun: bool,
}

impl Metadata {
    /// Takes the next entry, whatever it is, into the metadata and the contents.
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

    /// The texts, where those that every package has are there.
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

/// What the metadata that a summary is made of say.
pub(super) struct Texts {
    /// The packing list.
    pub(super) contents: String,
    pub(super) comment: String,
    pub(super) description: String,
    /// `NAME=value` lines; empty where the package says nothing of its build.
    pub(super) build_information: String,
    /// The version of each file of the recipe; empty where it is not said.
    pub(super) recipe_versions: String,
    /// The size of the files; empty where it is not said.
    pub(super) size: String,
}

impl Texts {
    /// Why the package may not be put on a public server, where that is said.
    pub(super) fn restricted(&self) -> Option<&str> {
        let mut values =
            self.build_information.lines().filter_map(|line| line.strip_prefix("NO_BIN_ON_FTP="));
        values.find_map(|value| Some(value.trim()).filter(|value| !value.is_empty()))
    }
}
