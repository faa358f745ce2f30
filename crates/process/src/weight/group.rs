//! One control group per build, inside Kilnyard's own group.

use super::BuildNumber;
use super::scale::Scale;
use crate::groups::folder;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often removal is tried at the end, and the pause between tries: killed processes take a moment to go.
const LAST_TRIES: u32 = 20;
const LAST_TRIES_APART: Duration = Duration::from_millis(5);

/// How one version of control groups is operated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The name of the file that sets the weight.
    pub(super) weight: &'static str,
    pub(super) scale: Scale,
    /// Reads a group's CPU time; absent if the group does not count it.
    pub(super) cpu_seconds: fn(&Path) -> Option<f64>,
}

/// Cgroup v1: nanoseconds of all processes that were ever in the group
/// (Documentation/admin-guide/cgroup-v1/cpuacct.rst).
pub(super) const VERSION_1: Words = Words {
    weight: "cpu.shares",
    scale: Scale::VERSION_1,
    cpu_seconds: |group| {
        let text = std::fs::read_to_string(group.join("cpuacct.usage")).ok()?;
        text.trim().parse::<u64>().ok().map(|nanoseconds| nanoseconds as f64 / 1e9)
    },
};

/// Cgroup v2: microseconds of all processes that were ever in the group (Documentation/admin-guide/cgroup-v2.rst).
pub(super) const VERSION_2: Words = Words {
    weight: "cpu.weight",
    scale: Scale::VERSION_2,
    cpu_seconds: |group| {
        folder::count(&group.join("cpu.stat"), "usage_usec").map(|microseconds| microseconds as f64 / 1e6)
    },
};

#[derive(Debug)]
struct Build {
    /// The name of its folder in each hierarchy.
    name: String,
    /// The weight last written.
    weight: Option<u64>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Groups {
    words: Words,
    /// Kilnyard's own group in the hierarchy with weights.
    weighing: PathBuf,
    /// Kilnyard's own group in the hierarchy that counts CPU time, if there is one. It may be the same group.
    counting: Option<PathBuf>,
    builds: BTreeMap<BuildNumber, Build>,
    /// Number of groups created. Names are never reused, because a group may outlast its build for a moment.
    made: u64,
    /// Groups to remove once their last process has ended.
    lingering: BTreeSet<PathBuf>,
}

impl Groups {
    /// Takes over existing folders, and removes them when dropped.
    pub(super) fn new(
        words: Words,
        weighing: PathBuf,
        counting: Option<PathBuf>,
        lingering: Vec<PathBuf>,
    ) -> Groups {
        let lingering = lingering.into_iter().collect();
        Groups { words, weighing, counting, builds: BTreeMap::new(), made: 0, lingering }
    }

    /// Kilnyard's own group in the hierarchy with weights.
    pub(super) fn folder(&self) -> &Path {
        &self.weighing
    }

    fn tops(&self) -> impl Iterator<Item = &Path> {
        let other = self.counting.as_deref().filter(|counting| *counting != self.weighing);
        std::iter::once(self.weighing.as_path()).chain(other)
    }

    /// Creates the group of a build with the lowest weight, and returns its folders.
    pub(super) fn begin(&mut self, build: BuildNumber) -> io::Result<Arc<[PathBuf]>> {
        self.end(build);
        self.made += 1;
        let name = format!("build-{build}-{}", self.made);
        let folders: Vec<PathBuf> = self.tops().map(|top| top.join(&name)).collect();
        for folder in &folders {
            if let Err(error) = fs_err::create_dir(folder) {
                self.lingering.extend(folders);
                self.remove_lingering();
                return Err(error);
            }
        }
        self.builds.insert(build, Build { name, weight: None });
        if let Err(error) = self.weigh(build, self.words.scale.least()) {
            self.end(build);
            return Err(error);
        }
        Ok(folders.into())
    }

    fn weigh(&mut self, build: BuildNumber, weight: u64) -> io::Result<()> {
        let Some(known) = self.builds.get_mut(&build) else { return Ok(()) };
        if known.weight != Some(weight) {
            folder::write(&self.weighing.join(&known.name).join(self.words.weight), weight)?;
            known.weight = Some(weight);
        }
        Ok(())
    }

    /// Sets the weights, highest rank first; builds that are not named get the lowest. Continues after an error and
    /// returns the first.
    pub(super) fn order(&mut self, builds: &[BuildNumber]) -> io::Result<()> {
        let known = builds.iter().filter(|build| self.builds.contains_key(build));
        let mut ranks: BTreeMap<BuildNumber, usize> = BTreeMap::new();
        for build in known {
            let next = ranks.len();
            ranks.entry(*build).or_insert(next);
        }
        let mut outcome = Ok(());
        for build in self.builds.keys().copied().collect::<Vec<_>>() {
            let scale = self.words.scale;
            let weight = ranks.get(&build).map_or(scale.least(), |rank| scale.of_rank(*rank));
            outcome = outcome.and(self.weigh(build, weight));
        }
        outcome
    }

    /// CPU seconds used by all processes of a build, including those that were never waited for.
    pub(super) fn cpu_seconds(&self, build: BuildNumber) -> Option<f64> {
        (self.words.cpu_seconds)(&self.counting.as_ref()?.join(&self.builds.get(&build)?.name))
    }

    /// Removes the group of a build, now or once its last process has ended.
    pub(super) fn end(&mut self, build: BuildNumber) {
        if let Some(known) = self.builds.remove(&build) {
            let folders: Vec<PathBuf> = self.tops().map(|top| top.join(&known.name)).collect();
            self.lingering.extend(folders);
        }
        self.remove_lingering();
    }

    /// Retries the removal of groups that still had processes.
    pub(super) fn remove_lingering(&mut self) {
        self.lingering.retain(|folder| folder::remove(folder).is_err());
    }

    /// Removes all groups except the top ones, as far as possible within a tenth of a second.
    pub(super) fn finish(&mut self) {
        for build in self.builds.keys().copied().collect::<Vec<_>>() {
            self.end(build);
        }
        for _ in 0..LAST_TRIES {
            self.remove_lingering();
            if self.lingering.is_empty() {
                break;
            }
            std::thread::sleep(LAST_TRIES_APART);
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.finish();
        for top in self.tops() {
            // If it still has a process, the next start of this owner removes it.
            let _ = folder::remove(top);
        }
    }
}
