//! The servers of a keeper, and the devices that their exports are attached as.

use super::attach::{Attached, is_node};
use super::serve::Server;
use super::{NODE, Server as Kind, attach, file_system, serve, stamp};
use crate::sandbox::system;
use crate::{Flushes, Operation};
use kilnyard_block::{Front, Service};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// All servers and devices that the keeper holds. Servers are children of the keeper, so any that remain end with it.
#[derive(Default)]
pub(crate) struct Devices {
    /// By socket or mount point.
    servers: Vec<(PathBuf, Server)>,
    /// By the path that operations name the device by.
    attached: Vec<(PathBuf, Attached)>,
    /// The namespaces of the servers, by the mount points that the servers do not see.
    outside: Vec<(PathBuf, Outside)>,
}

/// A mount namespace that this process has left, with the working folder it had there.
struct Outside {
    mounts: File,
    folder: PathBuf,
}

impl Outside {
    /// Moves to a copy of the mount namespace. Servers stay behind and do not see later mounts: if a server were the
    /// last process in the namespace of such a mount, its exit would wait for writes that only the server itself can
    /// perform.
    fn leave() -> io::Result<Outside> {
        let outside = Outside { mounts: File::open("/proc/self/ns/mnt")?, folder: std::env::current_dir()? };
        system::unshare(libc::CLONE_NEWNS)?;
        Ok(outside)
    }

    fn enter(&self) -> io::Result<()> {
        system::enter(&self.mounts, libc::CLONE_NEWNS)?;
        std::env::set_current_dir(&self.folder)
    }
}

impl Devices {
    /// Performs an operation on devices; `None` if the operation is not one of these.
    pub(crate) fn perform(&mut self, operation: &Operation) -> Option<io::Result<()>> {
        Some(match operation {
            Operation::Format { image, file_system, size_bytes } => {
                file_system::format(image, *file_system, *size_bytes)
            }
            Operation::Pack { folder, image } => file_system::pack(folder, image),
            Operation::Serve { image, socket, written, flushes, requests } => {
                serve::serve(image, socket, written, *flushes, requests.as_deref())
                    .map(|server| self.servers.push((socket.clone(), server)))
            }
            Operation::Show {
                server,
                image,
                folder,
                written,
                memory_bytes_max,
                flushes,
                requests,
                counters,
            } => {
                let front = match server {
                    Kind::Ublk => Front::Ublk { link: folder.join(NODE) },
                    _ => Front::Fuse { folder: folder.clone(), name: String::new() },
                };
                let service = Service {
                    image: image.clone(),
                    memory_bytes_max: *memory_bytes_max,
                    spill: written.clone(),
                    keeps_flushes: *flushes == Flushes::Keep,
                    is_read_only: false,
                    front,
                    requests: requests.clone(),
                    counters: Some(counters.clone()),
                    ready: PathBuf::new(),
                };
                serve::show(service, folder).map(|server| self.servers.push((folder.clone(), server)))
            }
            Operation::Hide { folder } => match take(&mut self.servers, folder) {
                // The device of ublk ends with its server.
                Some(server) if is_node(folder) => server.end(),
                // The server exits when its mount is gone.
                Some(server) => file_system::unmount(folder, Flushes::Keep).and_then(|()| server.finish()),
                None => Err(unknown(folder)),
            },
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
                    Some((_, attached)) => Outside::leave().and_then(|outside| {
                        let mounted = file_system::mount(&attached.node(), target, *file_system, *flushes);
                        if mounted.is_err() {
                            // Otherwise the device detached next would stay mounted in its server's namespace.
                            outside.enter()?;
                        } else {
                            self.outside.push((target.clone(), outside));
                        }
                        mounted
                    }),
                    None => Err(unknown(device)),
                }
            }
            Operation::Drop { target } => self.unmount(target, Flushes::Discard),
            Operation::Unmount { target } if self.outside.iter().any(|(mount, _)| mount == target) => {
                self.unmount(target, Flushes::Keep)
            }
            Operation::Stamp { folder, name } => stamp::stamp(folder, name),
            _ => return None,
        })
    }

    /// Unmounts, and returns to the mount namespace of the servers.
    fn unmount(&mut self, target: &Path, flushes: Flushes) -> io::Result<()> {
        file_system::unmount(target, flushes)?;
        take(&mut self.outside, target).map_or(Ok(()), |outside| outside.enter())
    }
}

fn take<T>(known: &mut Vec<(PathBuf, T)>, path: &Path) -> Option<T> {
    let at = known.iter().position(|(known, _)| known == path)?;
    Some(known.swap_remove(at).1)
}

fn unknown(path: &Path) -> io::Error {
    io::Error::other(format!("no server or device has the path {}", path.display()))
}
