//! Reads the events of a yard for the feed.

use super::unreadable;
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use kilnyard_api::feed::Follow;
use kilnyard_api::queries::FeedEvent;
use kilnyard_api::requests::Trouble;
use kilnyard_store::{Event, Store};
use kilnyard_yard::facts::live;
use std::time::Duration;

/// The most events read at once.
const EVENTS_MAX: usize = 1000;

/// A reader with a connection of its own.
pub(super) struct Reader {
    yard: Yard,
    store: Option<Box<dyn Store>>,
}

impl Reader {
    pub fn new(yard: Yard) -> Reader {
        Reader { yard, store: None }
    }

    fn read(&mut self, after: u64, at_most: Duration) -> Result<Vec<FeedEvent>, Trouble> {
        let store = match &self.store {
            Some(store) => store,
            None => self.store.insert(self.yard.store().map_err(unreadable)?),
        };
        let failed = |error| unreadable(store_error(error));
        store.wait_for_events(after, at_most).map_err(failed)?;
        let events = store.events_since(after, EVENTS_MAX).map_err(failed)?;
        Ok(events.iter().map(feed_event).collect())
    }
}

impl Follow for Reader {
    fn next(&mut self, after: u64, at_most: Duration) -> Result<Vec<FeedEvent>, Trouble> {
        // A database that went away is connected to anew.
        self.read(after, at_most).inspect_err(|_| self.store = None)
    }

    fn live(&mut self) -> bytes::Bytes {
        let run = self.store.as_ref().and_then(|store| store.last_run().ok().flatten());
        let Some(run) = run else { return bytes::Bytes::new() };
        let live = live::read(&self.yard, run.number, now_seconds());
        match live.builds.is_empty() {
            true => bytes::Bytes::new(),
            false => serde_json::to_vec(&live).unwrap_or_default().into(),
        }
    }
}

/// An event as it is sent. Its type is one of the store's, and its JSON is one line.
pub(super) fn feed_event(event: &Event) -> FeedEvent {
    let value = serde_json::to_value(event).unwrap_or_default();
    FeedEvent {
        seq: event.seq,
        kind: value["type"].as_str().unwrap_or("unknown").to_owned(),
        run: event.ids.run,
        package: event.ids.package.clone(),
        json: value.to_string().into(),
    }
}
