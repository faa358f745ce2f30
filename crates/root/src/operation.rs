//! The operations that make a root, in order.

use crate::sandbox::Need;
use crate::{FileSystem, Server};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The maximum number of lower layers of an overlay (`OVL_MAX_STACK` in fs/overlayfs).
pub const LAYERS_MAX: usize = 500;

/// Whether a mount is writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Writes fail with `EROFS`, also by the root user.
    Read,
    /// Read-write.
    Write,
}

/// Whether copied files share content with the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The copies are independent of the layers.
    Own,
    /// The copies are hard links to the layers' files and must never be written.
    Shared,
}

/// How a root's requests to flush data to the disk are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flushes {
    /// They return success and cost nothing: an unfinished root is discarded, never repaired.
    #[default]
    Discard,
    /// They are performed, for packages whose tests check that they are.
    Keep,
}

/// The backing store of a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// The device that is shown as a file in this folder.
    Shown(PathBuf),
    /// The NBD export at this socket.
    Served(PathBuf),
}

/// One step of making a root. Paths are relative to the folder that the sandbox starts in (the yard),
/// except for devices and the operations after [`Operation::Pivot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Mounts an overlay: read-only layers below a writable one.
    Overlay {
        /// The lower layers, uppermost first; at most [`LAYERS_MAX`].
        lower: Vec<PathBuf>,
        /// The writable layer.
        upper: PathBuf,
        /// The kernel's scratch folder, on the same file system as `upper`.
        work: PathBuf,
        /// The mount point.
        target: PathBuf,
        /// With [`Flushes::Discard`], writes never wait for the disk, even if they ask to.
        flushes: Flushes,
    },
    /// Mounts layers above each other for reading: a folder that is another one with changes.
    Layers {
        /// The layers, uppermost first; at least two, and at most [`LAYERS_MAX`].
        lower: Vec<PathBuf>,
        /// The mount point.
        target: PathBuf,
    },
    /// Bind-mounts a folder of the machine in the root.
    Bind {
        /// The folder on the machine.
        source: PathBuf,
        /// The mount point.
        target: PathBuf,
        /// Whether the root may write to it.
        access: Access,
    },
    /// Covers a program of the root with one of Kilnyard's and makes the original visible at another path. Does nothing
    /// if the root does not have the program, or if its path is a link.
    StandIn {
        /// The root's tree, in which the program is looked up.
        root: PathBuf,
        /// The program, relative to the root.
        program: PathBuf,
        /// Kilnyard's program.
        with: PathBuf,
        /// Where the original becomes visible; an existing file.
        real: PathBuf,
    },
    /// Mounts an empty file system in memory.
    Tmpfs {
        /// The mount point.
        target: PathBuf,
        /// The permissions of its top folder.
        mode: u32,
        /// Writes beyond this size fail with `ENOSPC`.
        size_bytes_max: u64,
    },
    /// Makes a device node of the machine visible in the root.
    Device {
        /// Its name below `/dev`.
        name: String,
        /// The root's `dev` folder.
        folder: PathBuf,
    },
    /// Mounts procfs for the sandbox's own pid namespace.
    Proc {
        /// The mount point.
        target: PathBuf,
    },
    /// Mounts sysfs read-only, if the kernel allows it.
    Sys {
        /// The mount point.
        target: PathBuf,
    },
    /// Mounts the sandbox's own pseudo-terminals (devpts).
    Terminals {
        /// The mount point.
        target: PathBuf,
    },
    /// Makes a symbolic link.
    Link {
        /// The path that it points to.
        content: PathBuf,
        /// The path of the link itself.
        path: PathBuf,
    },
    /// Copies layers into an existing folder.
    Copy {
        /// The layers, uppermost first.
        lower: Vec<PathBuf>,
        /// The folder to copy to.
        target: PathBuf,
        /// Whether to copy or to hard-link files.
        content: Content,
    },
    /// Makes a folder, unless it exists.
    Folder {
        /// Missing parents are made too.
        path: PathBuf,
    },
    /// Unmounts a file system.
    Unmount {
        /// The mount point.
        target: PathBuf,
    },
    /// Removes a folder with its content.
    Remove {
        /// Must exist.
        path: PathBuf,
    },
    /// Makes an empty file system in a new file.
    Format {
        /// The new file.
        image: PathBuf,
        /// The kind of file system.
        file_system: FileSystem,
        /// The size of the file, which is sparse.
        size_bytes: u64,
    },
    /// Makes a read-only file system in a new file, from the content of a folder.
    Pack {
        /// No process may write to it at the same time.
        folder: PathBuf,
        /// The new file.
        image: PathBuf,
    },
    /// Shows an image as a file in a FUSE mount, or as a device of ublk, copy-on-write: in memory first.
    Show {
        /// Kilnyard's server, in one of its forms.
        server: Server,
        /// The image, which is never changed.
        image: PathBuf,
        /// The mount point, or the folder of a link to the device.
        folder: PathBuf,
        /// The folder for written data that memory has no room for, which is kept in an unlinked file.
        written: PathBuf,
        /// The most bytes of written data in memory.
        memory_bytes_max: u64,
        /// Whether requests to flush are performed.
        flushes: Flushes,
        /// The log of requests, if one is kept.
        requests: Option<PathBuf>,
        /// The file for the counters of requests.
        counters: PathBuf,
    },
    /// Ends such a mount or device, and its server.
    Hide {
        /// The same folder.
        folder: PathBuf,
    },
    /// Serves an image over NBD, copy-on-write.
    Serve {
        /// The image, which is never changed.
        image: PathBuf,
        /// The Unix socket of the server.
        socket: PathBuf,
        /// The folder for written data, which is kept in an unlinked file.
        written: PathBuf,
        /// Whether requests to flush are performed.
        flushes: Flushes,
        /// The log of requests, if one is kept.
        requests: Option<PathBuf>,
    },
    /// Ends a server.
    Stop {
        /// The socket that the server was started with.
        socket: PathBuf,
    },
    /// Attaches a file or an NBD export as a block device.
    Attach {
        /// The file or export.
        source: Source,
        /// The path by which other operations name the device; for an export, an existing folder.
        device: PathBuf,
    },
    /// Detaches a block device and waits until it is gone.
    Detach {
        /// The path that it was attached as.
        device: PathBuf,
    },
    /// Mounts the file system of an attached block device.
    Mount {
        /// The path that the device was attached as.
        device: PathBuf,
        /// The mount point.
        target: PathBuf,
        /// Must be the one that the device was formatted with.
        file_system: FileSystem,
        /// Whether all written data must be on the device at the end.
        flushes: Flushes,
    },
    /// Unmounts a block device without writing back data that is still in memory.
    Drop {
        /// The mount point.
        target: PathBuf,
    },
    /// Marks a device as used by a root. Fails if it was marked before.
    Stamp {
        /// The mount point of the device.
        folder: PathBuf,
        /// The name of the root, which the mark contains.
        name: String,
    },
    /// Sets the hostname of the uts namespace.
    Hostname {
        /// At most 64 bytes, the limit of the kernel.
        name: String,
    },
    /// Brings up the loopback device of the new network namespace.
    Loopback,
    /// Makes the root the file system root, and detaches all file systems of the machine.
    Pivot {
        /// The new root.
        target: PathBuf,
    },
    /// After the pivot, changes the owner of a folder from one user to another, and its group to that of the same
    /// number. Does nothing if the folder belongs to a third user, or is not a folder.
    HandOver {
        /// The folder, as a path inside the root.
        folder: PathBuf,
        /// The previous owner.
        from: u32,
        /// The new owner.
        to: u32,
    },
    /// After the pivot, makes the files of the root read-only. Other mounts in it keep their access.
    Seal {
        /// Folders inside the root that stay writable. Anything else, such as a link, is ignored.
        open: Vec<PathBuf>,
    },
}

