//! The root backends, as the configuration names them.

use crate::{Device, Flushes, Form, Making, Place};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How build roots are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// Read-only layers below a writable one: nothing is copied.
    #[default]
    Overlay,
    /// A copy of the layers in memory.
    Tmpfs,
    /// A copy of the layers in a folder, for machines that allow nothing else.
    Copy,
    /// An image of the base on a block device, one device for each root, written copy-on-write.
    Block,
}

/// Where the writable layer of an overlay lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scratch {
    /// On the yard's disk.
    #[default]
    Disk,
    /// In memory, if the build is expected to fit.
    Memory,
}

/// The configuration of roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roots {
    /// How the files come together.
    pub backend: Backend,
    /// Where overlays are written; other backends ignore it.
    pub scratch: Scratch,
    /// Whether requests to flush reach the disk.
    pub flushes: Flushes,
    /// The device of the block backend; other backends ignore it.
    pub device: Device,
}

impl Roots {
    /// Whether everything that a build writes goes to memory, if it fits. On a block device, what does not fit goes to the
    /// disk.
    pub fn is_in_memory(self) -> bool {
        match self.backend {
            Backend::Overlay => self.scratch == Scratch::Memory,
            Backend::Tmpfs => true,
            Backend::Block => self.device.is_in_memory(),
            Backend::Copy => false,
        }
    }

    /// Whether a root in memory also holds a copy of its layers there.
    pub fn copies_to_memory(self) -> bool {
        self.backend == Backend::Tmpfs
    }

    /// Plans a root with its files on the disk: one that is not for a build, or one for a build that does not fit
    /// into memory.
    pub fn on_disk(self) -> Making {
        let form = match self.backend {
            Backend::Overlay | Backend::Tmpfs | Backend::Block => Form::Overlay,
            Backend::Copy => Form::Copy,
        };
        Making { form, place: Place::Disk, flushes: self.flushes }
    }

    /// Plans the root of a build to which no memory was promised.
    pub fn of_build(self) -> Making {
        match self.backend {
            Backend::Block => Making { form: Form::Image(self.device), ..self.on_disk() },
            Backend::Overlay | Backend::Tmpfs | Backend::Copy => self.on_disk(),
        }
    }

    /// Plans the root of a build to which this much memory was promised, for the whole root or for its work folder.
    pub fn in_memory(self, size_bytes_max: u64) -> Making {
        let (form, place) = match self.is_in_memory() {
            true if self.backend == Backend::Block => {
                (Form::Image(Device { memory_bytes_max: size_bytes_max, ..self.device }), Place::Disk)
            }
            true if self.copies_to_memory() => (Form::Copy, Place::Memory { size_bytes_max }),
            true => (Form::Overlay, Place::Memory { size_bytes_max }),
            false => (self.of_build().form, Place::WorkInMemory { size_bytes_max }),
        };
        Making { form, place, flushes: self.flushes }
    }
}

impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.backend, self.scratch) {
            (Backend::Overlay, Scratch::Disk) => "overlay",
            (Backend::Overlay, Scratch::Memory) => "overlay, scratch in memory",
            (Backend::Tmpfs, _) => "tmpfs",
            (Backend::Copy, _) => "copy",
            (Backend::Block, _) => "block",
        })
    }
}
