//! Records the layers being made, so that two builds never make the same one at the same time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often a waiting build checks whether it was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// See the module documentation. A leaf lock: no other lock is taken while it is held.
#[derive(Debug, Default)]
pub(super) struct Claims {
    names: Mutex<HashSet<String>>,
    changed: Condvar,
}

/// The exclusive right to make some layers. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    names: Vec<String>,
}

impl Claims {
    /// Claims all these names at once, as soon as all are free. `None` if cancelled.
    pub(super) fn claim(claims: &Arc<Claims>, names: Vec<String>, cancel: &AtomicBool) -> Option<Claim> {
        let mut taken = claims.names.lock().unwrap_or_else(PoisonError::into_inner);
        while names.iter().any(|name| taken.contains(name)) {
            if cancel.load(Ordering::Relaxed) {
                return None;
            }
            let waited = claims.changed.wait_timeout(taken, CANCEL_CHECK_INTERVAL);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.extend(names.iter().cloned());
        drop(taken);
        Some(Claim { claims: claims.clone(), names })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut taken = self.claims.names.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &self.names {
            taken.remove(name);
        }
        drop(taken);
        self.claims.changed.notify_all();
    }
}
