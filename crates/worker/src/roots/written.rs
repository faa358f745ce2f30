//! Files that commands of a root wrote: their places, sizes and limits.

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

/// Free disk space that must remain when the root of a failed build is kept.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// Below this share of the initially free space in memory, a failed build may have run out of it; a divisor.
const FREE_PART: u64 = 4;

/// The quota is above the limit by this part of the limit and these bytes, so that a build that reaches the quota has
/// passed the limit.
const QUOTA_MARGIN_PART: u64 = 16;
const QUOTA_MARGIN_BYTES: u64 = 64 << 20;

impl RootFolder {
    /// The folder of written files.
    pub(crate) fn upper(&self) -> PathBuf {
        self.seen(&self.plan.written)
    }

    /// Whether anything was written outside these folders.
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
                // A parent of an ignored folder does not count by itself.
                if !but_below.iter().any(|folder| Path::new(folder).starts_with(&path)) {
                    return true;
                }
                open.push(path);
            }
        }
        false
    }

    /// Whether the work folder is separate from the root's written files.
    pub(crate) fn has_separate_work_folder(&self) -> bool {
        self.plan.work_folder().is_some()
    }

    /// The folders on disks that commands of the root write to. Memory is left out, since its size bounds it. The
    /// paths are relative to the yard, since the root's ids may lack access to folders above it.
    fn written_folders(&self) -> Vec<PathBuf> {
        let is_in_memory = self.plan.written.starts_with(self.plan.folder.join(MEMORY));
        let own = (!is_in_memory).then(|| self.plan.written.clone());
        let writable = self.shown.writable.iter().map(|folder| self.reached(&folder.source));
        own.into_iter().chain(writable).collect()
    }

    /// A path of the machine as operations use it: relative to the yard if it is in the yard.
    pub(super) fn reached(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.yard).unwrap_or(path).to_owned()
    }

    /// The disk usage charged for written files, measured by the root's own root user.
    fn measured_inside(&self) -> Result<u64, RunError> {
        let sandbox = Sandbox {
            keeper: self.lasting.held.as_ref().map(|held| held.keeper.process()),
            ..Sandbox::of_machine(&self.yard, &self.ids, Task::Measure(self.written_folders()))
        };
        let text = sandbox.run()?;
        text.trim().parse().map_err(|error| RunError::Files(io::Error::other(error)))
    }

    /// Whether the written files include a copy of the layers.
    fn is_copied(&self) -> bool {
        self.plan.lower().is_empty() && (!self.plan.has_device() || self.plan.writes_on_device())
    }

    /// The size of the written files, without writable folders of the machine.
    pub(crate) fn written_bytes(&self) -> u64 {
        used_bytes(&self.seen(&self.plan.written))
    }

    /// Sets a quota on writes to the disk, if the file system supports it. It is a little above the limit, since the
    /// monitor reports the limit itself.
    pub(crate) fn bound_writing(&self, bytes_max: Option<u64>) -> io::Result<()> {
        let (Some(project), Some(bytes_max)) = (&self.lasting.project, bytes_max) else { return Ok(()) };
        project
            .bound(bytes_max.saturating_add(bytes_max / QUOTA_MARGIN_PART).saturating_add(QUOTA_MARGIN_BYTES))
    }

    /// The size of the files written to the disk, if there is a quota.
    pub(crate) fn project_bytes(&self) -> Option<u64> {
        self.lasting.project.as_ref()?.used_bytes().ok()
    }

    /// Whether a failed build may have run out of memory for its files. Programs often remove a file that did not
    /// fit, so less than full counts too.
    pub(crate) fn is_exhausted(&self) -> bool {
        let memory = self.memory();
        let facts = memory.and_then(|memory| rustix::fs::statvfs(memory).ok());
        facts
            .zip(self.lasting.held.as_ref())
            .is_some_and(|(facts, held)| facts.f_bavail < held.free_blocks / FREE_PART || facts.f_favail == 0)
    }

    /// The folder of files in memory, as a path outside.
    fn memory(&self) -> Option<PathBuf> {
        self.lasting.held.as_ref().map(|held| held.keeper.seen_from_outside(&self.plan.folder.join(MEMORY)))
    }

    /// Whether the disk has room for other builds if this root is kept. Keeping the root of a build that filled the
    /// disk must not fail all other builds.
    pub fn has_room_for_others(&self) -> bool {
        let on_device = self.plan.writes_on_device().then(|| self.seen(&self.plan.written));
        let held = self.memory().into_iter().chain(on_device);
        let needed = ROOM_BYTES_MIN + held.map(|folder| used_bytes(&folder)).sum::<u64>();
        rustix::fs::statvfs(self.path()).is_ok_and(|facts| facts.f_bavail * facts.f_frsize >= needed)
    }

    /// The records of requests to the root's block device: a log if one is kept, and counters. Each with a name to keep it
    /// under.
    pub(crate) fn requests(&self) -> Vec<(PathBuf, String)> {
        let Some(name) = self.plan.folder.file_name().map(|name| name.to_string_lossy()) else {
            return Vec::new();
        };
        let records = [(block::REQUESTS, "requests.log"), (block::COUNTERS, "device.json")];
        let paths = records.map(|(file, kept)| (self.path().join(file), format!("{name}-{kept}")));
        paths.into_iter().filter(|(path, _)| path.exists()).collect()
    }

    /// The folders that commands of the root write in, as paths outside of it.
    pub fn written_outside(&self) -> Vec<PathBuf> {
        self.written_folders().iter().map(|folder| self.seen(folder)).collect()
    }

    /// The writes to monitor while commands of the root run. `memory` provides the sizes of layers.
    pub(crate) fn writing(&self, memory: &Memory) -> Writing {
        let layers = self.is_copied().then(|| read_layers(&self.path())).flatten().unwrap_or_default();
        let in_memory = self.memory().and_then(|folder| rustix::fs::statvfs(folder).ok());
        Writing {
            folders: self.written_outside(),
            before_bytes: layers
                .iter()
                .map(|layer| memory.layer(&self.yard.join(layer)).charged_bytes())
                .sum(),
            memory_bytes_max: in_memory.map_or(0, |facts| facts.f_blocks.saturating_mul(facts.f_frsize)),
        }
    }

    /// The size that counts against the build's limit on written files. Call this only when none of its commands runs.
    pub(crate) fn charged_bytes(&self, memory: &Memory) -> Result<u64, RunError> {
        let Writing { folders, before_bytes, .. } = self.writing(memory);
        let charged: u64 = match self.ids.is_ordinary() {
            false => folders.iter().map(|folder| usage(folder, u64::MAX).charged_bytes()).sum(),
            // The builder may have closed folders to everyone but the root's own root user.
            true => self.measured_inside()?,
        };
        Ok(charged.saturating_sub(before_bytes))
    }

    /// The quota project of a build's writes. Its number is the builder's id, which only one build has at a time.
    pub(super) fn project(&self, apart: Option<&Apart>) -> io::Result<Option<Project>> {
        let apart = apart.filter(|apart| !apart.ids.is_ordinary());
        let number = apart.and_then(|apart| apart.ids.user_outside(BUILDER_ID));
        let (Some(number), Some(scratch)) = (number, self.plan.scratch()) else { return Ok(None) };
        let [upper, work] = scratch.map(|folder| self.yard.join(folder));
        Project::begin(&[&upper, &work], number)
    }
}
