//! A cgroup v2 for each command, where one can be created.
//!
//! It needs no controller. The kernel counts what the group's processes use and wait for, including processes that are
//! never waited for. It can also kill all of them together, whatever process 1 of their sandbox does, and including any
//! outside its pid namespace. The pid namespace is still needed: it is available everywhere, it tells process 1 which
//! processes to ask first, and the kernel ends it when Kilnyard is killed, unlike a group.
//!
//! The group is created inside that of the command's build if that is a cgroup v2, or else inside Kilnyard's own
//! group if it is delegated. Groups left behind by a killed Kilnyard are recognized by name, and removed when the
//! next command starts.
//!
//! Process 1 of the sandbox starts inside the group, because moving a process takes the kernel some ten idle
//! milliseconds.

use crate::groups::{base, folder, name};
use crate::snapshot;
use crate::weight::Membership;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the kernel may take to notice that all processes have ended.
const COUNTED_WITHIN: Duration = Duration::from_millis(50);
/// How long killed processes may take to disappear. A process that waits for a device cannot die before the device
/// answers.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// How often that is checked.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(2);

/// See the module documentation. Dropping it kills its processes and removes the group.
#[derive(Debug)]
pub(crate) struct Leaf {
    folder: PathBuf,
}

impl Leaf {
    /// Creates a group inside the build's group, or else inside Kilnyard's. `None` if that is not possible; the command
    /// then runs without one.
    pub(crate) fn begin(membership: Option<&Membership>) -> Option<Leaf> {
        Leaf::make(membership.and_then(Membership::group)).ok()
    }

    fn make(build: Option<&Path>) -> Result<Leaf, String> {
        let top = match build {
            Some(build) => build.to_owned(),
            None => top()?,
        };
        let folder = top.join(name::new(name::COMMANDS));
        fs_err::create_dir(&folder).map_err(|error| error.to_string())?;
        if let Some(build) = build {
            // Works only if the controller is available. From then on, the build's group itself may have no
            // processes, only its leaves.
            let _ = folder::write(&build.join("cgroup.subtree_control"), "+memory");
        }
        Ok(Leaf { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The peak of its charged memory, if the memory controller is enabled (since Linux 5.19). Shared pages count
    /// once, and so does file cache, which stays in memory until the space is needed.
    pub(crate) fn memory_peak_bytes(&self) -> Option<u64> {
        std::fs::read_to_string(self.folder.join("memory.peak")).ok()?.trim().parse().ok()
    }

    /// User and system time of all processes that were ever in it.
    pub(crate) fn cpu_seconds(&self) -> Option<(f64, f64)> {
        let seconds = |name| Some(folder::count(&self.folder.join("cpu.stat"), name)? as f64 / 1e6);
        Some((seconds("user_usec")?, seconds("system_usec")?))
    }

    /// Kills all its processes, if this kernel supports that.
    pub(crate) fn kill(&self) {
        let _ = folder::kill(&self.folder);
    }

    /// Removes the group. Remaining processes are killed; returns one line for each.
    pub(crate) fn end(&self) -> Vec<String> {
        let mut left = Vec::new();
        if !self.empties_within(COUNTED_WITHIN) {
            let processes = folder::processes(&self.folder).unwrap_or_default();
            let name = |number| Some(format!("{} ({number}), outside the sandbox", snapshot::line(number)?));
            left.extend(processes.into_iter().filter_map(name));
            self.kill();
            self.empties_within(KILLED_WITHIN);
        }
        // If a process cannot be killed, the group stays until a later Kilnyard removes it.
        let _ = folder::remove(&self.folder);
        left
    }

    fn empties_within(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while folder::count(&self.folder.join("cgroup.events"), "populated") == Some(1) {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(SAMPLE_INTERVAL);
        }
        true
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.end();
    }
}

/// The parent of groups for commands that run outside a build's group.
fn top() -> Result<PathBuf, String> {
    let (own, above) = base::look()?;
    let base = base::choose(&own, above.as_ref())?;
    folder::sweep(&base.folder, name::COMMANDS);
    Ok(base.folder.clone())
}

/// The folder in which the control groups of commands are created, or why they have none. Creates one to find out,
/// and removes those left behind by a killed Kilnyard.
pub fn folder_of_groups() -> Result<PathBuf, String> {
    let leaf = Leaf::make(None)?;
    let top = leaf.folder.parent().unwrap_or(&leaf.folder).to_owned();
    // Moving a process requires write access to the common ancestor of both groups (cgroups(7)).
    let procs = top.join("cgroup.procs");
    let may_move = rustix::fs::access(&procs, rustix::fs::Access::WRITE_OK);
    may_move.map_err(|error| format!("{}: {}", procs.display(), std::io::Error::from(error)))?;
    Ok(top)
}
