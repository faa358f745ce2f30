//! The generation that readers see now.

use std::path::{Path, PathBuf};

use super::checksums::Checksums;
use super::indexes;
use crate::layout::{ALL, CHECKSUMS, CHECKSUMS_PACKED, CHECKSUMS_SIGNATURE, KEYRING_FILE, Series};
use crate::name::check_name;
use crate::{Result, state};

pub(super) struct Current {
    /// Relative to the repository.
    all: PathBuf,
    checksums: Checksums,
    /// The checksums as they are written; none where a file beside them is missing.
    text: Option<String>,
    /// The key that they are signed with; none where the signature is missing.
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

    /// The package files that it lists, with their checksums. A name that could not be one leads nowhere.
    pub(super) fn packages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.checksums.iter().filter(|(name, _)| Self::is_package(name))
    }

    /// Whether a name can be that of a package file.
    pub(super) fn is_package(name: &str) -> bool {
        !indexes::NAMES.contains(&name) && check_name("file name", name).is_ok()
    }

    /// The checksum that it lists for a file.
    pub(super) fn sha512(&self, name: &str) -> Option<&str> {
        self.checksums.get(name)
    }

    /// Where a file of it is, relative to the repository.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.all.join(name)
    }

    /// Whether it lists these checksums, signed with this key.
    pub(super) fn says(&self, checksums: &str, public_key: &str) -> bool {
        self.text.as_deref() == Some(checksums) && self.public_key.as_deref() == Some(public_key)
    }
}
