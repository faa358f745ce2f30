//! The index files: compressed summaries and the look-up file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;

use super::current::Current;
use super::summary::Stanza;
use crate::{Checksum, PublishError, Result, compress, lookup, state};

const SUMMARY_GZIP: &str = "pkg_summary.gz";
pub(super) const SUMMARY_ZSTD: &str = "pkg_summary.zst";
const LOOK_UP: &str = "index";

/// The names of all index files.
pub const NAMES: [&str; 3] = [LOOK_UP, SUMMARY_GZIP, SUMMARY_ZSTD];

pub(super) struct Index {
    pub(super) name: &'static str,
    pub(super) checksum: Checksum,
    pub(super) origin: Origin,
}

/// The source of an index file's bytes.
pub(super) enum Origin {
    New(Vec<u8>),
    /// The same file in the current generation, at this path.
    Current(PathBuf),
}

/// Makes all index files. Compressing a summary takes most of the time of a publication, so unchanged files are
/// taken from the current generation.
pub(super) fn make(
    repository: &Path,
    stanzas: &[Stanza<'_>],
    current: Option<&Current>,
) -> Result<Vec<Index>> {
    let mut text = String::with_capacity(stanzas.iter().map(|stanza| stanza.text.len() + 1).sum());
    for stanza in stanzas {
        text.push_str(&stanza.text);
        text.push('\n');
    }
    if let Some(same) = current.and_then(|current| of_current(repository, text.as_bytes(), current)) {
        return Ok(same);
    }
    let records: Vec<(&str, &[u8])> =
        stanzas.iter().map(|stanza| (stanza.name, stanza.text.as_bytes())).collect();
    let index = |(name, bytes): (&'static str, Vec<u8>)| Index {
        name,
        checksum: Checksum::Sha512(state::sha512(&bytes)),
        origin: Origin::New(bytes),
    };
    Ok(pack(&text, &records)?.map(index).into())
}

/// All index files of a summary, by name: for a check of what they contain.
///
/// # Errors
/// A stanza has no name, or two have the same one.
pub fn of_summary(summary: &str) -> Result<[(&'static str, Vec<u8>); 3]> {
    let unnamed = || PublishError::Input {
        what: "summary",
        value: crate::name::shortened(summary),
        reason: "a stanza has no PKGNAME",
    };
    let mut records = Vec::new();
    let mut rest = summary;
    while !rest.is_empty() {
        let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
        let stanza = &rest[..end];
        let name = stanza.lines().find_map(|line| line.strip_prefix("PKGNAME=")).ok_or_else(unnamed)?;
        records.push((name, stanza.as_bytes()));
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    pack(summary, &records)
}

fn pack(text: &str, records: &[(&str, &[u8])]) -> Result<[(&'static str, Vec<u8>); 3]> {
    let packed = |index: &str| {
        let index = index.to_owned();
        move |source| PublishError::Compress { index, source }
    };
    let (look_up, gzip, zstd) = thread::scope(|scope| {
        let look_up = scope.spawn(|| lookup::render(records));
        let zstd = scope.spawn(|| compress::zstd(text.as_bytes()).map_err(packed(SUMMARY_ZSTD)));
        let gzip = compress::gzip(text.as_bytes()).map_err(packed(SUMMARY_GZIP));
        (look_up.join(), gzip, zstd.join())
    });
    let broken = |index: &'static str| {
        move |_| packed(index)(std::io::Error::other("the thread that makes it panicked"))
    };
    Ok([
        (LOOK_UP, look_up.map_err(broken(LOOK_UP))??),
        (SUMMARY_GZIP, gzip?),
        (SUMMARY_ZSTD, zstd.map_err(broken(SUMMARY_ZSTD))??),
    ])
}

/// The files of the current generation, if they are undamaged and contain this text.
fn of_current(repository: &Path, text: &[u8], current: &Current) -> Option<Vec<Index>> {
    let mut indexes = Vec::new();
    for name in NAMES {
        let path = current.path(name);
        let bytes = fs_err::read(repository.join(&path)).ok()?;
        let checksum = current.checksum(name)?;
        let is_same = match name {
            SUMMARY_ZSTD => holds(&bytes, text),
            LOOK_UP => lookup::is_of_this_version(&bytes),
            _ => true,
        };
        if !checksum.is_of(&bytes) || !is_same {
            return None;
        }
        indexes.push(Index { name, checksum: checksum.clone(), origin: Origin::Current(path) });
    }
    Some(indexes)
}

/// Whether a compressed file contains exactly `text`. Unpacks no more than needed to find out.
fn holds(packed: &[u8], text: &[u8]) -> bool {
    let Ok(decoder) = zstd::Decoder::with_buffer(packed) else { return false };
    let mut unpacked = Vec::with_capacity(text.len() + 1);
    decoder.take(text.len() as u64 + 1).read_to_end(&mut unpacked).is_ok() && unpacked == text
}
