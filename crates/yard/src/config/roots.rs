//! The table `root`: how roots are made.

use super::{JOBS_MAX, Size};
use kilnyard_model::order::MachineTerms;
use kilnyard_root::{Backend, Device, FileSystem, Flushes, Requests, Roots, Scratch, Server};
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
    server: Server,
    requests: Requests,
    machine: Option<MachineWord>,
    cores: Option<u32>,
    memory: Option<Size>,
}

/// Where the commands of builds run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MachineWord {
    /// On the worker's machine.
    None,
    /// In a virtual machine.
    Vm,
}

/// Checks the size of a virtual machine.
pub(super) fn check_machine(cores: Option<u32>, memory: Option<Size>) -> Result<(), String> {
    if let Some(cores) = cores.filter(|cores| !(1..=JOBS_MAX).contains(&u64::from(*cores))) {
        return Err(format!("a machine of {cores} cores: must be from 1 to {JOBS_MAX}"));
    }
    match memory.filter(|memory| memory.0 < MachineTerms::MEMORY_BYTES_MIN) {
        Some(_) => Err(format!(
            "the memory of a machine must be at least {} MiB",
            MachineTerms::MEMORY_BYTES_MIN >> 20
        )),
        None => Ok(()),
    }
}

impl Root {
    /// Whether builds run in virtual machines, and their cores and memory.
    pub(super) fn machine(&self) -> (Option<MachineWord>, Option<u32>, Option<Size>) {
        (self.machine, self.cores, self.memory)
    }

    /// Whether builds run in virtual machines.
    pub(super) fn is_in_machine(&self) -> bool {
        self.machine == Some(MachineWord::Vm)
    }

    /// With virtual machines for all builds.
    pub(super) fn isolated(self) -> Root {
        Root { machine: Some(MachineWord::Vm), ..self }
    }

    /// Checks what the form of the table does not.
    pub(super) fn check(&self) -> Result<(), String> {
        check_machine(self.cores, self.memory).map_err(|reason| format!("root: {reason}"))
    }

    /// Converts the table, with defaults for what it leaves out.
    pub fn roots(self) -> Roots {
        let room_bytes = self.room.map_or(Device::ROOM_BYTES, |room| room.0);
        let device = Device {
            file_system: self.file_system,
            room_bytes,
            server: self.server,
            requests: self.requests,
            ..Device::STANDARD
        };
        Roots { backend: self.backend, scratch: self.scratch, flushes: self.flushes, device }
    }
}
