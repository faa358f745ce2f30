//! The table `root`: how roots are made.

use super::Size;
use kilnyard_root::{Backend, Device, FileSystem, Flushes, Requests, Roots, Scratch};
use serde::Deserialize;

/// How roots are made, as configured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Root {
    backend: Backend,
    scratch: Scratch,
    flushes: Flushes,
    file_system: FileSystem,
    room: Option<Size>,
    requests: Requests,
}

impl Root {
    /// Converts the table, with defaults for what it leaves out.
    pub fn roots(self) -> Roots {
        let room_bytes = self.room.map_or(Device::ROOM_BYTES, |room| room.0);
        let device = Device { file_system: self.file_system, room_bytes, requests: self.requests };
        Roots { backend: self.backend, scratch: self.scratch, flushes: self.flushes, device }
    }
}
