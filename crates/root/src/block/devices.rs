//! What a keeper holds besides mounts: servers, and the devices that they are attached to.

use super::attach::Attached;
use super::serve::Server;
use super::{attach, file_system, serve, stamp};
use crate::{Flushes, Operation};
use std::io;
use std::path::{Path, PathBuf};

/// See the module. What is left of it ends with the keeper, whose children servers are.
#[derive(Default)]
pub(crate) struct Devices {
    /// By their sockets.
    servers: Vec<(PathBuf, Server)>,
    /// By the paths that operations know them by.
    attached: Vec<(PathBuf, Attached)>,
}

impl Devices {
    /// Performs an operation with devices; none if it is none.
    pub(crate) fn perform(&mut self, operation: &Operation) -> Option<io::Result<()>> {
        Some(match operation {
            Operation::Format { image, file_system, size_bytes } => {
                file_system::format(image, *file_system, *size_bytes)
            }
            Operation::Serve { image, socket, written, flushes, requests } => {
                serve::serve(image, socket, written, *flushes, requests.as_deref())
                    .map(|server| self.servers.push((socket.clone(), server)))
            }
            Operation::Stop { socket } => match take(&mut self.servers, socket) {
                Some(server) => server.stop(),
                None => Err(unknown(socket)),
            },
            Operation::Attach { source, device } => {
                attach::attach(source, device).map(|attached| self.attached.push((device.clone(), attached)))
            }
            Operation::Detach { device } => match take(&mut self.attached, device) {
                Some(attached) => attached.detach(),
                None => Err(unknown(device)),
            },
            Operation::Mount { device, target, file_system, flushes } => {
                match self.attached.iter().find(|(known, _)| known == device) {
                    Some((_, attached)) => {
                        file_system::mount(&attached.node(), target, *file_system, *flushes)
                    }
                    None => Err(unknown(device)),
                }
            }
            Operation::Drop { target } => file_system::unmount(target, Flushes::Discard),
            Operation::Stamp { folder, name } => stamp::stamp(folder, name),
            _ => return None,
        })
    }
}

fn take<T>(known: &mut Vec<(PathBuf, T)>, path: &Path) -> Option<T> {
    let at = known.iter().position(|(known, _)| known == path)?;
    Some(known.swap_remove(at).1)
}

fn unknown(path: &Path) -> io::Error {
    io::Error::other(format!("nothing is known as {}", path.display()))
}
