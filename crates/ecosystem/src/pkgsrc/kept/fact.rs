//! A file of a tree as it was when make read it, and where that file is.

use crate::hex;
use sha2::{Digest, Sha256};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a record says of a file that was not there.
const ABSENT: &str = "absent";

/// Where the files are that make read.
#[derive(Clone, Debug)]
pub struct Places {
    /// The tree.
    pub tree: PathBuf,
    /// Where make saw it, if that was in a root: then files outside of it are of the root's layers, which do not
    /// change.
    pub inside: Option<&'static str>,
}

impl Places {
    /// Where a file is, by its path relative to the tree or from / on; none where it is of a layer.
    pub(super) fn find(&self, path: &str) -> Option<PathBuf> {
        match self.inside {
            Some(inside) if path.starts_with('/') => {
                let below = path.strip_prefix(inside)?.strip_prefix('/')?;
                Some(self.tree.join(below))
            }
            _ => Some(self.tree.join(path)),
        }
    }

    /// A path relative to the tree; none where it is not of the tree.
    pub(super) fn of_tree<'a>(&self, path: &'a str) -> Option<&'a str> {
        let tree = self.inside.map_or_else(|| self.tree.to_str(), Some)?;
        match path.starts_with('/') {
            true => path.strip_prefix(tree)?.strip_prefix('/'),
            false => Some(path).filter(|path| !path.starts_with("..")),
        }
    }
}

/// A file, or that there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Absent,
    Present { sha256: String, size_bytes: u64, modified_nanoseconds: i128, inode: u64 },
}

fn modified_nanoseconds(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

impl Fact {
    /// What is so now.
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

    /// The fact as it is now, if the file is the same still: by its content where its time or number is another.
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

    /// Whether the file was written before this time; what is not there was.
    pub(super) fn is_before(&self, nanoseconds: i128) -> bool {
        match self {
            Fact::Absent => true,
            Fact::Present { modified_nanoseconds, .. } => *modified_nanoseconds < nanoseconds,
        }
    }

    /// A record of the journal without its first word.
    pub(super) fn write(&self, path: &str) -> String {
        match self {
            Fact::Absent => format!("{ABSENT} 0 0 0 {path}"),
            Fact::Present { sha256, size_bytes, modified_nanoseconds, inode } => {
                format!("{sha256} {size_bytes} {modified_nanoseconds} {inode} {path}")
            }
        }
    }

    /// Reads what [`Fact::write`] wrote.
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
