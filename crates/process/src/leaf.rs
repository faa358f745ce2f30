//! A control group of version 2 for each command, where one can be made.
//!
//! It needs no controller. The kernel counts what processes of a group use and wait for, also those that nobody waited for,
//! and kills all of them at once, whatever process 1 of their sandbox does, and also who is not in its pid namespace. The
//! namespace stays all the same: it is there for everybody, it tells process 1 alone whom to ask first, and the kernel ends
//! it when Kilnyard is killed, which no group does.
//!
//! The group is made in that of the command's build, where that is one of version 2, and else in the group that Kilnyard
//! itself is in, if that was handed over to it. What a killed Kilnyard left is known by its name, and goes when the next
//! command is started.
//!
//! Process 1 of the sandbox is begun in the group: to move a process takes the kernel some ten milliseconds, in which nobody
//! works.

use crate::groups::{base, folder, name};
use crate::portrait;
use crate::weight::Membership;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long it may take until the kernel has counted that all have ended.
const COUNTED_WITHIN: Duration = Duration::from_millis(50);
/// How long killed processes may take until they are gone; who waits for a device cannot die before that one answers.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// How often that is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// See the module. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Leaf {
    folder: PathBuf,
}

impl Leaf {
    /// A new group in that of a build, and else where Kilnyard is. None where no such group can be made: the command runs
    /// without.
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
            // Where the controller is there. No process may be in the build's group itself then, but for its leaves.
            let _ = folder::write(&build.join("cgroup.subtree_control"), "+memory");
        }
        Ok(Leaf { folder })
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The most memory that was ever charged to it, where the controller is there (since Linux 5.19). That has what its
    /// processes share once, and files that are kept in memory until somebody needs the room.
    pub(crate) fn memory_peak_bytes(&self) -> Option<u64> {
        std::fs::read_to_string(self.folder.join("memory.peak")).ok()?.trim().parse().ok()
    }

    /// User and system time of all that ever was in it.
    pub(crate) fn cpu_seconds(&self) -> Option<(f64, f64)> {
        let seconds = |name| Some(folder::count(&self.folder.join("cpu.stat"), name)? as f64 / 1e6);
        Some((seconds("user_usec")?, seconds("system_usec")?))
    }

    /// Kills all that is in it, where this kernel can.
    pub(crate) fn kill(&self) {
        let _ = folder::kill(&self.folder);
    }

    /// Removes it. Who is in it still is killed: a line for each.
    pub(crate) fn end(&self) -> Vec<String> {
        let mut left = Vec::new();
        if !self.empties_within(COUNTED_WITHIN) {
            let processes = folder::processes(&self.folder).unwrap_or_default();
            let name =
                |number| Some(format!("{} ({number}), outside of its sandbox", portrait::line(number)?));
            left.extend(processes.into_iter().filter_map(name));
            self.kill();
            self.empties_within(KILLED_WITHIN);
        }
        // With a process that nobody can end it stays, until a Kilnyard that comes later removes it.
        let _ = folder::remove(&self.folder);
        left
    }

    fn empties_within(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while folder::count(&self.folder.join("cgroup.events"), "populated") == Some(1) {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        true
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.end();
    }
}

/// The group that those of commands without a build's group are made in.
fn top() -> Result<PathBuf, String> {
    let (own, above) = base::look()?;
    let base = base::choose(&own, above.as_ref())?;
    folder::sweep(&base.folder, name::COMMANDS);
    Ok(base.folder.clone())
}

/// The folder that control groups of commands are made in, or why they have none. Tries it, and removes what was left by a
/// Kilnyard that was killed.
pub fn folder_of_groups() -> Result<PathBuf, String> {
    let leaf = Leaf::make(None)?;
    let top = leaf.folder.parent().unwrap_or(&leaf.folder).to_owned();
    // Who moves a process has to be allowed to write to what is around both groups (cgroups(7)).
    let procs = top.join("cgroup.procs");
    let may_move = rustix::fs::access(&procs, rustix::fs::Access::WRITE_OK);
    may_move.map_err(|error| format!("{}: {}", procs.display(), std::io::Error::from(error)))?;
    Ok(top)
}
