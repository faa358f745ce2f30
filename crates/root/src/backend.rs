//! The root backends, by the words of a configuration.

use crate::{Device, Flushes, Form, Making, Place};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the roots of builds are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// Read-only layers, and what is written above them: nothing is copied.
    #[default]
    Overlay,
    /// A copy of the layers in memory.
    Tmpfs,
    /// A copy of the layers in a folder, for machines that allow nothing else.
    Copy,
    /// An image of the base on a block device of the root's own, written copy on write.
    Block,
}

/// Where the written layer of an overlay lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scratch {
    /// On the disk of the yard.
    #[default]
    Disk,
    /// In memory, where a build is expected to fit.
    Memory,
}

/// What a configuration says of roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roots {
    /// How they are made.
    pub backend: Backend,
    /// Where overlays are written.
    pub scratch: Scratch,
    /// What becomes of flushes.
    pub flushes: Flushes,
    /// What block devices are like.
    pub device: Device,
}

impl Roots {
    /// Whether everything that a build writes is to be in memory, where it fits.
    pub fn is_in_memory(self) -> bool {
        match self.backend {
            Backend::Overlay => self.scratch == Scratch::Memory,
            Backend::Tmpfs => true,
            Backend::Copy | Backend::Block => false,
        }
    }

    /// Whether a root in memory holds a copy of its layers there too.
    pub fn copies_to_memory(self) -> bool {
        self.backend == Backend::Tmpfs
    }

    /// How a root is made whose files lie on the disk: one that is not for a build, or for a build that memory has no room
    /// for.
    pub fn on_disk(self) -> Making {
        let form = match self.backend {
            Backend::Overlay | Backend::Tmpfs | Backend::Block => Form::Overlay,
            Backend::Copy => Form::Copy,
        };
        Making { form, place: Place::Disk, flushes: self.flushes }
    }

    /// How the root of a build is made that was promised no memory.
    pub fn of_build(self) -> Making {
        match self.backend {
            Backend::Block => Making { form: Form::Image(self.device), ..self.on_disk() },
            Backend::Overlay | Backend::Tmpfs | Backend::Copy => self.on_disk(),
        }
    }

    /// How the root of a build is made that was promised so much memory, for all of it or for the folder that it works in.
    pub fn in_memory(self, size_bytes_max: u64) -> Making {
        let (form, place) = match self.is_in_memory() {
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
