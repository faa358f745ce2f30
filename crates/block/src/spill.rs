//! The unnamed file that takes blocks for which memory has no room.

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// See the module documentation. A block lies at its own offset: the file is sparse.
#[derive(Debug)]
pub(crate) struct Spill(File);

impl Spill {
    /// A file in this folder that has no name, so that it ends with the process. It is new each time: to truncate an old
    /// one that is full of dirty pages takes seconds.
    pub(crate) fn new(folder: &Path, bytes: u64) -> io::Result<Spill> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
        file.set_len(bytes)?;
        Ok(Spill(file))
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    /// Gives the place of a range back. A file system that cannot do that keeps it until the device ends.
    pub(crate) fn discard(&self, offset: u64, bytes: u64) {
        let _ = fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes);
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
