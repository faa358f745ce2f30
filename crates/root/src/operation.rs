//! The operations that make a root, in order.

use crate::FileSystem;
use crate::sandbox::Need;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The most layers that an overlay takes below the one that is written (`OVL_MAX_STACK` in fs/overlayfs).
pub const LAYERS_MAX: usize = 500;

/// Whether what is mounted can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Only read.
    Read,
    /// Read and written.
    Write,
}

/// Whose content copied files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Their own.
    Own,
    /// That of the layers: they are hard links, and nobody may write to them.
    Shared,
}

/// What becomes of a root's requests to bring data to the disk now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flushes {
    /// They are answered with success and cost nothing: a root that was not finished is thrown away, never repaired.
    #[default]
    Discard,
    /// They are done, for tests that look whether they are.
    Keep,
}

/// What a block device shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// What is served at this socket.
    Served(PathBuf),
}

/// One step of making a root. Paths are relative to the folder that the sandbox starts in (the yard),
/// but for devices and what [`Operation::Pivot`] leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Mounts read-only layers below a writable one.
    Overlay {
        /// The layers below, the uppermost first; at most [`LAYERS_MAX`].
        lower: Vec<PathBuf>,
        /// What is written goes here.
        upper: PathBuf,
        /// The kernel's scratch folder, on the same file system as `upper`.
        work: PathBuf,
        /// Where it is mounted.
        target: PathBuf,
        /// Whether writing waits for the disk where it is asked to.
        flushes: Flushes,
    },
    /// Makes a folder of the machine visible in the root.
    Bind {
        /// What is shown.
        source: PathBuf,
        /// Where.
        target: PathBuf,
        /// How.
        access: Access,
    },
    /// Puts a program of Kilnyard's own in the place of one of the root, which is seen at another place then. Where the
    /// root has no such program, or a link leads to it, nothing is done.
    StandIn {
        /// The root.
        root: PathBuf,
        /// The program, relative to the root.
        program: PathBuf,
        /// What stands in for it.
        with: PathBuf,
        /// Where the program itself is seen; a file is there.
        real: PathBuf,
    },
    /// Makes an empty file system in memory.
    Tmpfs {
        /// Where.
        target: PathBuf,
        /// The permissions of its folder.
        mode: u32,
        /// How large it may grow.
        size_bytes_max: u64,
    },
    /// Makes a device node of the machine visible in the root.
    Device {
        /// Its name below `/dev`.
        name: String,
        /// The root's `dev` folder.
        folder: PathBuf,
    },
    /// Mounts the process list of the sandbox's own pid namespace.
    Proc {
        /// Where.
        target: PathBuf,
    },
    /// Mounts a view of the devices' tree for reading, where the kernel allows.
    Sys {
        /// Where.
        target: PathBuf,
    },
    /// Mounts pseudo-terminals of the sandbox's own.
    Terminals {
        /// Where.
        target: PathBuf,
    },
    /// Makes a symbolic link.
    Link {
        /// What it points to.
        content: PathBuf,
        /// Where it is.
        path: PathBuf,
    },
    /// Copies layers into a folder that is there.
    Copy {
        /// The layers, the uppermost first.
        lower: Vec<PathBuf>,
        /// The folder.
        target: PathBuf,
        /// Whether files are written there.
        content: Content,
    },
    /// Makes a folder, if it is not there.
    Folder {
        /// Where.
        path: PathBuf,
    },
    /// Takes a mount away.
    Unmount {
        /// Where it is.
        target: PathBuf,
    },
    /// Removes a folder with all that is in it.
    Remove {
        /// Which.
        path: PathBuf,
    },
    /// Makes an empty file system in a new file.
    Format {
        /// The file.
        image: PathBuf,
        /// What is made.
        file_system: FileSystem,
        /// How large it is; what is not written takes no room.
        size_bytes: u64,
    },
    /// Makes a file system for reading in a new file, of all that is in a folder.
    Pack {
        /// The folder.
        folder: PathBuf,
        /// The file.
        image: PathBuf,
    },
    /// Serves an image over NBD, copy on write.
    Serve {
        /// The image, which stays as it is.
        image: PathBuf,
        /// The socket that it is served at.
        socket: PathBuf,
        /// The folder that keeps what is written, in a file without a name.
        written: PathBuf,
        /// Whether requests to flush are done.
        flushes: Flushes,
        /// A file that each request is told in.
        requests: Option<PathBuf>,
    },
    /// Ends a server.
    Stop {
        /// Its socket.
        socket: PathBuf,
    },
    /// Makes a block device of something.
    Attach {
        /// What it shows.
        source: Source,
        /// What other operations know it by; a folder that is there, if something served is attached.
        device: PathBuf,
    },
    /// Takes a block device away and waits until it is gone.
    Detach {
        /// Which.
        device: PathBuf,
    },
    /// Mounts the file system of a block device that was attached.
    Mount {
        /// The device.
        device: PathBuf,
        /// Where.
        target: PathBuf,
        /// What is on it.
        file_system: FileSystem,
        /// Whether all that was written is to be on the device in the end.
        flushes: Flushes,
    },
    /// Takes the mount of a block device away, without writing what was not written yet.
    Drop {
        /// Where it is.
        target: PathBuf,
    },
    /// Says whose a device is, which must have been nobody's.
    Stamp {
        /// Where it is mounted.
        folder: PathBuf,
        /// The root.
        name: String,
    },
    /// Sets the name of the machine.
    Hostname {
        /// The name.
        name: String,
    },
    /// Brings up the loopback device of the new network namespace.
    Loopback,
    /// Enters the root and leaves nothing of the machine's file systems behind.
    Pivot {
        /// The new root.
        target: PathBuf,
    },
    /// Gives a folder of the root, after it was entered, from one user to another and to the group of the same number. It stays
    /// as it is if it belongs to a third user, or is no folder.
    HandOver {
        /// The folder, inside.
        folder: PathBuf,
        /// Who has them before.
        from: u32,
        /// Who has them then.
        to: u32,
    },
    /// Shows the files of the root for reading, after it was entered; what else is mounted there stays as it is.
    Seal {
        /// Folders, inside, that stay as they are too. What is no folder is passed over, as a link is.
        open: Vec<PathBuf>,
    },
}

