//! How much a command writes to the folders of its root, watched while it runs.
//!
//! A walk over all files knows it, and takes long where there are many. So the room that the file systems have left is
//! sampled each second, which costs nothing, and a walk is made when so much is gone that the limit may be passed, and now
//! and then in any case, since others may make room at the same time. Deleted files that a process still has open count as
//! well. All of it happens beside the thread that watches the command.
//!
//! Known downside: a deleted file that is only mapped into memory, and open nowhere, is seen by no walk.

use crate::onlooker::Onlooker;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the room on the disk is sampled: a disk takes some gigabytes a second at the most.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// A walk is made at least so often.
const WALK_INTERVAL_MAX: Duration = Duration::from_secs(20);
/// Walks take this share of the time at the most.
const WALK_SHARE: u32 = 20;

/// Where a command writes, and what it may write there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writing {
    /// The folders, seen from outside.
    pub folders: Vec<PathBuf>,
    /// What a root holds that was copied before the build began: it does not count.
    pub before_bytes: u64,
    /// What its files in memory may take, which are charged to its control group beside the memory of its processes.
    pub memory_bytes_max: u64,
}

/// What was written, as it is known; dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct Written {
    bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Written {
    /// Begins to watch. A thread that cannot be started watches nothing; the build's outputs are measured at its end all
    /// the same.
    pub(crate) fn watch(writing: &Writing, bytes_max: u64, outer: u32, onlooker: Onlooker) -> Written {
        let written = Written { bytes: Arc::default(), is_over: Arc::default() };
        let (bytes, is_over) = (written.bytes.clone(), written.is_over.clone());
        let writing = writing.clone();
        let watch = move || {
            let mut walks = Walks::begin(Instant::now());
            let first = used_bytes(&writing);
            // The command may have written something before this.
            let mut used_at_walk = first;
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let used = used_bytes(&writing);
                let known = bytes.load(Ordering::Relaxed);
                if walks.is_due(began, known.saturating_add(used.saturating_sub(used_at_walk)) > bytes_max) {
                    let enough = bytes_max.saturating_add(writing.before_bytes);
                    let walked = onlooker.written_bytes(outer, &writing.folders, enough);
                    // A tree that cannot be walked in time is judged by what is gone of the file system.
                    let found = walked.map_or(used.saturating_sub(first), |found| {
                        found.saturating_sub(writing.before_bytes)
                    });
                    bytes.store(found, Ordering::Relaxed);
                    used_at_walk = used;
                    walks.walked(began, Instant::now());
                }
                std::thread::park_timeout(SAMPLE_INTERVAL);
            }
        };
        let _ = std::thread::Builder::new().name("written".to_owned()).spawn(watch);
        written
    }

    /// What it had written at the last walk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// When a walk is made.
#[derive(Clone, Copy, Debug)]
struct Walks {
    begun: Instant,
    last: Option<(Instant, Duration)>,
}

impl Walks {
    fn begin(begun: Instant) -> Walks {
        Walks { begun, last: None }
    }

    fn is_due(self, now: Instant, may_have_passed: bool) -> bool {
        // The first one finds what commands before this one wrote.
        let Some((ended, took)) = self.last else {
            return may_have_passed || now >= self.begun + SAMPLE_INTERVAL;
        };
        let pause = took * WALK_SHARE;
        now >= ended + if may_have_passed { pause } else { pause.max(WALK_INTERVAL_MAX) }
    }

    fn walked(&mut self, began: Instant, ended: Instant) {
        self.last = Some((ended, ended - began));
    }
}

/// What is taken of the file systems of these folders, by all.
fn used_bytes(writing: &Writing) -> u64 {
    let used = |folder: &PathBuf| {
        let facts = rustix::fs::statvfs(folder).ok()?;
        Some(facts.f_blocks.saturating_sub(facts.f_bfree).saturating_mul(facts.f_frsize))
    };
    // Folders of one file system count it several times, which makes a walk come earlier.
    writing.folders.iter().filter_map(used).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_are_as_rare_as_they_are_long() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut walks = Walks::begin(start);
        assert!(walks.is_due(start, true) && !walks.is_due(start, false));
        assert!(walks.is_due(after(1), false));
        walks.walked(start, after(2));
        assert!(!walks.is_due(after(41), true) && walks.is_due(after(42), true));
        assert!(!walks.is_due(after(41), false) && walks.is_due(after(42), false));
        walks.walked(after(50), after(50));
        assert!(walks.is_due(after(51), true) && !walks.is_due(after(69), false));
        assert!(walks.is_due(after(70), false));
    }
}
