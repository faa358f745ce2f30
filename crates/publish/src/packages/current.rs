//! The current generation, which readers see.

use std::path::{Path, PathBuf};

use super::checksums::Checksums;
use super::indexes;
use crate::layout::{ALL, CHECKSUMS, CHECKSUMS_PACKED, CHECKSUMS_SIGNATURE, KEYRING_FILE, Series};
use crate::name::check_name;
use crate::{Checksum, Result, state};

pub(super) struct Current {
    /// The folder with the packages, relative to the repository.
    all: PathBuf,
    checksums: Checksums,
    /// The text of the checksum file. Absent if the compressed copy is missing.
    text: Option<String>,
    /// The key that the checksums are signed with. Absent if the signature is missing.
    public_key: Option<String>,
}

impl Current {
    pub(super) fn read(repository: &Path, series: &Series, number: u64) -> Result<Self> {
        let directory = series.generation(number);
        let all = directory.join(ALL);
        let is_there = |name: &str| repository.join(&all).join(name).is_file();
        let text = state::read_text(&repository.join(&all).join(CHECKSUMS))?;
        let checksums = Checksums::parse(text.as_deref().unwrap_or_default());
        let public_key = match is_there(CHECKSUMS_SIGNATURE) {
            true => state::read_text(&repository.join(directory).join(KEYRING_FILE))?,
            false => None,
        };
        Ok(Self { text: text.filter(|_| is_there(CHECKSUMS_PACKED)), all, checksums, public_key })
    }

    /// The listed package files with their checksums. A name that cannot be that of a package file is ignored.
    pub(super) fn packages(&self) -> impl Iterator<Item = (&str, &Checksum)> {
        self.checksums.iter().filter(|(name, _)| Self::is_package(name))
    }

    /// Whether this can be the name of a package file.
    pub(super) fn is_package(name: &str) -> bool {
        !indexes::NAMES.contains(&name) && check_name("file name", name).is_ok()
    }

    /// The listed checksum of a file.
    pub(super) fn checksum(&self, name: &str) -> Option<&Checksum> {
        self.checksums.get(name)
    }

    /// The path of a file, relative to the repository.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.all.join(name)
    }

    /// Whether it lists exactly these checksums, signed with this key.
    pub(super) fn says(&self, checksums: &str, public_key: &str) -> bool {
        self.text.as_deref() == Some(checksums) && self.public_key.as_deref() == Some(public_key)
    }
}
