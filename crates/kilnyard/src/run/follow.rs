//! Follows the events of a store: what was decided, as every other reader sees it.

use kilnyard_store::{Event, Number, Store, StoreError};

/// How many events are read at once.
const EVENTS_MAX: usize = 256;

/// See the module.
pub struct Follower {
    store: Box<dyn Store>,
    /// The last event that was read.
    seq: Number,
}

impl Follower {
    /// Follows what is decided from now on. The connection to the store is the follower's own.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn new(store: Box<dyn Store>) -> Result<Follower, StoreError> {
        let seq = store.last_event()?;
        Ok(Follower { store, seq })
    }

    /// The next events of a run, and those that belong to none; none when all were read. What cannot be read now is read the
    /// next time.
    pub fn next(&mut self, run: Number) -> Vec<Event> {
        while let Ok(mut events) = self.store.events_since(self.seq, EVENTS_MAX) {
            let Some(last) = events.last() else { break };
            self.seq = last.seq;
            // That an earlier run is closed, which was killed, is not this one's.
            events.retain(|event| event.ids.run.is_none_or(|other| other == run));
            if !events.is_empty() {
                return events;
            }
        }
        Vec::new()
    }
}
