//! The steps of plans.

use std::fmt;
use std::path::PathBuf;

use crate::Checksum;

/// One step. Paths are relative to the repository, except for `file` in [`Operation::Place`].
#[derive(Clone, PartialEq, Eq)]
pub enum Operation {
    /// Remove all unfinished files of an interrupted attempt.
    ClearStaging,
    /// Create a directory, unless it exists.
    MakeDirectory {
        /// Its parent exists, or is made before.
        path: PathBuf,
    },
    /// Put a file of the caller's into the repository: a hard link, or a verified copy if a link is not
    /// possible.
    Place {
        /// Current path of the file.
        file: PathBuf,
        /// New path in the repository.
        path: PathBuf,
        /// Expected size in bytes, always checked.
        size_bytes: u64,
        /// Expected checksum, verified if the file is copied.
        checksum: Checksum,
        /// Whether it replaces a pool file that no index names.
        replaces: bool,
    },
    /// Write a new file and flush it to disk.
    Write {
        /// A path that does not exist.
        path: PathBuf,
        /// The whole content, which is in memory already.
        content: Vec<u8>,
    },
    /// Give a file of the repository a second name.
    Link {
        /// A file of the repository.
        from: PathBuf,
        /// Its new name.
        to: PathBuf,
    },
    /// Sign a file and write the signatures next to it.
    Sign {
        /// The text to sign. The names of the signatures follow from its name.
        path: PathBuf,
    },
    /// Flush directories to disk, so that their entries survive a power failure.
    Sync {
        /// Flushed in this order.
        directories: Vec<PathBuf>,
    },
    /// Rename within the repository, replacing any existing file.
    Move {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// Atomically point a symbolic link elsewhere: the moment of publication.
    Switch {
        /// The symbolic link that readers follow.
        link: PathBuf,
        /// Its new target, relative to the directory of the link.
        target: PathBuf,
    },
    /// Remove a directory with its contents, renaming it out of the way first.
    RemoveTree {
        /// A directory that no reader follows any more.
        path: PathBuf,
    },
    /// Remove a file.
    RemoveFile {
        /// A pool file that no index names any more.
        path: PathBuf,
        /// Its size in bytes, for the summary.
        size_bytes: u64,
    },
    /// Remove a directory, if it is empty.
    RemoveDirectory {
        /// A directory that may have become empty.
        path: PathBuf,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClearStaging => write!(formatter, "clear {}", crate::layout::STAGING),
            Self::MakeDirectory { path } => write!(formatter, "create directory {}", path.display()),
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
                write!(formatter, "remove {} with its contents", path.display())
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

/// The same line as [`Display`](fmt::Display): the content of an index is of no use in a log.
impl fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{self}>")
    }
}
