//! Roots on their own block device: an image of the layers, written copy-on-write.
//!
//! The image is a file system in a sparse file, with a copy of the layers in its folder [`TREE`]. It is made once for a
//! stack of layers and never changed. A read-only image ([`FileSystem::Erofs`]) is a layer: writes go to the root's
//! folder, as with an overlay, and the notes below about writing do not apply to it.
//!
//! For each root, a server shows the image and keeps written data apart. Kilnyard's own ([`kilnyard_block`]) keeps it in
//! memory and, beyond a limit, in an unlinked file in the root's folder; it shows the device as a file in a FUSE mount,
//! which becomes a loop device. `nbdkit` serves it over a Unix socket and keeps written data in such a file alone; the
//! export becomes a kernel device by `nbd.ko` if that is loaded, else by `nbdfuse` and a loop device. With ublk, Kilnyard's server has a kernel
//! device itself. Then the device is
//! mounted. The root's [`Keeper`](crate::Keeper) does all of this, as root and without a
//! user namespace, in its own mount and pid namespaces: servers end with its process 1, the mount ends with its
//! namespace, and the loop device then clears itself. The mount is in a namespace that contains no server, so it is
//! gone while the servers still answer.
//!
//! Invariant: a device is stamped with the name of its root, and one that already has a stamp is refused, so that no
//! device is used twice. The kernel releases loop devices and fuse mounts asynchronously: detaching waits until they
//! are gone, or names the processes that hold them. Written data is not flushed to the disk at the end: the file
//! system is shut down first.
//!
//! Ordinary users cannot use it: no kernel allows them to mount a device. Known downsides: one server (with nbdkit two) is
//! between a file and the disk; and a machine that is short of memory depends on these servers to write back the data
//! that it wants to evict. Kilnyard's locks its own memory, and is not throttled.

mod attach;
mod devices;
mod file_system;
mod holders;
mod image;
mod loop_device;
mod needs;
mod serve;
mod stamp;

pub(crate) use devices::Devices;
pub use image::{ImagePlan, TREE};
pub use kilnyard_block::Requests;
pub use needs::{MissingRequirement, missing_requirement};

use serde::{Deserialize, Serialize};
use std::fmt;

/// The file system of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// Without a journal, since a root is never repaired.
    #[default]
    Ext4,
    /// With a journal, which xfs requires.
    Xfs,
    /// Read-only, and as small as the files.
    Erofs,
}

impl FileSystem {
    /// All file systems that an image can have.
    pub const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Erofs];

    /// The name by which mount(2) knows it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Erofs => "erofs",
        }
    }

    /// Whether it is writable.
    pub fn is_written(self) -> bool {
        self != FileSystem::Erofs
    }

    /// Whether this machine has the program that makes one.
    pub fn can_be_made(self) -> bool {
        needs::program(self.maker().0).is_some()
    }

    /// The program that makes one, and the Debian package that contains the program.
    pub(crate) fn maker(self) -> (&'static str, &'static str) {
        match self {
            FileSystem::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            FileSystem::Xfs => ("mkfs.xfs", "xfsprogs"),
            FileSystem::Erofs => ("mkfs.erofs", "erofs-utils"),
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The program that serves a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Kilnyard: memory first, an unnamed file behind it.
    #[default]
    Kilnyard,
    /// Kilnyard, in place of a file for a loop device as a device of the kernel's own: ublk, from Linux 6.9 on.
    Ublk,
    /// nbdkit: an unnamed file.
    Nbdkit,
}

/// The properties of a root's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The file system on it.
    pub file_system: FileSystem,
    /// Minimum free space for a root's writes; not used for a read-only file system.
    pub room_bytes: u64,
    /// The server.
    pub server: Server,
    /// The most bytes of written data that Kilnyard's server keeps in memory.
    pub memory_bytes_max: u64,
    /// Whether requests are logged to the file [`REQUESTS`] in the root's folder.
    pub requests: Requests,
}

impl Device {
    /// Enough for packages that are larger than most. It costs nothing, since images are sparse.
    pub const ROOM_BYTES: u64 = 20 << 30;
    /// The memory of a device to which none was promised.
    pub const MEMORY_BYTES: u64 = 64 << 20;
    /// A device as it is without any configuration.
    pub const STANDARD: Device = Device {
        file_system: FileSystem::Ext4,
        room_bytes: Device::ROOM_BYTES,
        server: Server::Kilnyard,
        memory_bytes_max: Device::MEMORY_BYTES,
        requests: Requests::Forget,
    };

    /// Whether what a root writes goes to the memory of a server.
    pub fn is_in_memory(&self) -> bool {
        self.server != Server::Nbdkit && self.file_system.is_written()
    }
}

impl Default for Device {
    fn default() -> Self {
        Device::STANDARD
    }
}

/// Mount point of the device, relative to the root's folder.
pub const DISK: &str = "disk";
/// Mount point of the server or of `nbdfuse`, which shows the device as a file; relative to the root's folder.
pub(crate) const DEVICE: &str = "device";
/// The link to a device of ublk, in that folder.
const NODE: &str = "node";
/// Socket of the server, relative to the root's folder.
pub(crate) const SOCKET: &str = "socket";
/// Log of requests, relative to the root's folder.
pub const REQUESTS: &str = "requests";
/// Counters of requests ([`kilnyard_block::Counters`]), relative to the root's folder.
pub const COUNTERS: &str = "counters";
