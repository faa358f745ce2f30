//! How a device is shown to others.

mod fuse;
pub mod nbd;
mod ublk;

use crate::{Disk, Front};
use std::io;
use std::sync::Arc;

/// A front that can be used.
pub(crate) trait Running: Send {
    /// Answers requests until nothing uses the device any more.
    fn run(self: Box<Self>) -> io::Result<()>;

    /// Removes from the kernel what does not end with the process. Requests have to be answered meanwhile.
    fn removal(&mut self) -> Removal {
        Box::new(|| Ok(()))
    }
}

/// See [`Running::removal`].
pub(crate) type Removal = Box<dyn FnOnce() -> io::Result<()>>;

/// Shows a device.
pub(crate) fn start(front: &Front, disk: &Arc<Disk>) -> io::Result<Box<dyn Running>> {
    Ok(match front {
        Front::Fuse { folder, name } => Box::new(fuse::Mounted::new(disk.clone(), folder, name)?),
        Front::Nbd { socket } => Box::new(nbd::Export::new(disk.clone(), socket)?),
        Front::Ublk { link } => Box::new(ublk::Device::new(disk, link)?),
    })
}
