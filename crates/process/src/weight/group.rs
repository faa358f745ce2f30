//! A control group for each build, in a group of Kilnyard's own.

use super::BuildNumber;
use super::scale::Scale;
use crate::groups::folder;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often, and how far apart, removing is tried when all is over: processes that were killed need a moment.
const LAST_TRIES: u32 = 20;
const LAST_TRIES_APART: Duration = Duration::from_millis(5);

/// The words of a kind of control groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The file that takes a weight.
    pub(super) weight: &'static str,
    pub(super) scale: Scale,
    /// Reads CPU seconds from a group that counts.
    pub(super) cpu_seconds: fn(&Path) -> Option<f64>,
}

/// Version 1: nanoseconds of all that ever was in the group (Documentation/admin-guide/cgroup-v1/cpuacct.rst).
pub(super) const VERSION_1: Words = Words {
    weight: "cpu.shares",
    scale: Scale::VERSION_1,
    cpu_seconds: |group| {
        let text = std::fs::read_to_string(group.join("cpuacct.usage")).ok()?;
        text.trim().parse::<u64>().ok().map(|nanoseconds| nanoseconds as f64 / 1e9)
    },
};

/// Version 2: microseconds of all that ever was in the group (Documentation/admin-guide/cgroup-v2.rst).
pub(super) const VERSION_2: Words = Words {
    weight: "cpu.weight",
    scale: Scale::VERSION_2,
    cpu_seconds: |group| {
        folder::count(&group.join("cpu.stat"), "usage_usec").map(|microseconds| microseconds as f64 / 1e6)
    },
};

#[derive(Debug)]
struct Build {
    /// Its folder's name in each of the groups.
    name: String,
    /// What was written last.
    weight: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Groups {
    words: Words,
    /// Kilnyard's own group, in the hierarchy that has weights.
    weighing: PathBuf,
    /// The same in the one that counts CPU time, if there is one; it may be the same one.
    counting: Option<PathBuf>,
    builds: BTreeMap<BuildNumber, Build>,
    /// Names are not used again: a group may stay for a moment after its build.
    made: u64,
    /// To be removed as soon as the last process in them has ended.
    lingering: BTreeSet<PathBuf>,
}

impl Groups {
    /// In folders that are there already, and that are removed with this value.
    pub(super) fn new(
        words: Words,
        weighing: PathBuf,
        counting: Option<PathBuf>,
        lingering: Vec<PathBuf>,
    ) -> Groups {
        let lingering = lingering.into_iter().collect();
        Groups { words, weighing, counting, builds: BTreeMap::new(), made: 0, lingering }
    }

    /// Where the groups with weights are.
    pub(super) fn folder(&self) -> &Path {
        &self.weighing
    }

    fn tops(&self) -> impl Iterator<Item = &Path> {
        let other = self.counting.as_deref().filter(|counting| *counting != self.weighing);
        std::iter::once(self.weighing.as_path()).chain(other)
    }

    /// Makes the group of a build, with the least weight; its folders.
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

    /// Sets the weights, the highest rank first; builds that are not named have the least. The first error.
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

    /// What the processes of a build have used, also those that nobody waited for.
    pub(super) fn cpu_seconds(&self, build: BuildNumber) -> Option<f64> {
        (self.words.cpu_seconds)(&self.counting.as_ref()?.join(&self.builds.get(&build)?.name))
    }

    /// Removes the group of a build, at once or when its last process has ended.
    pub(super) fn end(&mut self, build: BuildNumber) {
        if let Some(known) = self.builds.remove(&build) {
            let folders: Vec<PathBuf> = self.tops().map(|top| top.join(&known.name)).collect();
            self.lingering.extend(folders);
        }
        self.remove_lingering();
    }

    /// Tries again to remove what stayed.
    pub(super) fn remove_lingering(&mut self) {
        self.lingering.retain(|folder| folder::remove(folder).is_err());
    }

    /// Removes all of it but the groups at the top, as far as that goes within a tenth of a second.
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
            // What has a process in it still is swept by the next one of this owner.
            let _ = folder::remove(top);
        }
    }
}
