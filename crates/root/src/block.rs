//! Roots on a block device of their own: an image of the layers, written copy on write.
//!
//! The image is a file system in a sparse file, with a copy of the layers in its folder [`TREE`]. It is made once for a stack
//! of layers and never changed. One that can only be read ([`FileSystem::Erofs`]) is a layer: what is written lies in the root's folder,
//! as of an overlay, and what is said below of writing is not about it. For each root `nbdkit` serves it over a Unix socket and keeps what is written apart, in an unlinked file
//! of the root's folder; what is served becomes a device of the kernel by `nbd.ko` where there is one, else by `nbdfuse`
//! and a loop device; the device is mounted. All of that is done by the root's [`Keeper`](crate::Keeper), as root and without a user namespace, in a
//! mount and a pid namespace of its own: servers end with its process 1, the mount with its namespace, and the loop device clears
//! itself then. The mount is in a namespace where no server is, so that it goes while they still serve.
//!
//! What must hold: a device is stamped with the name of its root, and one that has a stamp already is refused, so that none
//! is used twice. The kernel takes loop devices and fuse mounts away when it likes: who detaches waits until they are gone, or says who
//! holds them. Nothing that was written is brought to the disk at the end: the file system is told to go down first.
//!
//! What it does not do: work for an ordinary user, whom no kernel lets mount a device. Known downside: between a file and the
//! disk there are two servers, so that what is written goes through user space twice; and a
//! machine that is short of memory needs these servers to write what it wants to be rid of.

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
pub use needs::{Lack, lack};

use serde::{Deserialize, Serialize};
use std::fmt;

/// The file system of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// Without a journal, since nothing of it is ever repaired.
    #[default]
    Ext4,
    /// With everything that it cannot be without.
    Xfs,
    /// As small as the files, and only read.
    Erofs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Erofs];

    /// Its name, as the kernel has it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Erofs => "erofs",
        }
    }

    /// Whether it can be written at all.
    pub fn is_written(self) -> bool {
        self != FileSystem::Erofs
    }

    /// The program that makes one, and the package of Debian that has it.
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

/// What becomes of the requests to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requests {
    /// They are done, and that is all.
    #[default]
    Forget,
    /// Each is told in a file of the root's folder too.
    Log,
}

/// What devices are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The file system on it.
    pub file_system: FileSystem,
    /// How much a root may write on it at the least, if it is written.
    pub room_bytes: u64,
    /// What becomes of requests.
    pub requests: Requests,
}

impl Device {
    /// What packages write that are larger than most: images are sparse, so that only what is written takes room.
    pub const ROOM_BYTES: u64 = 20 << 30;
}

impl Default for Device {
    fn default() -> Self {
        let (file_system, requests) = Default::default();
        Device { file_system, room_bytes: Device::ROOM_BYTES, requests }
    }
}

/// The folder of a root's folder where its device is mounted.
pub const DISK: &str = "disk";
/// The folder of a root's folder where its device is a file, if it is a loop device.
pub(crate) const DEVICE: &str = "device";
/// The socket of a root's folder that its image is served at.
pub(crate) const SOCKET: &str = "socket";
/// The file of a root's folder that tells requests.
pub const REQUESTS: &str = "requests";
