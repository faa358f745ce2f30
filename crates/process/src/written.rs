//! Watches how much a command writes to the folders of its root.
//!
//! Only a walk over all files gives the exact amount, but a walk over many files is slow. The thread samples the free
//! space of the file systems every second, which is cheap. It walks the files when so much space is gone that the limit
//! may be exceeded, and also at intervals, since other processes may free space at the same time. Deleted files that a
//! process still has open count too. The thread is separate from the one that watches the command.
//!
//! Known downside: a walk does not see a deleted file that is only mapped into memory and open nowhere.

use crate::inspector::Inspector;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often free disk space is sampled. A disk takes a few gigabytes per second at most.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time between walks.
const WALK_INTERVAL_MAX: Duration = Duration::from_secs(20);
/// The pause after a walk, as a multiple of the walk's duration.
const WALK_SHARE: u32 = 20;

/// Where a command writes, and how much it may write there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writing {
    /// The folders, as paths outside the sandbox.
    pub folders: Vec<PathBuf>,
    /// What the root contained before the build began, which does not count.
    pub before_bytes: u64,
    /// The limit of its files in memory, which are charged to its control group in addition to process memory.
    pub memory_bytes_max: u64,
}

/// A running watch of what a command writes. Dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct Written {
    bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Written {
    /// Starts the watch. If the thread cannot be started, nothing is watched, but the build's outputs are still
    /// measured at its end.
    pub(crate) fn watch(writing: &Writing, bytes_max: u64, outer: u32, inspector: Inspector) -> Written {
        let written = Written { bytes: Arc::default(), is_over: Arc::default() };
        let (bytes, is_over) = (written.bytes.clone(), written.is_over.clone());
        let writing = writing.clone();
        let watch = move || {
            let mut walks = Walks::begin(Instant::now());
            let first = used_bytes(&writing);
            // The command may have written something before this point.
            let mut used_at_walk = first;
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let used = used_bytes(&writing);
                let known = bytes.load(Ordering::Relaxed);
                if walks.is_due(began, known.saturating_add(used.saturating_sub(used_at_walk)) > bytes_max) {
                    let enough = bytes_max.saturating_add(writing.before_bytes);
                    let walked = inspector.written_bytes(outer, &writing.folders, enough);
                    // If the walk takes too long, the space lost on the file system decides.
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

    /// Bytes written, as of the last walk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Schedules the walks.
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
        // The first walk finds what earlier commands wrote.
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

/// Space used on the file systems of these folders, whatever uses it.
fn used_bytes(writing: &Writing) -> u64 {
    let used = |folder: &PathBuf| {
        let facts = rustix::fs::statvfs(folder).ok()?;
        Some(facts.f_blocks.saturating_sub(facts.f_bfree).saturating_mul(facts.f_frsize))
    };
    // A file system with several of the folders counts several times, which only makes a walk come earlier.
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
