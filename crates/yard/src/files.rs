//! Files that are written completely or not at all.

use crate::error::{Context, Kind, Result};
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
