//! Removes pool files that no kept generation names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::During;
use crate::execute::execute_all;
use crate::layout::{POOL, Series};
use crate::operation::Operation;
use crate::state::{self, SeriesState};
use crate::{PublishError, Result, disk};

/// Deeper than any pool: `pool/main/libz/libzstd/x.deb` has five components.
const DEPTH_MAX: usize = 32;

/// An ordered list of removals, and the state of the repository when it was made. Displayed with one line per
/// removal, for a dry run.
#[derive(Debug, Clone)]
pub struct Prune {
    repository: PathBuf,
    seen: BTreeMap<String, SeriesState>,
    operations: Vec<Operation>,
}

/// Plans to remove every pool file that no generation of any codename names, and directories that become empty.
///
/// A repository without any publication is left alone, since nothing says which of its files are needed.
pub fn prune(repository: &Path) -> Result<Prune> {
    let seen = look(repository)?;
    let mut referenced = BTreeSet::new();
    for generation in state::all_generations(repository)? {
        referenced.extend(state::references(&generation)?.into_keys());
    }
    let mut removals = Removals { repository, referenced, operations: Vec::new(), touched: BTreeSet::new() };
    if seen.values().any(|seen| !seen.generations.is_empty()) {
        removals.walk(Path::new(POOL), 0)?;
    }
    Ok(Prune { repository: repository.to_owned(), seen, operations: removals.into_operations() })
}

impl Prune {
    /// The removals, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Total size of the removed files. Files that have other hard links do not free their space.
    pub fn size_bytes(&self) -> u64 {
        self.operations
            .iter()
            .map(|operation| match operation {
                Operation::RemoveFile { size_bytes, .. } => *size_bytes,
                _ => 0,
            })
            .sum()
    }

    /// Carries out the plan.
    pub fn execute(&self) -> Result<()> {
        if self.operations.is_empty() {
            return Ok(());
        }
        let _lock = disk::lock(&self.repository)?;
        if look(&self.repository)? != self.seen {
            return Err(PublishError::Changed { repository: self.repository.clone() });
        }
        // A prune has no signing step.
        execute_all(&self.repository, &self.operations, &|_| Ok(()), &mut |_, _| {})
    }
}

impl fmt::Display for Prune {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(formatter, "{operation}"))
    }
}

fn look(repository: &Path) -> Result<BTreeMap<String, SeriesState>> {
    state::codenames(repository)?
        .into_iter()
        .map(|codename| {
            let seen = SeriesState::read(repository, &Series::of_codename(&codename))?;
            Ok((codename, seen))
        })
        .collect()
}

struct Removals<'a> {
    repository: &'a Path,
    referenced: BTreeSet<String>,
    operations: Vec<Operation>,
    touched: BTreeSet<PathBuf>,
}

impl Removals<'_> {
    /// Plans the removals in one directory. Returns whether it will be empty.
    fn walk(&mut self, directory: &Path, depth: usize) -> Result<bool> {
        let absolute = self.repository.join(directory);
        if depth == DEPTH_MAX {
            return Err(PublishError::Foreign { path: absolute, reason: "it is too deep for a pool" });
        }
        let entries = match fs_err::read_dir(&absolute) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).during("list", &absolute),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.during("list", &absolute)?.file_name());
        }
        names.sort_unstable();
        let mut is_empty = true;
        for name in names {
            let path = directory.join(&name);
            let metadata = fs_err::symlink_metadata(self.repository.join(&path)).during("inspect", &path)?;
            let is_removed = if metadata.is_dir() {
                let is_removed = self.walk(&path, depth + 1)?;
                if is_removed {
                    self.operations.push(Operation::RemoveDirectory { path: path.clone() });
                }
                is_removed
            } else if metadata.is_file() {
                // A name that is not UTF-8 cannot be in an index, since pool paths are ASCII.
                let is_referenced = path.to_str().is_some_and(|path| self.referenced.contains(path));
                if !is_referenced {
                    self.operations
                        .push(Operation::RemoveFile { path: path.clone(), size_bytes: metadata.len() });
                }
                !is_referenced
            } else {
                // A link or a socket was put here by others, so it stays.
                false
            };
            match is_removed {
                true => drop(self.touched.insert(directory.to_owned())),
                false => is_empty = false,
            }
        }
        Ok(is_empty && depth > 0)
    }

    fn into_operations(mut self) -> Vec<Operation> {
        let removed: BTreeSet<&PathBuf> = self
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::RemoveDirectory { path } => Some(path),
                _ => None,
            })
            .collect();
        let directories: Vec<PathBuf> =
            self.touched.into_iter().filter(|path| !removed.contains(path)).collect();
        if !directories.is_empty() {
            self.operations.push(Operation::Sync { directories });
        }
        self.operations
    }
}
