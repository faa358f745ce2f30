//! The state of a tree's file when make read it, and its path on this machine.

use crate::hex;
use sha2::{Digest, Sha256};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Marks a missing file in a record.
const ABSENT: &str = "absent";

/// Maps the paths that make saw to files on this machine.
#[derive(Clone, Debug)]
pub struct Places {
    /// The tree's folder on this machine.
    pub tree: PathBuf,
    /// The tree's path as make saw it, if make ran in a root: then files outside the tree belong to the root's
    /// layers, which do not change.
    pub inside: Option<&'static str>,
}

impl Places {
    /// The file at a path, which is absolute or relative to the tree; `None` if it belongs to a layer.
    pub(super) fn find(&self, path: &str) -> Option<PathBuf> {
        match self.inside {
            Some(inside) if path.starts_with('/') => {
                let below = path.strip_prefix(inside)?.strip_prefix('/')?;
                Some(self.tree.join(below))
            }
            _ => Some(self.tree.join(path)),
        }
    }

    /// Converts a path to one relative to the tree; `None` if it is outside the tree.
    pub(super) fn of_tree<'a>(&self, path: &'a str) -> Option<&'a str> {
        let tree = self.inside.map_or_else(|| self.tree.to_str(), Some)?;
        match path.starts_with('/') {
            true => path.strip_prefix(tree)?.strip_prefix('/'),
            false => Some(path).filter(|path| !path.starts_with("..")),
        }
    }
}

/// The recorded state of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Absent,
    Present { sha256: String, size_bytes: u64, modified_nanoseconds: i128, inode: u64 },
}

fn modified_nanoseconds(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

impl Fact {
    /// Reads the current state of a file.
    pub(super) fn of(path: &Path) -> io::Result<Fact> {
        let metadata = match fs_err::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Fact::Absent),
            other => other?,
        };
        let bytes = fs_err::read(path)?;
        Ok(Fact::Present {
            sha256: hex(&Sha256::digest(&bytes)),
            size_bytes: bytes.len() as u64,
            modified_nanoseconds: modified_nanoseconds(&metadata),
            inode: metadata.ino(),
        })
    }

    /// The current fact if the file is still the same; if its time or inode differs, its content decides.
    pub(super) fn still(&self, path: &Path) -> Option<Fact> {
        let metadata = std::fs::metadata(path);
        let Fact::Present { sha256, size_bytes, modified_nanoseconds: modified, inode } = self else {
            return metadata
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
                .then_some(Fact::Absent);
        };
        let metadata = metadata.ok()?;
        if metadata.len() != *size_bytes {
            return None;
        }
        if modified_nanoseconds(&metadata) == *modified && metadata.ino() == *inode {
            return Some(self.clone());
        }
        Fact::of(path)
            .ok()
            .filter(|now| matches!(now, Fact::Present { sha256: of_now, .. } if of_now == sha256))
    }

    /// Whether the file was written before this time; true for a missing file.
    pub(super) fn is_before(&self, nanoseconds: i128) -> bool {
        match self {
            Fact::Absent => true,
            Fact::Present { modified_nanoseconds, .. } => *modified_nanoseconds < nanoseconds,
        }
    }

    /// Formats a journal record without its first word.
    pub(super) fn write(&self, path: &str) -> String {
        match self {
            Fact::Absent => format!("{ABSENT} 0 0 0 {path}"),
            Fact::Present { sha256, size_bytes, modified_nanoseconds, inode } => {
                format!("{sha256} {size_bytes} {modified_nanoseconds} {inode} {path}")
            }
        }
    }

    /// Parses the output of [`Fact::write`].
    pub(super) fn read(record: &str) -> Option<(&str, Fact)> {
        let mut words = record.splitn(5, ' ');
        let (sha256, size, modified) = (words.next()?, words.next()?, words.next()?);
        let (inode, path) = (words.next()?, words.next()?);
        let (size_bytes, modified_nanoseconds, inode) =
            (size.parse().ok()?, modified.parse().ok()?, inode.parse().ok()?);
        let fact = match sha256 {
            ABSENT => Fact::Absent,
            _ => Fact::Present { sha256: sha256.to_owned(), size_bytes, modified_nanoseconds, inode },
        };
        Some((path, fact))
    }
}