impl Operation {
    /// The operation that undoes this one; `None` if removing the root's folder is enough.
    pub fn undone(&self) -> Option<Operation> {
        match self {
            Operation::Overlay { target, .. }
            | Operation::Layers { target, .. }
            | Operation::Bind { target, .. }
            | Operation::Tmpfs { target, .. }
            | Operation::Proc { target }
            | Operation::Sys { target }
            | Operation::Terminals { target } => Some(Operation::Unmount { target: target.clone() }),
            Operation::Show { folder, .. } => Some(Operation::Hide { folder: folder.clone() }),
            Operation::Serve { socket, .. } => Some(Operation::Stop { socket: socket.clone() }),
            Operation::Attach { device, .. } => Some(Operation::Detach { device: device.clone() }),
            Operation::Mount { target, flushes, file_system, .. } => Some(match flushes {
                Flushes::Discard if file_system.is_written() => Operation::Drop { target: target.clone() },
                Flushes::Discard | Flushes::Keep => Operation::Unmount { target: target.clone() },
            }),
            Operation::StandIn { .. }
            | Operation::Device { .. }
            | Operation::Copy { .. }
            | Operation::Link { .. }
            | Operation::Folder { .. }
            | Operation::Hostname { .. }
            | Operation::Loopback
            | Operation::Pivot { .. }
            | Operation::HandOver { .. }
            | Operation::Seal { .. }
            | Operation::Unmount { .. }
            | Operation::Format { .. }
            | Operation::Pack { .. }
            | Operation::Hide { .. }
            | Operation::Stop { .. }
            | Operation::Detach { .. }
            | Operation::Drop { .. }
            | Operation::Stamp { .. }
            | Operation::Remove { .. } => None,
        }
    }
}