impl Operation {
    /// What takes it back, if it leaves anything behind that its folder's removal does not take along.
    pub fn undone(&self) -> Option<Operation> {
        match self {
            Operation::Overlay { target, .. }
            | Operation::Bind { target, .. }
            | Operation::Tmpfs { target, .. }
            | Operation::Proc { target }
            | Operation::Sys { target }
            | Operation::Terminals { target } => Some(Operation::Unmount { target: target.clone() }),
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
            | Operation::Stop { .. }
            | Operation::Detach { .. }
            | Operation::Drop { .. }
            | Operation::Stamp { .. }
            | Operation::Remove { .. } => None,
        }
    }
}

impl Operation {
    /// What it needs of the machine.
    pub(crate) fn need(&self) -> Need {
        match self {
            Operation::Overlay { .. } => Need::Overlay,
            Operation::Proc { .. } => Need::Proc,
            _ => Need::Other,
        }
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
            Operation::Serve { image, socket, written, flushes, requests } => {
                write!(f, "serve {} at {}, ", image.display(), socket.display())?;
                write!(f, "copy on write in {}", written.display())?;
                if *flushes == Flushes::Keep {
                    f.write_str(", flushed")?;
                }
                match requests {
                    Some(path) => write!(f, ", requests in {}", path.display()),
                    None => Ok(()),
                }
            }
            Operation::Stop { socket } => write!(f, "stop serving at {}", socket.display()),
            Operation::Attach { source: Source::File(file), .. } => {
                write!(f, "attach the file {}", file.display())
            }
            Operation::Attach { source: Source::Served(socket), device } => {
                write!(f, "attach what is served at {} as {}", socket.display(), device.display())
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
                write!(f, "unmount {}, dropping what is not written", target.display())
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
                write!(f, "seal / but for {}", open.join(", "))
            }
        }
    }
}

/// Shared memory of one root; what builds put there is counted as their memory.
const SHARED_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// `/dev` and `/run` hold nodes and small files only.
const SMALL_BYTES_MAX: u64 = 64 << 20;

/// What every root needs besides its files: devices, processes, a name, loopback.
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

/// The operations that open a folder itself as a root that keeps what is written: for making a base.
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
