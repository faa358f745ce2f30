//! The data member: every file the package installs.

use std::io::{self, Read};

use super::DebProblem;
use crate::archive::{
    ArchiveProblem, Compression, Contents, Entry, Kind, OutputBounds, decompress, for_each_entry,
};

const MEMBER: &str = "data archive";

/// Reads the member to its end.
pub(super) fn read(
    member: &mut io::Take<impl Read>,
    compression: Compression,
    own_version: &str,
    bounds: OutputBounds,
) -> Result<Contents, DebProblem> {
    let mut contents = Contents::within(bounds.files_max);
    {
        let mut unpacked = decompress(member, compression, bounds.unpacked_bytes_max)
            .map_err(|source| ArchiveProblem::Content { member: MEMBER, source })?;
        for_each_entry::<DebProblem>(&mut unpacked, MEMBER, |entry, bytes| {
            if is_own_changelog(&entry, own_version) {
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

/// Whether the entry is the Debian changelog that every rebuild adds to.
fn is_own_changelog(entry: &Entry, own_version: &str) -> bool {
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
    let is_native = !own_version.contains('-');
    if name == b"changelog.Debian.gz" || (is_native && name == b"changelog.gz") {
        return true;
    }
    name.strip_prefix(b"changelog.Debian.").and_then(|rest| rest.strip_suffix(b".gz")).is_some_and(
        |architecture| {
            !architecture.is_empty()
                && architecture.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        },
    )
}
