//! What commands of a root wrote, how much that is, and what bounds it.

use super::{RootFolder, read_layers};
use crate::BUILDER_ID;
use crate::apart::Apart;
use crate::memory::Memory;
use kilnyard_process::Writing;
use kilnyard_root::quota::Project;
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{MEMORY, Sandbox, block, usage, used_bytes};
use std::io;
use std::path::{Path, PathBuf};

/// Room on the disk that must be left where the root of a failed build is kept.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// What is left at the least of memory that was enough, as a divisor of what was free.
const FREE_PART: u64 = 4;

/// How far a quota lies above the limit: enough that whoever reaches it has passed the limit.
const QUOTA_MARGIN_PART: u64 = 16;
const QUOTA_MARGIN_BYTES: u64 = 64 << 20;

impl RootFolder {
    /// The folder of what was written.
    pub(crate) fn upper(&self) -> PathBuf {
        self.seen(&self.plan.written)
    }

    /// Whether something was written, but below these folders.
    pub(crate) fn has_written(&self, but_below: &[&str]) -> bool {
        let upper = self.upper();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let Ok(entries) = fs_err::read_dir(upper.join(&folder)) else { return true };
            for entry in entries {
                let Ok(entry) = entry else { return true };
                let path = folder.join(entry.file_name());
                if but_below.iter().any(|folder| path == Path::new(folder)) {
                    continue;
                }
                // A folder on the way to one of them is there for its sake.
                if !but_below.iter().any(|folder| Path::new(folder).starts_with(&path)) {
                    return true;
                }
                open.push(path);
            }
        }
        false
    }

    /// Whether the build works in a folder that is no part of what is written.
    pub(crate) fn is_work_apart(&self) -> bool {
        self.plan.work_folder().is_some()
    }

    /// Where commands of the root write: on disks, and not in memory, which is bounded by its size. They are relative to the
    /// yard, since folders above it may be closed to the root's ids.
    fn written_folders(&self) -> Vec<PathBuf> {
        let is_in_memory = self.plan.written.starts_with(self.plan.folder.join(MEMORY));
        let own = (!is_in_memory).then(|| self.plan.written.clone());
        let writable = self.shown.writable.iter().map(|folder| self.reached(&folder.source));
        own.into_iter().chain(writable).collect()
    }

    /// A path of the machine as operations name it.
    pub(super) fn reached(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.yard).unwrap_or(path).to_owned()
    }

    /// What is charged for what was written, as the root's own root sees it.
    fn measured_inside(&self) -> Result<u64, RunError> {
        let sandbox = Sandbox {
            keeper: self.lasting.held.as_ref().map(|held| held.keeper.process()),
            ..Sandbox::of_machine(&self.yard, &self.ids, Task::Measure(self.written_folders()))
        };
        let text = sandbox.run()?;
        text.trim().parse().map_err(|error| RunError::Files(io::Error::other(error)))
    }

    /// Whether what is written is a copy of the layers, and not apart from them.
    fn is_copied(&self) -> bool {
        self.plan.lower().is_empty() && (!self.plan.has_device() || self.plan.writes_on_device())
    }

    /// What was written, without folders of the machine that were written in.
    pub(crate) fn written_bytes(&self) -> u64 {
        used_bytes(&self.seen(&self.plan.written))
    }

    /// Lets the kernel bound what is written to the disk, where it can: a little above the limit, which the watch reports.
    pub(crate) fn bound_writing(&self, bytes_max: Option<u64>) -> io::Result<()> {
        let (Some(project), Some(bytes_max)) = (&self.lasting.project, bytes_max) else { return Ok(()) };
        project
            .bound(bytes_max.saturating_add(bytes_max / QUOTA_MARGIN_PART).saturating_add(QUOTA_MARGIN_BYTES))
    }

    /// What was written to the disk, where the kernel bounds that.
    pub(crate) fn project_bytes(&self) -> Option<u64> {
        self.lasting.project.as_ref()?.used_bytes().ok()
    }

    /// Whether a build that failed may have failed for want of memory for its files. What did not fit is often removed
    /// by whoever wrote it.
    pub(crate) fn is_exhausted(&self) -> bool {
        let memory = self.memory();
        let facts = memory.and_then(|memory| rustix::fs::statvfs(memory).ok());
        facts
            .zip(self.lasting.held.as_ref())
            .is_some_and(|(facts, held)| facts.f_bavail < held.free_blocks / FREE_PART || facts.f_favail == 0)
    }

    /// The folder of what is in memory, seen from outside.
    fn memory(&self) -> Option<PathBuf> {
        self.lasting.held.as_ref().map(|held| held.keeper.seen_from_outside(&self.plan.folder.join(MEMORY)))
    }

    /// Whether the disk has room for more while this root stays. A build that filled the disk must not fail all
    /// others for the sake of its root.
    pub fn has_room_beside_it(&self) -> bool {
        let on_device = self.plan.writes_on_device().then(|| self.seen(&self.plan.written));
        let held = self.memory().into_iter().chain(on_device);
        let needed = ROOM_BYTES_MIN + held.map(|folder| used_bytes(&folder)).sum::<u64>();
        rustix::fs::statvfs(self.path()).is_ok_and(|facts| facts.f_bavail * facts.f_frsize >= needed)
    }

    /// The file that tells requests to the root's device, if they are told, and a name for it.
    pub(crate) fn requests(&self) -> Option<(PathBuf, String)> {
        let path = self.path().join(block::REQUESTS);
        let name = self.plan.folder.file_name()?.to_string_lossy().into_owned();
        path.exists().then(|| (path, format!("{name}-requests.log")))
    }

    /// What is watched while commands of the root write. `memory` knows how large layers are.
    pub(crate) fn writing(&self, memory: &Memory) -> Writing {
        let layers = self.is_copied().then(|| read_layers(&self.path())).flatten().unwrap_or_default();
        let in_memory = self.memory().and_then(|folder| rustix::fs::statvfs(folder).ok());
        Writing {
            folders: self.written_folders().iter().map(|folder| self.seen(folder)).collect(),
            before_bytes: layers
                .iter()
                .map(|layer| memory.layer(&self.yard.join(layer)).charged_bytes())
                .sum(),
            memory_bytes_max: in_memory.map_or(0, |facts| facts.f_blocks.saturating_mul(facts.f_frsize)),
        }
    }

    /// What counts against the limit of what a build writes, now that none of its commands runs.
    pub(crate) fn charged_bytes(&self, memory: &Memory) -> Result<u64, RunError> {
        let Writing { folders, before_bytes, .. } = self.writing(memory);
        let charged: u64 = match self.ids.is_ordinary() {
            false => folders.iter().map(|folder| usage(folder, u64::MAX).charged_bytes()).sum(),
            // The builder may have closed folders to everyone but the root's own root.
            true => self.measured_inside()?,
        };
        Ok(charged.saturating_sub(before_bytes))
    }

    /// The project of what a build writes, numbered as its builder, of which there is one at a time.
    pub(super) fn project(&self, apart: Option<&Apart>) -> io::Result<Option<Project>> {
        let apart = apart.filter(|apart| !apart.ids.is_ordinary());
        let number = apart.and_then(|apart| apart.ids.user_outside(BUILDER_ID));
        let (Some(number), Some(scratch)) = (number, self.plan.scratch()) else { return Ok(None) };
        let [upper, work] = scratch.map(|folder| self.yard.join(folder));
        Project::begin(&[&upper, &work], number)
    }
}
