//! Attaches an NBD export or a file as a block device.

use super::loop_device::LoopDevice;
use super::serve::{Server, file_name};
use super::{NODE, file_system, holders, needs};
use crate::{Flushes, Source};
use std::io;
use std::path::{Path, PathBuf};

/// The maximum number of `nbd.ko` devices to check for a free one.
const NBD_MAX: usize = 1024;

/// An attached device, and how it was attached.
pub(super) enum Attached {
    /// A file, as a loop device.
    File(LoopDevice),
    /// A device that its server made.
    Node(PathBuf),
    /// An export, as a file in a fuse mount, and that file as a loop device.
    ByFuse {
        /// The fuse mount point.
        at: PathBuf,
        fuse: Server,
        device: LoopDevice,
    },
    /// An export, by the kernel's own client.
    ByKernel { node: PathBuf, client: Server },
}

/// Attaches a source; for an export, `at` is an existing folder.
pub(super) fn attach(source: &Source, at: &Path) -> io::Result<Attached> {
    match source {
        Source::File(file) => LoopDevice::show(file).map(Attached::File),
        Source::Shown(folder) if is_node(folder) => std::fs::read_link(folder.join(NODE)).map(Attached::Node),
        Source::Shown(folder) => LoopDevice::show(&file_in(folder)?).map(Attached::File),
        Source::Served(socket) if needs::has_nbd() => by_kernel(socket, at),
        Source::Served(socket) => by_fuse(socket, at),
    }
}

/// Whether a folder has the link to a device, and not the file that shows one.
pub(super) fn is_node(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder.join(NODE)).is_ok_and(|facts| facts.is_symlink())
}

/// The file that shows a device in this folder.
fn file_in(folder: &Path) -> io::Result<PathBuf> {
    Ok(folder.join(file_name(&std::env::current_dir()?.join(folder))))
}

fn by_fuse(socket: &Path, at: &Path) -> io::Result<Attached> {
    let file = file_in(at)?;
    let arguments = [file.display().to_string(), "--unix".to_owned(), socket.display().to_string()];
    let fuse = Server::start("nbdfuse", &arguments, at, at)?;
    let device = LoopDevice::show(&file)?;
    Ok(Attached::ByFuse { at: at.to_owned(), fuse, device })
}

/// Attaches by `nbd-client`, which runs as long as the device exists and ends with the keeper, however that ends. (A
/// device set up by netlink would belong to the kernel and outlive the keeper.)
fn by_kernel(socket: &Path, at: &Path) -> io::Result<Attached> {
    let is_free = |number: &usize| {
        let of = PathBuf::from(format!("/sys/block/nbd{number}"));
        of.exists() && !of.join("pid").exists()
    };
    for number in (0..NBD_MAX).filter(is_free) {
        let node = PathBuf::from(format!("/dev/nbd{number}"));
        let mut client = Server::start_unready("nbd-client", &client_arguments(socket, &node), at)?;
        let mut refused = None;
        let is_ready = holders::wait_until(|| {
            refused = client.ended()?;
            Ok(refused.is_some() || is_attached(number))
        })?;
        match refused {
            // Another program was faster.
            Some(why) if why.contains("busy") => client.finish()?,
            Some(why) => return Err(io::Error::other(format!("nbd-client ended with {why}"))),
            None if is_ready => return Ok(Attached::ByKernel { node, client }),
            None => return Err(io::Error::other("nbd-client did not become ready")),
        }
    }
    Err(io::Error::other("all nbd devices are in use"))
}

/// Whether a device of `nbd.ko` is ready. The kernel publishes the owner (`pid`) before the size, and nothing can be
/// read in between.
fn is_attached(number: usize) -> bool {
    let of = PathBuf::from(format!("/sys/block/nbd{number}"));
    let size = std::fs::read_to_string(of.join("size")).unwrap_or_default();
    of.join("pid").exists() && !matches!(size.trim(), "" | "0")
}

fn client_arguments(socket: &Path, node: &Path) -> [String; 5] {
    let (socket, node) = (socket.display().to_string(), node.display().to_string());
    ["-nonetlink".to_owned(), "-nofork".to_owned(), "-unix".to_owned(), socket, node]
}

impl Attached {
    pub(super) fn node(&self) -> PathBuf {
        match self {
            Attached::File(device) | Attached::ByFuse { device, .. } => device.node(),
            Attached::Node(node) | Attached::ByKernel { node, .. } => node.clone(),
        }
    }

    /// Detaches the device and waits until it is gone.
    pub(super) fn detach(self) -> io::Result<()> {
        match self {
            Attached::File(device) => device.clear(),
            // It ends with its server.
            Attached::Node(_) => Ok(()),
            Attached::ByFuse { at, fuse, device } => {
                device.clear()?;
                // A fuse server exits when its mount is gone.
                file_system::unmount(&at, Flushes::Keep)?;
                fuse.finish()
            }
            Attached::ByKernel { node, client } => {
                client.stop()?;
                let name = node.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let own = PathBuf::from(format!("/sys/block/{name}/pid"));
                match holders::wait_until(|| Ok(!own.exists()))? {
                    true => Ok(()),
                    false => Err(holders::held(&node.display().to_string(), &[])),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_device_names_its_root() {
        assert_eq!(file_name(Path::new("/yard/roots/1/device")), "~yard~roots~1~device");
        let long = file_name(&Path::new("/").join("ä".repeat(200)));
        assert_eq!(long.chars().count(), 127);
    }

    #[test]
    fn the_kernels_client_stays_with_its_keeper() {
        let arguments = client_arguments(Path::new("roots/1/socket"), Path::new("/dev/nbd3"));
        assert_eq!(arguments.join(" "), "-nonetlink -nofork -unix roots/1/socket /dev/nbd3");
    }
}
