//! The data member: every file the package installs.

use std::io::{self, Read};

use super::{DebProblem, Own};
use crate::archive::{
    ArchiveProblem, Compression, Contents, Entry, Kind, OutputBounds, decompress, for_each_entry,
};

const MEMBER: &str = "data archive";

/// Reads the member to its end, and the paths of all files that are not folders.
pub(super) fn read(
    member: &mut io::Take<impl Read>,
    compression: Compression,
    own: &Own,
    bounds: OutputBounds,
    paths: &mut Vec<String>,
) -> Result<Contents, DebProblem> {
    let mut contents = Contents::within(bounds.files_max, own.numbers.clone());
    {
        let mut unpacked = decompress(member, compression, bounds.unpacked_bytes_max)
            .map_err(|source| ArchiveProblem::Content { member: MEMBER, source })?;
        for_each_entry::<DebProblem>(&mut unpacked, MEMBER, |entry, bytes| {
            if !matches!(entry.kind, Kind::Directory) && paths.len() < bounds.files_max {
                paths.push(String::from_utf8_lossy(&entry.path).into_owned());
            }
            if is_own_changelog(&entry, own) {
                return Ok(());
            }
            Ok(contents.add(entry, bytes, MEMBER)?)
        })?;
    }
    match member.limit() {
        0 => Ok(contents),
        count_bytes => Err(ArchiveProblem::TrailingBytes { member: MEMBER, count_bytes }.into()),
    }
}

/// Whether the entry is the Debian changelog that every rebuild extends: either the whole changelog, or the part
/// that debhelper splits off per architecture for a binary-only entry.
fn is_own_changelog(entry: &Entry, own: &Own) -> bool {
    if !matches!(entry.kind, Kind::File | Kind::HardLink) {
        return false;
    }
    let Some(rest) = entry.path.strip_prefix(b"usr/share/doc/") else {
        return false;
    };
    let mut parts = rest.split(|byte| *byte == b'/');
    let (Some(package), Some(name), None) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    if package.is_empty() {
        return false;
    }
    let name = name.strip_suffix(b".gz").unwrap_or(name);
    let is_of = |name: &[u8], plain: &[u8], is_architecture: &dyn Fn(&[u8]) -> bool| {
        name.strip_prefix(plain)
            .is_some_and(|rest| rest.is_empty() || rest.strip_prefix(b".").is_some_and(is_architecture))
    };
    let is_word = |word: &[u8]| {
        !word.is_empty() && word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    };
    // A native package has only a Debian changelog; with any other suffix it is a different file
    // (`changelog.html.gz`).
    let is_own_architecture = |word: &[u8]| word == own.architecture.as_bytes() || word == b"all";
    is_of(name, b"changelog.Debian", &is_word)
        || (own.is_native && is_of(name, b"changelog", &is_own_architecture))
}
