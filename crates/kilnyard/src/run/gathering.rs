//! The beginning of a run with other machines: no package starts until those that are connected can take one.
//!
//! Otherwise this machine would take the first packages alone, also those for which another one is faster, or has kept
//! work; or another one would take more than its share.

use super::door;
use super::host_name;
use crate::yard::Yard;
use kilnyard_farm::relay::{self, First, Status};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The longest wait. A connected worker usually answers within its network's delay.
const PATIENCE: Duration = Duration::from_secs(3);
/// A worker that was silent for longer may be gone. One that is connected asks for messages at least every 50 s.
const SILENT_SECONDS_MAX: f64 = 60.0;
/// The messages after which a worker takes packages: its hello, and its first offer.
const MESSAGES: u32 = 2;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Gathering {
    /// The number of messages that are missing from each worker.
    missing: BTreeMap<String, u32>,
    until: Option<Instant>,
}

impl Gathering {
    /// The workers that are connected to the door, and this machine's if it takes part. Without a door there is no wait.
    pub fn of(yard: &Yard, is_elsewhere: bool) -> Gathering {
        let mut missing = BTreeMap::new();
        if let Some(status) = status(yard) {
            let signer = yard.config.signer.as_ref().map(|signer| signer.name.as_str());
            let connected = status.workers.into_iter().filter(|worker| Some(worker.name.as_str()) != signer);
            let connected = connected.filter(|worker| {
                let is_heard = worker.silent_seconds.is_some_and(|seconds| seconds < SILENT_SECONDS_MAX);
                is_heard && worker.held.is_none()
            });
            missing.extend(connected.map(|worker| (worker.name, MESSAGES)));
            if !is_elsewhere {
                missing.insert(host_name(), MESSAGES);
            }
        }
        Gathering { missing, until: Some(Instant::now() + PATIENCE) }
    }

    /// Counts a message.
    pub fn heard(&mut self, worker: &str) {
        if let Some(count) = self.missing.get_mut(worker) {
            *count -= 1;
            if *count == 0 {
                self.missing.remove(worker);
            }
        }
    }

    /// Whether the run can begin.
    pub fn is_over(&self) -> bool {
        self.missing.is_empty() || self.until.is_none_or(|until| Instant::now() >= until)
    }
}

/// What the door says; none if there is no door.
fn status(yard: &Yard) -> Option<Status> {
    let mut stream = relay::connect(&door::folder(yard)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    relay::write(&mut stream, &First::Status, b"").ok()?;
    Some(relay::read::<Status>(&mut stream).ok()??.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_begins_when_each_worker_has_made_its_offer() {
        let missing = ["far", "own"].map(|name| (name.to_owned(), MESSAGES)).into();
        let mut gathering = Gathering { missing, until: Some(Instant::now() + Duration::from_secs(1000)) };
        for worker in ["own", "far", "unknown", "own", "own"] {
            gathering.heard(worker);
            assert!(!gathering.is_over());
        }
        gathering.heard("far");
        assert!(gathering.is_over());
        let missing = [("far".to_owned(), MESSAGES)].into();
        assert!(Gathering { missing, until: Some(Instant::now()) }.is_over());
    }
}
