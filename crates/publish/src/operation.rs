//! The steps that a plan is made of.

use std::fmt;
use std::path::PathBuf;

use crate::Checksum;

/// One step. Paths are relative to the repository, but for [`Operation::Place`]'s `file`.
#[derive(Clone, PartialEq, Eq)]
pub enum Operation {
    /// Remove all that a broken attempt left unfinished.
    ClearStaging,
    /// Make a directory, unless it is there.
    MakeDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Put a file of the caller's into the repository: a hard link, or a checked copy where a link is not possible.
    Place {
        /// Where the content is now.
        file: PathBuf,
        /// Where it goes.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// What its bytes must be, where they are copied.
        checksum: Checksum,
        /// Whether a pool file that no index names is replaced.
        replaces: bool,
    },
    /// Write a new file and flush it to the disk.
    Write {
        /// The file.
        path: PathBuf,
        /// What it holds.
        content: Vec<u8>,
    },
    /// Give a file of the repository a second name.
    Link {
        /// The file.
        from: PathBuf,
        /// Its new name.
        to: PathBuf,
    },
    /// Sign a file: the signatures go beside it.
    Sign {
        /// The file.
        path: PathBuf,
    },
    /// Flush directories to the disk, so that what they name survives a power cut.
    Sync {
        /// The directories.
        directories: Vec<PathBuf>,
    },
    /// Rename within the repository, over what is there.
    Move {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// Make a symbolic link point elsewhere in one step: the moment of publication.
    Switch {
        /// The link.
        link: PathBuf,
        /// What it points to.
        target: PathBuf,
    },
    /// Remove a directory with all that is in it, out of sight first.
    RemoveTree {
        /// The directory.
        path: PathBuf,
    },
    /// Remove a file.
    RemoveFile {
        /// The file.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// Remove a directory if it is empty.
    RemoveDirectory {
        /// The directory.
        path: PathBuf,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClearStaging => write!(formatter, "clear {}", crate::layout::STAGING),
            Self::MakeDirectory { path } => write!(formatter, "make directory {}", path.display()),
            Self::Place { file, path, size_bytes, replaces, .. } => {
                let verb = if *replaces { "replace" } else { "place" };
                write!(formatter, "{verb} {} ({size_bytes} bytes) from {}", path.display(), file.display())
            }
            Self::Write { path, content } => {
                write!(formatter, "write {} ({} bytes)", path.display(), content.len())
            }
            Self::Link { from, to } => {
                write!(formatter, "link {} to {}", to.display(), from.display())
            }
            Self::Sign { path } => write!(formatter, "sign {}", path.display()),
            Self::Sync { directories } => {
                write!(formatter, "sync")?;
                directories.iter().try_for_each(|directory| match directory.as_os_str().is_empty() {
                    true => write!(formatter, " ."),
                    false => write!(formatter, " {}", directory.display()),
                })
            }
            Self::Move { from, to } => {
                write!(formatter, "move {} to {}", from.display(), to.display())
            }
            Self::Switch { link, target } => {
                write!(formatter, "switch {} to {}", link.display(), target.display())
            }
            Self::RemoveTree { path } => {
                write!(formatter, "remove {} and all in it", path.display())
            }
            Self::RemoveFile { path, size_bytes } => {
                write!(formatter, "remove {} ({size_bytes} bytes)", path.display())
            }
            Self::RemoveDirectory { path } => {
                write!(formatter, "remove directory {}", path.display())
            }
        }
    }
}

/// The same line as for people: the content of an index is of no use in a log.
impl fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{self}>")
    }
}
