//! Carries out plans: one `match`, step by step, under the repository's lock.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{self, Placed};
use crate::error::During;
use crate::layout::{ALL, CHECKSUMS_SIGNATURE, RELEASE_CLEAR_SIGNED, RELEASE_SIGNATURE, signature_of};
use crate::operation::Operation;
use crate::series;
use crate::signer::{SignedText, ToSign};
use crate::state::SeriesState;
use crate::{Publication, PublishError, Result, Signer};

/// The result of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The current generation, which readers see.
    pub generation: u64,
    /// Whether it is new; `false` if the indexes did not change.
    pub is_new: bool,
    /// Number of the caller's files that were put into the repository.
    pub pool_files_placed: usize,
}

impl Publication {
    /// Carries out the plan. Readers see either the complete old or the complete new generation, however this
    /// ends.
    pub fn execute(&self, signer: &dyn Signer) -> Result<Published> {
        self.execute_observed(signer, &mut |_, _| {})
    }

    /// Like [`execute`](Self::execute), but calls `observe` after each step, with its index in the plan.
    pub fn execute_observed(
        &self,
        signer: &dyn Signer,
        observe: &mut dyn FnMut(usize, &Operation),
    ) -> Result<Published> {
        if !self.operations.is_empty() {
            disk::make_repository(&self.repository)?;
            let _lock = disk::lock(&self.repository)?;
            self.check_unchanged()?;
            // Check before writing anything: a plan for another key would switch to signatures that cannot be
            // verified.
            if self.new_generation.is_some()
                && self.public_key != signer.public_armored().map_err(sign_error)?
            {
                return Err(PublishError::OtherKey);
            }
            let previous = self.previous();
            let sign = |path: &Path| {
                let folder = path.parent().unwrap_or(path);
                let text = self.signed.text();
                let to_sign = ToSign { series: self.series.name(), text, folder, previous: &previous };
                self.signed.sign(signer, &to_sign, path)
            };
            let result = execute_all(&self.repository, &self.operations, &sign, observe);
            if result.is_err() {
                // On a full disk, this frees the space that the attempt took. The first error is the one to
                // report; the next publication clears whatever remains.
                let _ = disk::clear_staging(&self.repository);
            }
            result?;
        }
        let is_place = |operation: &&Operation| matches!(operation, Operation::Place { .. });
        Ok(Published {
            // Without a current generation, there is always a new one.
            generation: self.new_generation.or(self.seen.current).unwrap_or_default(),
            is_new: self.new_generation.is_some(),
            pool_files_placed: self.operations.iter().filter(is_place).count(),
        })
    }

    /// The folders with the signed text of generations that readers may have seen, newest first.
    fn previous(&self) -> Vec<PathBuf> {
        let folder = |number| self.repository.join(self.series.generation(number));
        let below = match self.signed {
            Signed::Release(_) => "",
            Signed::Checksums(_) => ALL,
            Signed::Lists { ref folder, .. } => folder,
        };
        series::kept(&self.seen).into_iter().map(|number| folder(number).join(below)).collect()
    }

    /// Rejects a plan that was made for another state of the repository.
    fn check_unchanged(&self) -> Result<()> {
        let changed = || PublishError::Changed { repository: self.repository.clone() };
        if SeriesState::read(&self.repository, &self.series)? != self.seen {
            return Err(changed());
        }
        for (path, size_bytes) in &self.present {
            let metadata = fs_err::symlink_metadata(self.repository.join(path)).map_err(|_| changed())?;
            if !metadata.is_file() || metadata.len() != *size_bytes {
                return Err(changed());
            }
        }
        // A prune may have removed empty directories.
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

/// The text to sign, and the kind of signatures.
#[derive(Debug, Clone)]
pub(crate) enum Signed {
    /// `Release`: one inline and one detached signature.
    Release(String),
    /// A list of checksums: a detached signature.
    Checksums(String),
    /// A text that names lists, and its folder: a detached signature.
    Lists { text: String, folder: String },
}

impl Signed {
    fn text(&self) -> SignedText<'_> {
        match self {
            Self::Release(text) => SignedText::Release(text),
            Self::Checksums(text) => SignedText::Checksums(text),
            Self::Lists { text, .. } => SignedText::Lists(text),
        }
    }

    fn sign(&self, signer: &dyn Signer, to_sign: &ToSign<'_>, path: &Path) -> Result<()> {
        let signatures = signer.sign(to_sign).map_err(sign_error)?;
        let detached = match self {
            Self::Release(_) => {
                let clear =
                    signatures.clear.ok_or_else(|| sign_error("the inline signature is missing".into()))?;
                disk::write(&path.with_file_name(RELEASE_CLEAR_SIGNED), clear.as_bytes())?;
                RELEASE_SIGNATURE
            }
            Self::Checksums(_) => CHECKSUMS_SIGNATURE,
            Self::Lists { .. } => {
                return disk::write(&signature_of(path), signatures.detached.as_bytes());
            }
        };
        disk::write(&path.with_file_name(detached), signatures.detached.as_bytes())
    }
}

fn sign_error(source: crate::SignerError) -> PublishError {
    PublishError::Sign { source }
}

/// Carries out the steps in order. The caller holds the lock.
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
