//! The processors that machines can have.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The processor of a machine, by the kernel's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Architecture {
    /// 64-bit x86, which runs 32-bit programs too.
    X86_64,
    /// 64-bit ARM, which runs 32-bit programs too.
    Aarch64,
}

impl Architecture {
    /// That of this machine; absent if machines cannot have it.
    pub const OWN: Option<Architecture> = if cfg!(target_arch = "x86_64") {
        Some(Architecture::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Architecture::Aarch64)
    } else {
        None
    };

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
        }
    }

    /// The name that Debian's packages have for it.
    pub(crate) fn of_packages(self) -> &'static str {
        match self {
            Architecture::X86_64 => "amd64",
            Architecture::Aarch64 => "arm64",
        }
    }

    /// The program that runs its machines, and the Debian package that contains it.
    pub(crate) fn emulator(self) -> (&'static str, &'static str) {
        match self {
            Architecture::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
            Architecture::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
