//! What devices need of this machine, as far as it is seen without trying.

use super::FileSystem;
use std::path::{Path, PathBuf};

/// Where programs of the system are.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Why there can be no devices here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// Only root mounts devices.
    #[error("roots on a block device need root: nobody else may mount a device")]
    Root,
    /// A program is not installed.
    #[error("{program} is not installed, and {purpose}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it does.
        purpose: &'static str,
        /// The package of this machine's system that has it.
        package: &'static str,
    },
    /// The kernel, or the container, has no devices of a kind.
    #[error("{path} is not there: this kernel or container lets no file become a device")]
    Kernel {
        /// What is missing.
        path: &'static str,
    },
}

impl Lack {
    /// The package of this machine's system that would help.
    pub fn package(&self) -> Option<&'static str> {
        match self {
            Lack::Program { package, .. } => Some(package),
            Lack::Root | Lack::Kernel { .. } => None,
        }
    }

    /// What helps, where that is no package.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Lack::Root => Some("run as root; or backend = \"overlay\" under [root] in kilnyard.toml"),
            Lack::Program { .. } => None,
            Lack::Kernel { .. } => {
                Some("modprobe nbd, or modprobe loop fuse; in a container: docker run --privileged")
            }
        }
    }
}

/// The first thing that is missing here for devices with this file system, if anything is.
pub fn lack(file_system: FileSystem) -> Option<Lack> {
    if !rustix::process::geteuid().is_root() {
        return Some(Lack::Root);
    }
    let (maker, package) = file_system.maker();
    let attaches = "attaches what is served";
    let attacher = match has_nbd() {
        true => ("nbd-client", attaches, "nbd-client"),
        false => ("nbdfuse", attaches, "libnbd-bin"),
    };
    let mut programs = [
        ("nbdkit", "serves images, copy on write", "nbdkit"),
        attacher,
        (maker, "makes file systems", package),
    ]
    .into_iter();
    if let Some((program, purpose, package)) = programs.find(|(name, ..)| program(name).is_none()) {
        return Some(Lack::Program { program, purpose, package });
    }
    // An image that is written is made by way of a loop device, whatever serves it then.
    let mut paths = Vec::new();
    if file_system.is_written() || !has_nbd() {
        paths.push("/dev/loop-control");
    }
    if !has_nbd() {
        paths.push("/dev/fuse");
    }
    let missing = paths.into_iter().find(|path| !Path::new(path).exists());
    missing.map(|path| Lack::Kernel { path })
}

/// Where a program is, if it is installed.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Whether the kernel attaches what is served itself.
pub(super) fn has_nbd() -> bool {
    Path::new("/dev/nbd0").exists()
}
