//! A device as an NBD export at a Unix socket.
//!
//! The protocol is that of NetworkBlockDevice/nbd, doc/proto.md: fixed newstyle negotiation without TLS, structured
//! replies, the metadata context `base:allocation`, and several connections at once.
//!
//! A client can be a virtual machine, and is not trusted: lengths are bounded before memory is reserved, and a request
//! that makes no sense ends its connection or gets an error.

mod handshake;
mod stream;
mod transmission;

use super::Running;
use crate::Disk;
use rustix::fs::Mode;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stream::Stream;

/// The connections at one time: a machine uses one for each of its cores.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take for a message of the handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// An export that waits for clients.
pub struct Export {
    disk: Arc<Disk>,
    listener: UnixListener,
}

impl Export {
    /// Makes the socket, which only this user can use.
    ///
    /// # Errors
    /// The socket exists, or its path is too long (108 bytes).
    pub fn new(disk: Arc<Disk>, socket: &Path) -> io::Result<Export> {
        let listener = UnixListener::bind(socket)?;
        rustix::fs::chmod(socket, Mode::RUSR | Mode::WUSR)?;
        Ok(Export { disk, listener })
    }

    /// Serves clients.
    ///
    /// # Errors
    /// No more connections can be accepted.
    pub fn serve(&self) -> io::Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        for client in self.listener.incoming() {
            let client = match client {
                Ok(client) => client,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (disk, open) = (self.disk.clone(), open.clone());
            let is_over = open.clone();
            let begun = std::thread::Builder::new().spawn(move || {
                // A client that breaks the protocol or leaves harms itself alone.
                let _ = talk(&disk, client);
                open.fetch_sub(1, Ordering::Relaxed);
            });
            if begun.is_err() {
                // There are no more threads: the client was disconnected, and may try again.
                is_over.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

impl Running for Export {
    fn run(self: Box<Self>) -> io::Result<()> {
        self.serve()
    }
}

/// Serves one client until it leaves.
///
/// # Errors
/// The client broke the protocol, or the connection ended within a message.
pub fn talk(disk: &Disk, client: UnixStream) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut stream = Stream::new(client);
    let Some(agreed) = handshake::agree(&mut stream, disk)? else { return Ok(()) };
    stream.socket().set_read_timeout(None)?;
    transmission::answer(&mut stream, disk, agreed)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the client broke the NBD protocol: {what}"))
}
