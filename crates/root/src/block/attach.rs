//! Devices of what is served, or of a file.

use super::loop_device::LoopDevice;
use super::serve::Server;
use super::{file_system, holders, needs};
use crate::{Flushes, Source};
use std::io;
use std::path::{Path, PathBuf};

/// So many devices of `nbd.ko` are looked at.
const NBD_MAX: usize = 1024;

/// What an operation attached.
pub(super) enum Attached {
    /// A file, as a loop device.
    File(LoopDevice),
    /// What is served, as a file of a fuse mount, and that as a loop device.
    ByFuse {
        /// Where fuse is mounted.
        at: PathBuf,
        fuse: Server,
        device: LoopDevice,
    },
    /// What is served, by the kernel's own client.
    ByKernel { node: PathBuf, client: Server },
}

/// Attaches; `at` is a folder that is there if something served is attached.
pub(super) fn attach(source: &Source, at: &Path) -> io::Result<Attached> {
    match source {
        Source::File(file) => LoopDevice::show(file).map(Attached::File),
        Source::Served(socket) if needs::has_nbd() => by_kernel(socket, at),
        Source::Served(socket) => by_fuse(socket, at),
    }
}

fn by_fuse(socket: &Path, at: &Path) -> io::Result<Attached> {
    let file = at.join(file_name(&std::env::current_dir()?.join(at)));
    let arguments = [file.display().to_string(), "--unix".to_owned(), socket.display().to_string()];
    let fuse = Server::start("nbdfuse", &arguments, at, at)?;
    let device = LoopDevice::show(&file)?;
    Ok(Attached::ByFuse { at: at.to_owned(), fuse, device })
}

/// The name of the file that a device shows: it says whose it is, which is all that `losetup` tells a person.
fn file_name(folder: &Path) -> String {
    const BYTES_MAX: usize = 255;
    let name = folder.to_string_lossy().replace('/', "~");
    let start = (0..name.len()).find(|at| name.is_char_boundary(*at) && name.len() - at <= BYTES_MAX);
    name[start.unwrap_or(name.len())..].to_owned()
}

/// The client stays as long as the device: it is ended by the end of the keeper, whoever that is ended by. (By netlink it
/// would be the kernel's, and nobody would take it away.)
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
            None => return Err(io::Error::other("nbd-client does not get ready")),
        }
    }
    Err(io::Error::other("all devices of nbd.ko are in use"))
}

/// Whether a device of `nbd.ko` shows something: the kernel tells whose it is before it tells how large it is, and meanwhile
/// nothing can be read.
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
    /// The node of the device.
    pub(super) fn node(&self) -> PathBuf {
        match self {
            Attached::File(device) | Attached::ByFuse { device, .. } => device.node(),
            Attached::ByKernel { node, .. } => node.clone(),
        }
    }

    /// Takes it away, and waits until it is gone.
    pub(super) fn detach(self) -> io::Result<()> {
        match self {
            Attached::File(device) => device.clear(),
            Attached::ByFuse { at, fuse, device } => {
                device.clear()?;
                // Whoever serves a mount ends when that is taken away.
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
    fn a_device_says_whose_it_is() {
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
