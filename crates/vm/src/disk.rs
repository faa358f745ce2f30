//! An image of layers as a read-only disk of a guest.
//!
//! Files of layers are read often. A guest that has them on a disk asks its host once for each block, and keeps it; by
//! virtiofs, it asks for each file, too. A server of this program ([`kilnyard_block`]) exports the image over NBD and
//! refuses writes, so that nothing a guest or QEMU does changes a layer.

use crate::machine::Ended;
use kilnyard_block::{Front, Service};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The socket, in the machine's folder.
const SOCKET: &str = "disk.socket";
/// The file that says that the server is ready.
const READY: &str = "disk.ready";
/// How long the server may take.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// An image in the place of layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The file, which has an erofs file system.
    pub file: PathBuf,
    /// The absolute path where sandboxes find its content. It need not exist here.
    pub at: PathBuf,
}

/// Starts the server of an image, and connects to it.
///
/// # Errors
/// It cannot be started, or ends at once.
pub(crate) fn start(folder: &Path, image: &Image) -> io::Result<(Ended, UnixStream)> {
    let service = Service {
        image: image.file.clone(),
        memory_bytes_max: 0,
        spill: PathBuf::from("."),
        keeps_flushes: false,
        is_read_only: true,
        front: Front::Nbd { socket: SOCKET.into() },
        requests: None,
        counters: None,
        ready: READY.into(),
    };
    let said = folder.join("disk.said");
    let mut command = service.command()?;
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs_err::File::create(&said)?.into_parts().0);
    let mut child = Ended(command.spawn()?);
    let until = Instant::now() + READY_WITHIN;
    let ready = folder.join(READY);
    let connected = loop {
        if fs_err::metadata(&ready).is_ok_and(|facts| facts.len() > 0) {
            // The path may be longer than the address of a socket.
            let within = fs_err::File::open(folder)?;
            break UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", within.as_raw_fd()));
        }
        if child.0.try_wait()?.is_some() || Instant::now() > until {
            let why = fs_err::read_to_string(&said).unwrap_or_default();
            break Err(io::Error::other(format!("the server of an image is not ready: {}", why.trim())));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    connected.map(|client| (child, client))
}
