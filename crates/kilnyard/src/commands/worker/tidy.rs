//! Keeps the worker's folder within its bound, and reports what it keeps.

use super::join::FREE_BYTES_MIN;
use crate::words;
use kilnyard_farm::client::Client;
use kilnyard_worker::Worker;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often the folder is checked, if builds have begun or ended since.
const INTERVAL: Duration = Duration::from_secs(10);
/// Less free space has the worker remove more than its bound says, before it takes no builds for lack of space.
const FREE_BYTES_LOW: u64 = 2 * FREE_BYTES_MIN;

/// See the module documentation.
pub struct Tidy {
    pub client: Arc<Client>,
    pub worker: Worker,
    /// The worker's folder.
    pub folder: PathBuf,
    /// What it may keep, in bytes.
    pub keep_bytes: u64,
}

impl Tidy {
    /// Checks the folder now, then in a thread until the connection is closed.
    pub fn start(self) {
        let mut seen = self.worker.uses_so_far();
        self.check();
        thread::spawn(move || {
            while !self.client.is_closed() {
                thread::sleep(INTERVAL);
                // Before the check: what changes during it counts for the next one.
                let now = self.worker.uses_so_far();
                let is_due = now != seen || self.free_bytes().is_some_and(|bytes| bytes < FREE_BYTES_LOW);
                if is_due && self.check() {
                    seen = now;
                }
            }
        });
    }

    fn free_bytes(&self) -> Option<u64> {
        let facts = rustix::fs::statvfs(&self.folder).ok()?;
        Some(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    /// Returns whether the folder could be read.
    fn check(&self) -> bool {
        let bytes_max = |kept_bytes| limit(self.keep_bytes, kept_bytes, self.free_bytes());
        match self.worker.tidy(&bytes_max) {
            Ok(tidied) => {
                if tidied.removed > 0 {
                    let (count, size) = (tidied.removed, words::size(tidied.removed_bytes));
                    let (items, bytes) = (words::count(count, "item"), words::size(tidied.kept.bytes));
                    say!("removed {items} of {size}, the least recently used; {bytes} are kept");
                }
                for problem in &tidied.problems {
                    say!("warning: failed to remove what is no longer kept: {problem}");
                }
                self.client.set_holdings(tidied.kept);
                true
            }
            Err(error) => {
                say!("warning: failed to list what {} keeps: {error}", self.folder.display());
                false
            }
        }
    }
}

/// How much may be kept of what is kept now.
fn limit(keep_bytes: u64, kept_bytes: u64, free_bytes: Option<u64>) -> u64 {
    let lacking_bytes = free_bytes.map_or(0, |free_bytes| FREE_BYTES_LOW.saturating_sub(free_bytes));
    keep_bytes.min(kept_bytes.saturating_sub(lacking_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_lowers_the_bound() {
        let gibibytes = |count: u64| count << 30;
        assert_eq!(limit(gibibytes(10), gibibytes(5), None), gibibytes(5));
        assert_eq!(limit(gibibytes(10), gibibytes(50), Some(gibibytes(9))), gibibytes(10));
        assert_eq!(limit(gibibytes(10), gibibytes(5), Some(gibibytes(1))), gibibytes(4));
        assert_eq!(limit(gibibytes(10), 1, Some(0)), 0);
    }
}
