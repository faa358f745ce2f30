//! Decides which files the pool needs, from the entries, the current index and the existing files.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::During;
use crate::index::PoolFile;
use crate::{PublishError, Result, state};

/// What to do for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the pool has it.
    Nothing,
    /// Place it in the pool.
    Place,
    /// Replace a different file that no generation names, left by an interrupted attempt.
    Replace,
}

/// Checks the pool for `wanted`. `listed` has the checksums of the files that the current generation names.
///
/// Reading the whole pool for each publication would take hours for a large one. If the current generation names a file
/// with the wanted checksum, it is enough that its size is the same, or that it is the same inode as the new file.
pub(crate) fn need(repository: &Path, wanted: &PoolFile, listed: &BTreeMap<String, String>) -> Result<Need> {
    let path = repository.join(&wanted.pool_path);
    let existing = match fs_err::symlink_metadata(&path) {
        Ok(existing) => existing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            check_source(&wanted.file, wanted.size_bytes)?;
            return Ok(Need::Place);
        }
        Err(error) => return Err(error).during("inspect", &path),
    };
    if !existing.is_file() {
        return Err(PublishError::Foreign { path, reason: "it is not a regular file" });
    }
    if existing.len() == wanted.size_bytes {
        if listed.get(&wanted.pool_path) == Some(&wanted.sha256) {
            return Ok(Need::Nothing);
        }
        let is_same_inode = fs_err::metadata(&wanted.file)
            .is_ok_and(|new| (new.dev(), new.ino()) == (existing.dev(), existing.ino()));
        if is_same_inode {
            return Ok(Need::Nothing);
        }
    }
    let existing_sha256 = file_sha256(&path)?;
    if existing_sha256 == wanted.sha256 && existing.len() == wanted.size_bytes {
        return Ok(Need::Nothing);
    }
    if state::is_referenced(repository, &wanted.pool_path)? {
        return Err(PublishError::Conflict {
            pool_path: wanted.pool_path.clone(),
            existing_sha256,
            offered_sha256: wanted.sha256.clone(),
        });
    }
    check_source(&wanted.file, wanted.size_bytes)?;
    Ok(Need::Replace)
}

/// Checks a file while planning, so that publishing does not fail later.
pub(crate) fn check_source(file: &Path, size_bytes: u64) -> Result<()> {
    let metadata = fs_err::metadata(file).during("inspect", file)?;
    check_size(file, &metadata, size_bytes)
}

pub(crate) fn check_size(file: &Path, metadata: &std::fs::Metadata, size_bytes: u64) -> Result<()> {
    if metadata.is_file() && metadata.len() == size_bytes {
        return Ok(());
    }
    let found = match metadata.is_file() {
        true => format!("{} bytes", metadata.len()),
        false => "not a regular file".to_owned(),
    };
    Err(PublishError::FileChanged { file: file.to_owned(), expected: format!("{size_bytes} bytes"), found })
}

fn file_sha256(path: &Path) -> Result<String> {
    let mut file = fs_err::File::open(path).during("open", path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => return Ok(state::hexadecimal(&hash.finalize())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).during("read", path),
        };
        hash.update(&buffer[..count]);
    }
}
