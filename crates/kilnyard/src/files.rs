//! Files that are there whole or not at all.

use crate::error::{Context, Kind, Result};
use std::io::Write;
use std::path::Path;

/// Writes a file so that it is there whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = path.with_extension("part");
    let written = fs_err::File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs_err::rename(&part, path)
    });
    written.context(Kind::Machine, format!("write {}", path.display()))
}