impl Operation {
    /// The kernel feature that it depends on.
    pub(crate) fn need(&self) -> Need {
        match self {
            Operation::Overlay { .. } | Operation::Layers { .. } => Need::Overlay,
            Operation::Proc { .. } => Need::Proc,
            _ => Need::Other,
        }
    }
}

/// Whether flushes are performed, and where requests are logged.
fn logged(f: &mut fmt::Formatter<'_>, flushes: Flushes, requests: Option<&Path>) -> fmt::Result {
    if flushes == Flushes::Keep {
        f.write_str(", flushed")?;
    }
    match requests {
        Some(path) => write!(f, ", requests in {}", path.display()),
        None => Ok(()),
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Overlay { lower, upper, target, flushes, .. } => {
                let lower: Vec<_> = lower.iter().map(|path| path.display().to_string()).collect();
                write!(f, "overlay {} over {} at {}", upper.display(), lower.join(":"), target.display())?;
                match flushes {
                    Flushes::Discard => Ok(()),
                    Flushes::Keep => f.write_str(", flushed"),
                }
            }
            Operation::Layers { lower, target } => {
                let lower: Vec<_> = lower.iter().map(|path| path.display().to_string()).collect();
                write!(f, "layers {} at {} for reading", lower.join(":"), target.display())
            }
            Operation::Bind { source, target, access } => {
                let how = match access {
                    Access::Read => "for reading",
                    Access::Write => "for writing",
                };
                write!(f, "bind {} at {} {how}", source.display(), target.display())
            }
            Operation::StandIn { root, program, with, real } => {
                let program = root.join(program);
                write!(f, "stand-in {} for {}, seen at {}", with.display(), program.display(), real.display())
            }
            Operation::Tmpfs { target, size_bytes_max, .. } => {
                write!(f, "tmpfs of at most {size_bytes_max} bytes at {}", target.display())
            }
            Operation::Device { name, folder } => write!(f, "device {name} in {}", folder.display()),
            Operation::Proc { target } => write!(f, "proc at {}", target.display()),
            Operation::Sys { target } => write!(f, "sysfs at {} where allowed", target.display()),
            Operation::Terminals { target } => write!(f, "devpts at {}", target.display()),
            Operation::Link { content, path } => {
                write!(f, "link {} to {}", path.display(), content.display())
            }
            Operation::Copy { lower, target, content } => {
                let lower: Vec<_> = lower.iter().map(|path| path.display().to_string()).collect();
                let verb = match content {
                    Content::Own => "copy",
                    Content::Shared => "hard-link",
                };
                write!(f, "{verb} {} to {}", lower.join(":"), target.display())
            }
            Operation::Folder { path } => write!(f, "folder {}", path.display()),
            Operation::Unmount { target } => write!(f, "unmount {}", target.display()),
            Operation::Remove { path } => write!(f, "remove {}", path.display()),
            Operation::Format { image, file_system, size_bytes } => {
                write!(f, "format {} of {size_bytes} bytes as {file_system}", image.display())
            }
            Operation::Pack { folder, image } => {
                write!(f, "pack {} into {} as erofs", folder.display(), image.display())
            }
            Operation::Show {
                server, image, folder, written, memory_bytes_max, flushes, requests, ..
            } => {
                let how = if *server == Server::Ublk { " by ublk" } else { "" };
                write!(f, "show {} in {}{how}, ", image.display(), folder.display())?;
                write!(f, "copy-on-write in {memory_bytes_max} bytes of memory and {}", written.display())?;
                logged(f, *flushes, requests.as_deref())
            }
            Operation::Hide { folder } => write!(f, "end the device in {}", folder.display()),
            Operation::Serve { image, socket, written, flushes, requests } => {
                write!(f, "serve {} at {}, ", image.display(), socket.display())?;
                write!(f, "copy-on-write in {}", written.display())?;
                logged(f, *flushes, requests.as_deref())
            }
            Operation::Stop { socket } => write!(f, "stop serving at {}", socket.display()),
            Operation::Attach { source: Source::File(file), .. } => {
                write!(f, "attach the file {}", file.display())
            }
            Operation::Attach { source: Source::Shown(folder), .. } => {
                write!(f, "attach the device in {}", folder.display())
            }
            Operation::Attach { source: Source::Served(socket), device } => {
                write!(f, "attach the export at {} as {}", socket.display(), device.display())
            }
            Operation::Detach { device } => write!(f, "detach {}", device.display()),
            Operation::Mount { device, target, file_system, flushes } => {
                write!(f, "mount {file_system} of {} at {}", device.display(), target.display())?;
                match flushes {
                    Flushes::Discard => Ok(()),
                    Flushes::Keep => f.write_str(", flushed"),
                }
            }
            Operation::Drop { target } => {
                write!(f, "unmount {}, dropping unwritten data", target.display())
            }
            Operation::Stamp { folder, name } => write!(f, "stamp {} as {name}", folder.display()),
            Operation::Hostname { name } => write!(f, "hostname {name}"),
            Operation::Loopback => f.write_str("loopback up"),
            Operation::Pivot { target } => write!(f, "pivot to {}", target.display()),
            Operation::HandOver { folder, from, to } => {
                write!(f, "hand {} over from user {from} to {to}", folder.display())
            }
            Operation::Seal { open } => {
                let open: Vec<_> = open.iter().map(|path| path.display().to_string()).collect();
                write!(f, "seal / except {}", open.join(", "))
            }
        }
    }
}

