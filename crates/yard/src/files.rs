//! Files that are written completely or not at all, and folders that others cannot enter.

use crate::error::{Context, Kind, Result};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The lowest folder on the way to a path, or this path, that the users of roots cannot enter: they are others to this machine.
pub fn closed_folder(path: &Path) -> Option<&Path> {
    let is_closed =
        |path: &&Path| fs_err::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o001 == 0);
    path.ancestors().find(is_closed)
}

/// Writes a file atomically: readers see all of it or the previous version.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole_by(path, |out| out.write_all(bytes))
}

/// Like [`write_whole`], for content that is too large to hold in memory.
pub fn write_whole_by(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs_err::File>) -> io::Result<()>,
) -> Result<()> {
    let part = path.with_extension("part");
    let written = fs_err::File::create(&part).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        fs_err::rename(&part, path)
    });
    written.context(Kind::Machine, format!("write {}", path.display()))
}
