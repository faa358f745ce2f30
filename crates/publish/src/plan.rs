//! What is to be done.

use crate::index::{self, IndexFile};
use crate::{BinaryEntry, GENERATIONS_KEPT, PublishError, ReleaseFacts, SourceEntry};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// One step of a publication, in order. Paths are below the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Removes what an attempt left that did not end.
    Sweep {
        /// The generation's folder.
        path: PathBuf,
    },
    /// Puts a file into the pool, by a hard link where that is possible.
    Pool {
        /// Where its content is now.
        file: PathBuf,
        /// Where it goes.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// Writes the indexes of the new generation, compressed and by their hashes, and signs them.
    Generation {
        /// Its folder.
        path: PathBuf,
        /// The one before, whose indexes stay reachable by their hashes.
        before: Option<PathBuf>,
    },
    /// Writes the public key.
    Key,
    /// Makes the new generation the one that readers see.
    Switch {
        /// The link.
        link: PathBuf,
        /// What it leads to.
        generation: PathBuf,
    },
    /// Removes a generation that no reader needs any more.
    Forget {
        /// Its folder.
        path: PathBuf,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Sweep { path } => write!(f, "remove the unfinished {}", path.display()),
            Operation::Pool { file, path, size_bytes } => {
                write!(f, "put {} there, {size_bytes} bytes from {}", path.display(), file.display())
            }
            Operation::Generation { path, .. } => write!(f, "write and sign {}", path.display()),
            Operation::Key => f.write_str("write the public key"),
            Operation::Switch { link, generation } => {
                write!(f, "switch {} to {}", link.display(), generation.display())
            }
            Operation::Forget { path } => write!(f, "remove the old {}", path.display()),
        }
    }
}

/// A decided publication.
#[derive(Clone, Debug)]
pub struct Publication {
    pub(crate) repository: PathBuf,
    pub(crate) facts: ReleaseFacts,
    pub(crate) indexes: Vec<IndexFile>,
    pub(crate) operations: Vec<Operation>,
}

impl Publication {
    /// The steps, in order; none where everything is published already.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

impl fmt::Display for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.operations.is_empty() {
            return writeln!(f, "nothing to publish: the repository is as it should be");
        }
        self.operations.iter().try_for_each(|operation| writeln!(f, "{operation}"))
    }
}

