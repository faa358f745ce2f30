//! What a repository of packages has now, for a yard that lost a file of it.

use std::path::{Path, PathBuf};

use super::PackageEntry;
use super::checksums::Checksums;
use super::current::Current;
use super::indexes::SUMMARY_ZSTD;
use super::summary::OWN;
use crate::index::INDEX_BYTES_MAX;
use crate::layout::{ALL, CHECKSUMS, PACKAGES};
use crate::state::{read_text, sha512};
use std::io::Read;

/// See the module.
#[derive(Debug, Default)]
pub struct PublishedPackages {
    all: PathBuf,
    summary: String,
    checksums: Checksums,
}

impl PublishedPackages {
    /// Reads what readers see now. Of what cannot be read there is nothing.
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

    /// The first package whose stanza is the one that is looked for, if its file is whole: it can be published again as
    /// it is.
    pub fn find(&self, mut is_it: impl FnMut(&str) -> bool) -> Option<PackageEntry> {
        let stanza = self.summary.split_terminator("\n\n").find(|stanza| is_it(stanza))?;
        let field = |key: &str| stanza.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let file_name = field("FILE_NAME")?;
        let expected = self.checksums.get(file_name).filter(|_| Current::is_package(file_name))?;
        let file = self.all.join(file_name);
        let bytes = fs_err::read(&file).ok().filter(|bytes| sha512(bytes) == expected)?;
        let is_own = |line: &&str| line.split_once('=').is_some_and(|(key, _)| OWN.contains(&key));
        Some(PackageEntry {
            name: field("PKGNAME")?.to_owned(),
            file_name: file_name.to_owned(),
            file,
            sha512: expected.to_owned(),
            size_bytes: bytes.len() as u64,
            summary: stanza.lines().filter(|line| !is_own(line)).map(|line| format!("{line}\n")).collect(),
        })
    }
}