/// Shared memory of one root; its content counts as memory of the build.
const SHARED_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// `/dev` and `/run` hold only nodes and small files.
const SMALL_BYTES_MAX: u64 = 64 << 20;

/// The operations that every root needs in addition to its files: devices, processes, a hostname, loopback.
pub(crate) fn system_operations(root: &Path) -> Vec<Operation> {
    let dev = root.join("dev");
    let tmpfs =
        |path: &str, mode, size_bytes_max| Operation::Tmpfs { target: root.join(path), mode, size_bytes_max };
    let folders = ["dev", "run", "proc", "sys"].map(|name| Operation::Folder { path: root.join(name) });
    let mut operations = folders.to_vec();
    operations.push(tmpfs("dev", 0o755, SMALL_BYTES_MAX));
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        operations.push(Operation::Device { name: name.to_owned(), folder: dev.clone() });
    }
    for (name, content) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        operations.push(Operation::Link { content: content.into(), path: dev.join(name) });
    }
    operations.extend([
        Operation::Folder { path: dev.join("pts") },
        Operation::Terminals { target: dev.join("pts") },
        Operation::Folder { path: dev.join("shm") },
        tmpfs("dev/shm", 0o1777, SHARED_MEMORY_BYTES_MAX),
        tmpfs("run", 0o755, SMALL_BYTES_MAX),
        Operation::Folder { path: root.join("run/lock") },
        Operation::Proc { target: root.join("proc") },
        Operation::Sys { target: root.join("sys") },
        Operation::Hostname { name: "kilnyard".to_owned() },
        Operation::Loopback,
    ]);
    operations
}

/// The operations that enter a folder itself as a root, so that writes stay in it. Used to make a base.
pub fn base_operations(folder: &Path, binds: &[(PathBuf, PathBuf, Access)]) -> Vec<Operation> {
    let bind = Operation::Bind { source: folder.into(), target: folder.into(), access: Access::Write };
    let mut operations = vec![bind];
    operations.extend(system_operations(folder));
    for (source, inside, access) in binds {
        let target = folder.join(inside.strip_prefix("/").unwrap_or(inside));
        operations.push(Operation::Folder { path: target.clone() });
        operations.push(Operation::Bind { source: source.clone(), target, access: *access });
    }
    operations.push(Operation::Pivot { target: folder.into() });
    operations
}
