//! Collects the steps of a plan, including the directories and flushes that they require.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::During;
use crate::layout::STAGING;
use crate::operation::Operation;
use crate::{PublishError, Result};

/// The steps so far, and the directories whose entries changed since the last flush.
pub(crate) struct Steps<'a> {
    repository: &'a Path,
    operations: Vec<Operation>,
    made: BTreeSet<PathBuf>,
    touched: BTreeSet<PathBuf>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(repository: &'a Path) -> Self {
        Self { repository, operations: Vec::new(), made: BTreeSet::new(), touched: BTreeSet::new() }
    }

    pub(crate) fn into_operations(self) -> Vec<Operation> {
        self.operations
    }

    pub(crate) fn add(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Records that entries of `directory` change, so that the next flush includes it.
    pub(crate) fn touch(&mut self, directory: PathBuf) {
        self.touched.insert(directory);
    }

    /// Adds the creation of a directory and its parents, if missing.
    pub(crate) fn make_directory(&mut self, path: PathBuf) -> Result<()> {
        if path.as_os_str().is_empty() || self.made.contains(&path) {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(Path::new("")).to_owned();
        self.make_directory(parent.clone())?;
        if !self.exists(&path)? {
            self.touch(parent);
            self.add(Operation::MakeDirectory { path: path.clone() });
        }
        self.made.insert(path);
        Ok(())
    }

    /// Adds the creation of the directory for a new entry, and records that its entries change.
    pub(crate) fn make_parent(&mut self, path: &Path) -> Result<()> {
        let parent = path.parent().unwrap_or(Path::new("")).to_owned();
        self.touch(parent.clone());
        self.make_directory(parent)
    }

    /// Adds the removal of a directory of the repository with its contents.
    pub(crate) fn remove_tree(&mut self, path: PathBuf) -> Result<()> {
        self.make_directory(STAGING.into())?;
        self.add(Operation::RemoveTree { path });
        Ok(())
    }

    /// Adds a flush of the directories touched since the last one.
    pub(crate) fn sync(&mut self) {
        let directories: Vec<PathBuf> = std::mem::take(&mut self.touched).into_iter().collect();
        if !directories.is_empty() {
            self.add(Operation::Sync { directories });
        }
    }

    /// Whether the directory exists when its step is reached. Anything staged now is cleared before.
    fn exists(&self, path: &Path) -> Result<bool> {
        if path.starts_with(STAGING) && path != Path::new(STAGING) {
            return Ok(false);
        }
        let absolute = self.repository.join(path);
        match fs_err::symlink_metadata(&absolute) {
            Ok(metadata) if metadata.is_dir() => Ok(true),
            Ok(_) => Err(PublishError::Foreign { path: absolute, reason: "it is not a directory" }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).during("inspect", &absolute),
        }
    }
}
