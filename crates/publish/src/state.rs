//! The current state of a repository's directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256, Sha512};

use crate::error::During;
use crate::index::INDEX_BYTES_MAX;
use crate::layout::{self, GENERATIONS, PACKAGES, RELEASE, Series};
use crate::release::{self, Listing};
use crate::{PublishError, Result, stanza};

/// The generations of a series. If two reads are equal, no publication succeeded or was interrupted in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeriesState {
    /// The generation that the link points to.
    pub(crate) current: Option<u64>,
    /// The existing generations, ascending.
    pub(crate) generations: Vec<u64>,
    /// Whether there are unfinished files.
    pub(crate) has_leftovers: bool,
}

impl SeriesState {
    pub(crate) fn read(repository: &Path, series: &Series) -> Result<Self> {
        Ok(Self {
            current: current(repository, series)?,
            generations: numbers(&repository.join(series.generations()))?,
            has_leftovers: !names(&repository.join(layout::STAGING))?.is_empty(),
        })
    }
}

/// The codenames that have generations.
pub(crate) fn codenames(repository: &Path) -> Result<Vec<String>> {
    let mut found = names(&repository.join(GENERATIONS))?;
    found.retain(|name| name != PACKAGES);
    Ok(found)
}

/// Reads a text file; `None` if it does not exist. A file larger than the limit for all indexes together is
/// foreign.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>> {
    match fs_err::metadata(path) {
        Ok(metadata) if metadata.len() > INDEX_BYTES_MAX as u64 => {
            return Err(PublishError::Foreign { path: path.to_owned(), reason: "it is too large" });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).during("inspect", path),
    }
    let bytes = fs_err::read(path).during("read", path)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(PublishError::Foreign { path: path.to_owned(), reason: "it is not text" }),
    }
}

/// The index files that a generation's `Release` lists. Empty if there is no such file.
pub(crate) fn listing(generation: &Path) -> Result<Listing> {
    Ok(read_text(&generation.join(RELEASE))?.map(|text| release::listing(&text)).unwrap_or_default())
}

/// The pool files that a generation names, with checksums. Fails if an index does not match `Release`.
pub(crate) fn references(generation: &Path) -> Result<BTreeMap<String, String>> {
    let release_path = generation.join(RELEASE);
    let release = read_text(&release_path)?
        .ok_or(PublishError::Foreign { path: release_path, reason: "the generation has no Release file" })?;
    let mut found = BTreeMap::new();
    for (path, listed) in release::listing(&release) {
        let is_sources = path.ends_with("/Sources");
        if !is_sources && !path.ends_with("/Packages") {
            continue;
        }
        let index_path = generation.join(&path);
        let text = read_text(&index_path)?.unwrap_or_default();
        if sha256(text.as_bytes()) != listed.sha256 {
            let reason = "the index does not match its Release file";
            return Err(PublishError::Foreign { path: index_path, reason });
        }
        for stanza in stanza::stanzas(&text) {
            if is_sources {
                add_source(stanza, &mut found);
            } else if let (Some(path), Some(hash)) =
                (stanza::field(stanza, "Filename"), stanza::field(stanza, "SHA256"))
            {
                found.insert(path.to_owned(), hash.to_owned());
            }
        }
    }
    Ok(found)
}

fn add_source(stanza: &str, found: &mut BTreeMap<String, String>) {
    let directory = stanza::field(stanza, "Directory").unwrap_or_default();
    for line in stanza::field(stanza, "Checksums-Sha256").unwrap_or_default().lines() {
        if let [hash, _, name] = line.split_whitespace().collect::<Vec<_>>()[..] {
            found.insert(format!("{directory}/{name}"), hash.to_owned());
        }
    }
}

/// Whether any generation of any codename names `pool_path`.
pub(crate) fn is_referenced(repository: &Path, pool_path: &str) -> Result<bool> {
    for generation in all_generations(repository)? {
        if references(&generation)?.contains_key(pool_path) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn all_generations(repository: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for codename in codenames(repository)? {
        let series = Series::of_codename(&codename);
        for number in numbers(&repository.join(series.generations()))? {
            found.push(repository.join(series.generation(number)));
        }
    }
    Ok(found)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

pub(crate) fn sha512(bytes: &[u8]) -> String {
    hexadecimal(&Sha512::digest(bytes))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn current(repository: &Path, series: &Series) -> Result<Option<u64>> {
    let link = repository.join(series.link());
    let target = match fs_err::read_link(&link) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return Err(PublishError::Foreign { path: link, reason: "it is not a symbolic link" });
        }
        Err(error) => return Err(error).during("read the link", &link),
    };
    target
        .file_name()
        .and_then(|name| number(name.to_str()?))
        .filter(|number| target == series.link_target(*number))
        .map(Some)
        .ok_or(PublishError::Foreign { path: link, reason: "it does not point to a generation" })
}

/// Parses the number of a generation. Only the canonical spelling is valid.
fn number(name: &str) -> Option<u64> {
    let number: u64 = name.parse().ok()?;
    (number.to_string() == name).then_some(number)
}

fn numbers(directory: &Path) -> Result<Vec<u64>> {
    let mut found: Vec<u64> = names(directory)?.iter().filter_map(|name| number(name)).collect();
    found.sort_unstable();
    Ok(found)
}

/// The names in a directory, sorted. Empty if the directory does not exist.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = match fs_err::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).during("list", directory),
    };
    let mut found = Vec::new();
    for entry in entries {
        found.push(entry.during("list", directory)?.file_name().to_string_lossy().into_owned());
    }
    found.sort_unstable();
    Ok(found)
}
