//! Follows the events of a store. The process of the run reads them like any other.

use kilnyard_store::{Event, Number, Store, StoreError};
use std::time::Duration;

/// The number of events read at once.
const EVENTS_MAX: usize = 256;

/// See the module documentation.
pub struct Follower {
    store: Box<dyn Store>,
    /// The last event that was read.
    seq: Number,
}

impl Follower {
    /// Follows events from now on, over a connection of its own.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn new(store: Box<dyn Store>) -> Result<Follower, StoreError> {
        let seq = store.last_event()?;
        Ok(Follower { store, seq })
    }

    /// The next events that belong to this run or to none; empty once all were read. If the store cannot be read now,
    /// the next call returns them.
    pub fn next(&mut self, run: Number) -> Vec<Event> {
        while let Ok(mut events) = self.store.events_since(self.seq, EVENTS_MAX) {
            let Some(last) = events.last() else { break };
            self.seq = last.seq;
            // The end of an earlier, killed run may be among them.
            events.retain(|event| event.ids.run.is_none_or(|other| other == run));
            if !events.is_empty() {
                return events;
            }
        }
        Vec::new()
    }

    /// Waits until there may be more events, but at most this long.
    pub fn wait(&self, at_most: Duration) {
        if self.store.wait_for_events(self.seq, at_most).is_err() {
            // The store cannot be read now.
            std::thread::sleep(at_most);
        }
    }
}
