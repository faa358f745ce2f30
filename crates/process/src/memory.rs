//! The kernel's own bound on the memory of a command, where it has a control group with that controller.
//!
//! Of version 2 it is the command's leaf; of version 1 a group of the memory hierarchy, made for the command. The monitor
//! ends a command that holds too much and names it; the kernel's bound stands a little above, for what is taken between two
//! samples, and kills within the group alone. Without such a group there are the samples alone.

use crate::groups::{Hierarchy, Place, folder, name};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel's bound is by a part of the limit above it, as a divisor: the monitor is to come first, and the kernel
/// charges page tables, pipes and caches too.
const MARGIN_PART: u64 = 4;
/// Killed processes leave their group a moment after they were waited for.
const REMOVING_TRIES_MAX: u32 = 50;
const REMOVING_PAUSE: Duration = Duration::from_millis(2);

/// See the module. Dropping it removes what was made.
#[derive(Debug)]
pub(crate) struct MemoryBound {
    /// The file that counts kills for memory.
    events: PathBuf,
    /// A group of version 1, which is made for this.
    made: Option<PathBuf>,
}

impl MemoryBound {
    /// Bounds a leaf of version 2, or a group of version 1 that the command is to enter.
    pub(crate) fn set(leaf: Option<&Path>, limit_bytes: u64, files_bytes: u64) -> Option<MemoryBound> {
        let bytes = limit_bytes.saturating_add(limit_bytes / MARGIN_PART).saturating_add(files_bytes);
        leaf.and_then(|leaf| MemoryBound::of_leaf(leaf, bytes)).or_else(|| MemoryBound::of_version_1(bytes))
    }

    fn of_leaf(leaf: &Path, bytes: u64) -> Option<MemoryBound> {
        folder::write(&leaf.join("memory.max"), bytes).ok()?;
        // Swap would let it hold as much as it likes; without the file there is none.
        let _ = folder::write(&leaf.join("memory.swap.max"), bytes);
        Some(MemoryBound { events: leaf.join("memory.events"), made: None })
    }

    fn of_version_1(bytes: u64) -> Option<MemoryBound> {
        let own = Place::own(Hierarchy::Version1("memory"))?;
        folder::sweep(&own.folder, name::COMMANDS);
        let made = own.folder.join(name::new(name::COMMANDS));
        std::fs::create_dir(&made).ok()?;
        let bound = MemoryBound { events: made.join("memory.oom_control"), made: Some(made) };
        let made = bound.group()?;
        folder::write(&made.join("memory.limit_in_bytes"), bytes).ok()?;
        // Memory with swap; the file is there where swap is counted.
        let _ = folder::write(&made.join("memory.memsw.limit_in_bytes"), bytes);
        Some(bound)
    }

    /// The group of version 1 that the command is to enter.
    pub(crate) fn group(&self) -> Option<&PathBuf> {
        self.made.as_ref()
    }

    /// Whether the kernel killed a process of the group for its bound.
    pub(crate) fn has_killed(&self) -> bool {
        folder::count(&self.events, "oom_kill").is_some_and(|count| count > 0)
    }
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        // While a process in it cannot be ended it stays, until a later start removes it.
        if let Some(made) = &self.made {
            let tries = 0..REMOVING_TRIES_MAX;
            let is_there = |_: &u32| folder::remove(made).is_err();
            tries.take_while(is_there).for_each(|_| std::thread::sleep(REMOVING_PAUSE));
        }
    }
}
