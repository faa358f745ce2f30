//! Requirements of block devices that can be checked without making one.

use super::{FileSystem, Server};
use std::path::{Path, PathBuf};

/// Where system programs are searched for.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The control node of ublk.
const UBLK: &str = "/dev/ublk-control";

/// Why roots on block devices do not work on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingRequirement {
    /// Only root may mount devices.
    #[error("roots on a block device need root: only root may mount a device")]
    Root,
    /// A program is not installed.
    #[error("{program} is not installed; it {purpose}")]
    Program {
        /// The name of the program.
        program: &'static str,
        /// A clause that reads after "it".
        purpose: &'static str,
        /// The Debian package that contains the program.
        package: &'static str,
    },
    /// The kernel or container lacks a kind of device.
    #[error("{path} not found: this kernel or container cannot attach a file as a device")]
    Kernel {
        /// The missing device node.
        path: &'static str,
    },
}

impl MissingRequirement {
    /// The package to install, if that helps.
    pub fn package(&self) -> Option<&'static str> {
        match self {
            MissingRequirement::Program { package, .. } => Some(package),
            MissingRequirement::Root | MissingRequirement::Kernel { .. } => None,
        }
    }

    /// The remedy, if it is not a package.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            MissingRequirement::Root => {
                Some("run as root, or set backend = \"overlay\" under [root] in kilnyard.toml")
            }
            MissingRequirement::Program { .. } => None,
            MissingRequirement::Kernel { path: UBLK } => {
                Some("run modprobe ublk_drv, on Linux 6.9 or later; or server = \"kilnyard\" under [root]")
            }
            MissingRequirement::Kernel { .. } => {
                Some("run modprobe nbd, or modprobe -a loop fuse; in a container, docker run --privileged")
            }
        }
    }
}

/// The first requirement for such devices that this machine does not meet; `None` if it meets all.
pub fn missing_requirement(server: Server, file_system: FileSystem) -> Option<MissingRequirement> {
    if !rustix::process::geteuid().is_root() {
        return Some(MissingRequirement::Root);
    }
    let (maker, package) = file_system.maker();
    let has_nbd = server == Server::Nbdkit && has_nbd();
    let needs_fuse = server != Server::Ublk && !has_nbd;
    let mut programs = vec![(maker, "makes file systems", package)];
    if server == Server::Nbdkit {
        let attaches = "attaches exports as devices";
        programs.push(("nbdkit", "serves images, copy-on-write", "nbdkit"));
        programs.push(match has_nbd {
            true => ("nbd-client", attaches, "nbd-client"),
            false => ("nbdfuse", attaches, "libnbd-bin"),
        });
    }
    let missing = programs.into_iter().find(|(name, ..)| program(name).is_none());
    if let Some((program, purpose, package)) = missing {
        return Some(MissingRequirement::Program { program, purpose, package });
    }
    // A writable image is made through a loop device, whatever attaches it later.
    let mut paths = Vec::new();
    if file_system.is_written() || needs_fuse {
        paths.push("/dev/loop-control");
    }
    if needs_fuse {
        paths.push("/dev/fuse");
    }
    if server == Server::Ublk {
        paths.push(UBLK);
    }
    let missing = paths.into_iter().find(|path| !Path::new(path).exists());
    missing.map(|path| MissingRequirement::Kernel { path })
}

/// The path of a program; `None` if it is not installed.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Whether the kernel's NBD client is loaded.
pub(super) fn has_nbd() -> bool {
    Path::new("/dev/nbd0").exists()
}