fn disk(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> PublishError {
    move |source| PublishError::Disk { action, path: path.to_owned(), source }
}

/// Decides what must be done so that the repository has exactly these packages.
pub fn plan(
    repository: &Path,
    facts: &ReleaseFacts,
    binaries: &[BinaryEntry],
    sources: &[SourceEntry],
) -> Result<Publication, PublishError> {
    let indexes = index::indexes(facts, binaries, sources)?;
    let link = Path::new("dists").join(&facts.codename);
    let current = std::fs::read_link(repository.join(&link)).ok();
    let current = current.and_then(|target| target.file_name().map(|name| Path::new(GENERATIONS).join(name)));
    let numbers = generations(repository)?;
    let mut operations = Vec::new();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u64>().ok();
    let current_number = current.as_deref().and_then(number);
    // What is later than the current one was never switched to.
    for unfinished in numbers.iter().filter(|n| current_number.is_none_or(|current| **n > current)) {
        operations.push(Operation::Sweep { path: folder(*unfinished) });
    }
    operations.extend(pool(repository, binaries, sources)?);
    let is_same = current.as_ref().is_some_and(|current| {
        indexes.iter().all(|file| {
            std::fs::read(repository.join(current).join(&file.path))
                .is_ok_and(|bytes| bytes == file.text.as_bytes())
        }) && repository.join(current).join("InRelease").exists()
    });
    if !is_same {
        let path = folder(current_number.unwrap_or(0) + 1);
        operations.push(Operation::Generation { path: path.clone(), before: current });
        operations.push(Operation::Key);
        operations.push(Operation::Switch { link, generation: path });
        let mut old: Vec<u64> =
            numbers.into_iter().filter(|n| current_number.is_some_and(|c| *n <= c)).collect();
        old.sort_unstable();
        let stay = GENERATIONS_KEPT - 1;
        for number in &old[..old.len().saturating_sub(stay)] {
            operations.push(Operation::Forget { path: folder(*number) });
        }
    }
    Ok(Publication { repository: repository.to_owned(), facts: facts.clone(), indexes, operations })
}

const GENERATIONS: &str = ".generations";

fn folder(number: u64) -> PathBuf {
    Path::new(GENERATIONS).join(format!("{number:06}"))
}

fn generations(repository: &Path) -> Result<Vec<u64>, PublishError> {
    let path = repository.join(GENERATIONS);
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(disk("read", &path)(error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(disk("read", &path))?;
        numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(numbers)
}

fn is_safe(path: &str) -> bool {
    path.starts_with("pool/")
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        && !path.contains(['\n', '\0', ' '])
}

/// The files that are not in the pool yet.
fn pool(
    repository: &Path,
    binaries: &[BinaryEntry],
    sources: &[SourceEntry],
) -> Result<Vec<Operation>, PublishError> {
    let mut wanted: BTreeMap<&str, (&Path, u64, &str)> = BTreeMap::new();
    let of_binaries =
        binaries.iter().map(|b| (b.pool_path.as_str(), b.file.as_path(), b.size_bytes, b.sha256.as_str()));
    let of_sources = sources.iter().flat_map(|s| &s.files);
    let of_sources =
        of_sources.map(|(path, file, size, hash)| (path.as_str(), file.as_path(), *size, hash.as_str()));
    for (pool_path, file, size, sha256) in of_binaries.chain(of_sources) {
        if !is_safe(pool_path) {
            return Err(PublishError::Malformed { what: pool_path.to_owned() });
        }
        match wanted.insert(pool_path, (file, size, sha256)) {
            Some((_, _, first)) if first != sha256 => {
                return Err(PublishError::Twice {
                    pool_path: pool_path.to_owned(),
                    first: first.to_owned(),
                    second: sha256.to_owned(),
                });
            }
            _ => {}
        }
    }
    let mut operations = Vec::new();
    for (pool_path, (file, size_bytes, _)) in wanted {
        match std::fs::metadata(repository.join(pool_path)) {
            Ok(there) if there.len() == size_bytes => {}
            Ok(there) => {
                let pool_path = pool_path.to_owned();
                return Err(PublishError::Conflict { pool_path, found: there.len(), wanted: size_bytes });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                operations.push(Operation::Pool {
                    file: file.to_owned(),
                    path: pool_path.into(),
                    size_bytes,
                });
            }
            Err(error) => return Err(disk("read", &repository.join(pool_path))(error)),
        }
    }
    Ok(operations)
}

/// The files of the pool that no kept generation names, relative to the repository.
pub fn prune(repository: &Path) -> Result<Vec<PathBuf>, PublishError> {
    let mut named = HashSet::new();
    for number in generations(repository)? {
        for file in files_below(&repository.join(folder(number)))? {
            let name = file.file_name().unwrap_or_default();
            if name != "Packages" && name != "Sources" {
                continue;
            }
            let text = std::fs::read_to_string(&file).map_err(disk("read", &file))?;
            let mut directory = String::new();
            let mut of_source = Vec::new();
            for line in text.lines() {
                if let Some(path) = line.strip_prefix("Filename: ") {
                    named.insert(PathBuf::from(path));
                } else if let Some(path) = line.strip_prefix("Directory: ") {
                    path.clone_into(&mut directory);
                } else if let Some(entry) = line.strip_prefix(' ') {
                    of_source.extend(entry.split_whitespace().nth(2).map(str::to_owned));
                } else if line.is_empty() {
                    named.extend(of_source.drain(..).map(|name| Path::new(&directory).join(name)));
                }
            }
        }
    }
    let all = files_below(&repository.join("pool"))?;
    let relative = all.into_iter().filter_map(|path| path.strip_prefix(repository).map(Path::to_owned).ok());
    Ok(relative.filter(|path| !named.contains(path)).collect())
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>, PublishError> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(disk("read", &folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(disk("read", &folder))?;
            let is_folder = entry.file_type().map_err(disk("read", &folder))?.is_dir();
            if is_folder { open.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files.sort();
    Ok(files)
}
