//! The kernel's bound on the memory of a command, for commands in a control group with the memory controller.
//!
//! With cgroup v2 the group is the command's leaf; with cgroup v1 it is a group of the memory hierarchy, created for
//! the command. The monitor ends a command that holds too much memory, and names it. The kernel's bound is a little
//! higher, to catch what is allocated between two samples, and kills only processes of the group. Without such a
//! group, only the samples protect.

use crate::groups::{GroupPath, Hierarchy, folder, name};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel's bound exceeds the limit by the limit divided by this: the monitor should act first, and the kernel
/// also charges page tables, pipes and caches.
const MARGIN_PART: u64 = 4;
/// Killed processes leave their group a moment after they have been waited for.
const REMOVING_TRIES_MAX: u32 = 50;
const REMOVING_PAUSE: Duration = Duration::from_millis(2);

/// See the module documentation. Dropping it removes the group that was created.
#[derive(Debug)]
pub(crate) struct MemoryBound {
    /// The file that counts out-of-memory kills.
    events: PathBuf,
    /// A cgroup v1 created for this command.
    made: Option<PathBuf>,
}

impl MemoryBound {
    /// Bounds a cgroup v2 leaf, or creates a bounded cgroup v1 for the command to enter.
    pub(crate) fn set(leaf: Option<&Path>, limit_bytes: u64, files_bytes: u64) -> Option<MemoryBound> {
        let bytes = limit_bytes.saturating_add(limit_bytes / MARGIN_PART).saturating_add(files_bytes);
        leaf.and_then(|leaf| MemoryBound::of_leaf(leaf, bytes)).or_else(|| MemoryBound::of_version_1(bytes))
    }

    fn of_leaf(leaf: &Path, bytes: u64) -> Option<MemoryBound> {
        folder::write(&leaf.join("memory.max"), bytes).ok()?;
        // Swap would let it hold any amount. Without the file, there is no swap.
        let _ = folder::write(&leaf.join("memory.swap.max"), bytes);
        Some(MemoryBound { events: leaf.join("memory.events"), made: None })
    }

    fn of_version_1(bytes: u64) -> Option<MemoryBound> {
        let own = GroupPath::own(Hierarchy::Version1("memory"))?;
        folder::sweep(&own.folder, name::COMMANDS);
        let made = own.folder.join(name::new(name::COMMANDS));
        std::fs::create_dir(&made).ok()?;
        let bound = MemoryBound { events: made.join("memory.oom_control"), made: Some(made) };
        let made = bound.group()?;
        folder::write(&made.join("memory.limit_in_bytes"), bytes).ok()?;
        // Memory plus swap; the file exists where swap is counted.
        let _ = folder::write(&made.join("memory.memsw.limit_in_bytes"), bytes);
        Some(bound)
    }

    /// The cgroup v1 for the command to enter.
    pub(crate) fn group(&self) -> Option<&PathBuf> {
        self.made.as_ref()
    }

    /// Whether the kernel killed a process of the group for exceeding the bound.
    pub(crate) fn has_killed(&self) -> bool {
        folder::count(&self.events, "oom_kill").is_some_and(|count| count > 0)
    }
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        // If a process in it cannot be ended, the group stays until a later start removes it.
        if let Some(made) = &self.made {
            let tries = 0..REMOVING_TRIES_MAX;
            let is_there = |_: &u32| folder::remove(made).is_err();
            tries.take_while(is_there).for_each(|_| std::thread::sleep(REMOVING_PAUSE));
        }
    }
}
