//! Carries out plans: one `match`, in order, under the repository's lock.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::disk::{self, Placed};
use crate::error::During;
use crate::layout::{CHECKSUMS_SIGNATURE, RELEASE_CLEAR_SIGNED, RELEASE_SIGNATURE};
use crate::operation::Operation;
use crate::state::Seen;
use crate::{Publication, PublishError, Result, Signer};

/// What a publication did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The generation that readers see now.
    pub generation: u64,
    /// Whether it is a new one; `false` means that the indexes did not change.
    pub is_new: bool,
    /// How many files of the caller's came into the repository.
    pub pool_files_placed: usize,
}

impl Publication {
    /// Carries out the plan. Readers see the old generation or the new one, whole, whenever and however this ends.
    pub fn execute(&self, signer: &dyn Signer) -> Result<Published> {
        self.execute_observed(signer, &mut |_, _| {})
    }

    /// The same, with a call after each step: its place in the plan, and what it was.
    pub fn execute_observed(
        &self,
        signer: &dyn Signer,
        observe: &mut dyn FnMut(usize, &Operation),
    ) -> Result<Published> {
        if !self.operations.is_empty() {
            disk::make_repository(&self.repository)?;
            let _lock = disk::lock(&self.repository)?;
            self.check_unchanged()?;
            // Before anything is written: a plan for another key would switch to signatures that cannot be verified.
            if self.new_generation.is_some()
                && self.public_key != signer.public_armored().map_err(sign_error)?
            {
                return Err(PublishError::OtherKey);
            }
            let sign = |path: &Path| self.signed.sign(signer, path);
            let result = execute_all(&self.repository, &self.operations, &sign, observe);
            if result.is_err() {
                // On a full disk this gives back what the attempt took. The first error is the one to tell, and what
                // stays is cleared by the next publication.
                let _ = disk::clear_staging(&self.repository);
            }
            result?;
        }
        let is_place = |operation: &&Operation| matches!(operation, Operation::Place { .. });
        Ok(Published {
            // Without a current generation there always is a new one.
            generation: self.new_generation.or(self.seen.current).unwrap_or_default(),
            is_new: self.new_generation.is_some(),
            pool_files_placed: self.operations.iter().filter(is_place).count(),
        })
    }

    /// Refuses a plan that was made for another state of the repository.
    fn check_unchanged(&self) -> Result<()> {
        let changed = || PublishError::Changed { repository: self.repository.clone() };
        if Seen::read(&self.repository, &self.series)? != self.seen {
            return Err(changed());
        }
        for (path, size_bytes) in &self.present {
            let metadata = fs_err::symlink_metadata(self.repository.join(path)).map_err(|_| changed())?;
            if !metadata.is_file() || metadata.len() != *size_bytes {
                return Err(changed());
            }
        }
        // A prune removes directories that become empty.
        let mut made = BTreeSet::new();
        for operation in &self.operations {
            match operation {
                Operation::MakeDirectory { path } => drop(made.insert(path.as_path())),
                Operation::Place { path, .. } => {
                    let directory = path.parent().unwrap_or(Path::new(""));
                    if !made.contains(directory) && !self.repository.join(directory).is_dir() {
                        return Err(changed());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The text that is signed, and which signatures it gets.
#[derive(Debug, Clone)]
pub(crate) enum Signed {
    /// `Release`: one signature around it and one beside it.
    Release(String),
    /// A list of checksums: one signature beside it.
    Checksums(String),
}

impl Signed {
    fn sign(&self, signer: &dyn Signer, path: &Path) -> Result<()> {
        match self {
            Self::Release(text) => {
                let clear = signer.sign_clear(text).map_err(sign_error)?;
                let detached = signer.sign_detached(text).map_err(sign_error)?;
                disk::write(&path.with_file_name(RELEASE_CLEAR_SIGNED), clear.as_bytes())?;
                disk::write(&path.with_file_name(RELEASE_SIGNATURE), detached.as_bytes())
            }
            Self::Checksums(text) => {
                let detached = signer.sign_detached(text).map_err(sign_error)?;
                disk::write(&path.with_file_name(CHECKSUMS_SIGNATURE), detached.as_bytes())
            }
        }
    }
}

fn sign_error(source: crate::SignerError) -> PublishError {
    PublishError::Sign { source }
}

/// Carries out the steps in order; the caller holds the lock.
pub(crate) fn execute_all(
    repository: &Path,
    operations: &[Operation],
    sign: &dyn Fn(&Path) -> Result<()>,
    observe: &mut dyn FnMut(usize, &Operation),
) -> Result<()> {
    for (index, operation) in operations.iter().enumerate() {
        execute_one(repository, operation, sign)?;
        observe(index, operation);
    }
    Ok(())
}

fn execute_one(repository: &Path, operation: &Operation, sign: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    match operation {
        Operation::ClearStaging => disk::clear_staging(repository),
        Operation::MakeDirectory { path } => disk::make_directory(&repository.join(path)),
        Operation::Place { file, path, size_bytes, checksum, replaces } => disk::place(
            repository,
            &Placed { file, path, size_bytes: *size_bytes, checksum, replaces: *replaces },
        ),
        Operation::Write { path, content } => disk::write(&repository.join(path), content),
        Operation::Link { from, to } => disk::link(&repository.join(from), &repository.join(to)),
        Operation::Sign { path } => sign(&repository.join(path)),
        Operation::Sync { directories } => {
            directories.iter().try_for_each(|directory| disk::sync_directory(&repository.join(directory)))
        }
        Operation::Move { from, to } => disk::rename(&repository.join(from), &repository.join(to)),
        Operation::Switch { link, target } => disk::switch(repository, link, target),
        Operation::RemoveTree { path } => disk::remove_tree(repository, path),
        Operation::RemoveFile { path, .. } => {
            let path = repository.join(path);
            fs_err::remove_file(&path).during("remove", &path)
        }
        Operation::RemoveDirectory { path } => {
            let path = repository.join(path);
            match fs_err::remove_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                    Err(error).during("remove the directory", &path)
                }
                _ => Ok(()),
            }
        }
    }
}
