//! Makes the folder of a signer.

use crate::policy::{FIRST, POLICY};
use kilnyard_sign::{SignError, YardKey};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The folder of keys, in the signer's folder.
pub const KEYS: &str = "keys";
/// The file of the first key, in the signer's folder.
pub const FIRST_KEY: &str = "keys/main.asc";

/// An error. The text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file or folder cannot be made.
    #[error("make the signer's folder")]
    File(#[from] io::Error),
    /// The key cannot be made or written.
    #[error(transparent)]
    Key(#[from] SignError),
}

/// Makes the folder of a signer with this key, or keeps the one that is there.
///
/// # Errors
/// A file cannot be written.
pub fn make(folder: &Path, key: impl FnOnce() -> Result<YardKey, SignError>) -> Result<(), SetupError> {
    make_with(folder, None, key)
}

/// Makes such a folder for a key whose passphrase is in a credential.
///
/// # Errors
/// A file cannot be written.
pub fn make_with(
    folder: &Path,
    credential: Option<&str>,
    key: impl FnOnce() -> Result<YardKey, SignError>,
) -> Result<(), SetupError> {
    if folder.join(POLICY).exists() {
        return Ok(());
    }
    make_private(folder)?;
    make_private(&folder.join(KEYS))?;
    if !folder.join(FIRST_KEY).exists() {
        key()?.write(&folder.join(FIRST_KEY))?;
    }
    // Last: with it, the folder is complete.
    let mut policy = FIRST.to_owned();
    if let Some(credential) = credential {
        policy.push_str(&format!("credential = {credential:?}\n"));
    }
    write_private(&folder.join(POLICY), policy.as_bytes())?;
    Ok(())
}

fn make_private(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Writes a file that only its user can read: complete, or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let staged = path.with_extension("new");
    let mut options = fs_err::OpenOptions::new();
    fs_err::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create(true).truncate(true);
    let mut file = options.open(&staged)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs_err::rename(&staged, path)
}
