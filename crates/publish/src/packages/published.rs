//! Reads the packages in a repository, for a yard that has lost one of its files.

use std::path::{Path, PathBuf};

use super::PackageEntry;
use super::checksums::Checksums;
use super::current::Current;
use super::indexes::SUMMARY_ZSTD;
use super::summary::OWN;
use crate::index::INDEX_BYTES_MAX;
use crate::layout::{ALL, CHECKSUMS, PACKAGES};
use crate::state::read_text;
use std::io::Read;

/// The packages that the repository lists now.
#[derive(Debug, Default)]
pub struct PublishedPackages {
    all: PathBuf,
    summary: String,
    checksums: Checksums,
}

impl PublishedPackages {
    /// Reads the repository. Anything that cannot be read counts as empty.
    pub fn read(repository: &Path) -> Self {
        let all = repository.join(PACKAGES).join(ALL);
        let mut summary = String::new();
        let unpacked = fs_err::File::open(all.join(SUMMARY_ZSTD)).and_then(zstd::Decoder::new);
        let is_read = unpacked
            .and_then(|unpacked| unpacked.take(INDEX_BYTES_MAX as u64).read_to_string(&mut summary))
            .is_ok();
        let checksums = read_text(&all.join(CHECKSUMS)).ok().flatten().unwrap_or_default();
        match is_read {
            true => Self { all, summary, checksums: Checksums::parse(&checksums) },
            false => Self::default(),
        }
    }

    /// Returns the first package whose stanza matches, provided that its file is undamaged: it can be published
    /// again unchanged.
    pub fn find(&self, mut is_it: impl FnMut(&str) -> bool) -> Option<PackageEntry> {
        let stanza = self.summary.split_terminator("\n\n").find(|stanza| is_it(stanza))?;
        let field = |key: &str| stanza.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let file_name = field("FILE_NAME")?;
        let expected = self.checksums.get(file_name).filter(|_| Current::is_package(file_name))?;
        let file = self.all.join(file_name);
        let bytes = fs_err::read(&file).ok().filter(|bytes| expected.is_of(bytes))?;
        let is_own = |line: &&str| line.split_once('=').is_some_and(|(key, _)| OWN.contains(&key));
        Some(PackageEntry {
            name: field("PKGNAME")?.to_owned(),
            file_name: file_name.to_owned(),
            file,
            checksum: expected.clone(),
            size_bytes: bytes.len() as u64,
            summary: stanza.lines().filter(|line| !is_own(line)).map(|line| format!("{line}\n")).collect(),
        })
    }
}
