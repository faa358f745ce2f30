//! A generation: all forms of the index files, and the steps that make, sign and switch to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::compress::Form;
use crate::index::Indexes;
use crate::layout::{self, KEYRING_FILE, RELEASE, Series};
use crate::operation::Operation;
use crate::release::{self, Listed, Listing};
use crate::series;
use crate::state::{self, sha256};
use crate::steps::Steps;
use crate::{PublishError, Result};

/// The current generation, which readers see.
pub(crate) struct Current {
    /// Its path relative to the repository.
    directory: PathBuf,
    pub(crate) release: String,
    listing: Listing,
    /// The key that it is signed with. Absent if a signature is missing.
    public_key: Option<String>,
    /// The pool files that it names, with checksums. Empty if the generation is damaged; then the pool's files
    /// are hashed.
    pub(crate) references: BTreeMap<String, String>,
}

impl Current {
    pub(crate) fn read(repository: &Path, series: &Series, number: u64) -> Result<Self> {
        let directory = series.generation(number);
        let absolute = repository.join(&directory);
        let release = state::read_text(&absolute.join(RELEASE))?.unwrap_or_default();
        let is_signed = [layout::RELEASE_CLEAR_SIGNED, layout::RELEASE_SIGNATURE]
            .iter()
            .all(|name| absolute.join(name).is_file());
        let public_key = match is_signed {
            true => state::read_text(&absolute.join(KEYRING_FILE))?,
            false => None,
        };
        let references = state::references(&absolute).unwrap_or_default();
        Ok(Self { directory, listing: release::listing(&release), release, public_key, references })
    }

    pub(crate) fn is_signed_with(&self, public_key: &str) -> bool {
        self.public_key.as_deref() == Some(public_key)
    }

    /// Whether an index file exists with the listed size.
    fn has(&self, repository: &Path, path: &str) -> bool {
        self.listing.get(path).is_some_and(|listed| {
            fs_err::metadata(repository.join(&self.directory).join(path))
                .is_ok_and(|file| file.len() == listed.size_bytes)
        })
    }
}

/// The source of an index file's bytes.
enum Origin {
    New(Vec<u8>),
    /// The same file in the current generation, at this path.
    Current(PathBuf),
}

/// The index files of a generation.
pub(crate) struct Contents {
    pub(crate) listing: Listing,
    origins: Vec<(String, Origin)>,
}

/// Makes all forms of all indexes. An unchanged index is taken from the current generation with its compressed
/// forms, so the cost of a publication depends on the size of the changes.
pub(crate) fn pack(repository: &Path, indexes: Indexes, current: Option<&Current>) -> Result<Contents> {
    let mut contents = Contents { listing: Listing::new(), origins: Vec::new() };
    for (path, text) in indexes {
        let plain = Listed { sha256: sha256(text.as_bytes()), size_bytes: text.len() as u64 };
        let packed_paths = packed_paths(&path);
        if let Some(current) = current.filter(|current| current.listing.get(&path) == Some(&plain)) {
            // All forms must exist, since the listing does not say which text a compressed file contains.
            let paths: Vec<&String> = std::iter::once(&path).chain(&packed_paths).collect();
            if paths.iter().all(|path| current.has(repository, path)) {
                for path in paths {
                    contents.listing.insert(path.clone(), current.listing[path].clone());
                    contents.origins.push((path.clone(), Origin::Current(current.directory.join(path))));
                }
                continue;
            }
        }
        for (packed_path, packed) in packed_forms(&path, text.as_bytes())? {
            contents.insert(packed_path, packed);
        }
        contents.insert(path, text.into_bytes());
    }
    Ok(contents)
}

/// The paths of the compressed forms of an index.
pub fn packed_paths(path: &str) -> Vec<String> {
    Form::ALL.iter().map(|form| layout::packed_path(path, *form)).collect()
}

/// The compressed forms of an index, by path: what a publication writes, and what its signer expects.
pub fn packed_forms(path: &str, text: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let packed = |form: Form| {
        let packed_path = layout::packed_path(path, form);
        match form.compress(text) {
            Ok(packed) => Ok((packed_path, packed)),
            Err(source) => Err(PublishError::Compress { index: packed_path, source }),
        }
    };
    Form::ALL.into_iter().map(packed).collect()
}

impl Contents {
    /// Whether any file has to be written.
    pub(crate) fn has_new(&self) -> bool {
        self.origins.iter().any(|(_, origin)| matches!(origin, Origin::New(_)))
    }

    fn insert(&mut self, path: String, bytes: Vec<u8>) {
        let listed = Listed { sha256: sha256(&bytes), size_bytes: bytes.len() as u64 };
        self.listing.insert(path.clone(), listed);
        self.origins.push((path, Origin::New(bytes)));
    }
}

/// A generation to be made.
pub(crate) struct NewGeneration<'a> {
    pub(crate) series: &'a Series,
    pub(crate) number: u64,
    /// The generations that readers may still be using, newest first.
    pub(crate) previous: &'a [u64],
    pub(crate) contents: Contents,
    pub(crate) release: &'a str,
    pub(crate) public_key: &'a str,
}

impl NewGeneration<'_> {
    /// Plans to make the generation and to switch to it.
    pub(crate) fn plan(self, repository: &Path, steps: &mut Steps<'_>) -> Result<()> {
        let staged = series::begin(self.series, steps)?;
        let mut by_hash = BTreeSet::new();
        for (path, origin) in self.contents.origins {
            let to = staged.join(&path);
            steps.make_parent(&to)?;
            steps.add(match origin {
                Origin::New(content) => Operation::Write { path: to.clone(), content },
                Origin::Current(from) => Operation::Link { from, to: to.clone() },
            });
            let second = layout::by_hash_path(&path, &self.contents.listing[&path].sha256);
            if by_hash.insert(second.clone()) {
                let second = staged.join(second);
                steps.make_parent(&second)?;
                steps.add(Operation::Link { from: to, to: second });
            }
        }
        for number in self.previous {
            let generation = self.series.generation(*number);
            for (path, listed) in state::listing(&repository.join(&generation))? {
                let name = layout::by_hash_path(&path, &listed.sha256);
                let from = generation.join(&name);
                if repository.join(&from).is_file() && by_hash.insert(name.clone()) {
                    let to = staged.join(name);
                    steps.make_parent(&to)?;
                    steps.add(Operation::Link { from, to });
                }
            }
        }
        steps.add(Operation::Write { path: staged.join(RELEASE), content: self.release.as_bytes().to_vec() });
        steps.add(Operation::Write {
            path: staged.join(KEYRING_FILE),
            content: self.public_key.as_bytes().to_vec(),
        });
        steps.add(Operation::Sign { path: staged.join(RELEASE) });
        steps.touch(staged);
        series::switch(self.series, self.number, steps);
        Ok(())
    }
}
