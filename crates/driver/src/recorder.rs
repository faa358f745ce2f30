//! The recorder: the thread that owns the store during a run.

use crate::{Input, Loaded, Refusal};
use kilnyard_coordinator::Event;
use kilnyard_store::{Record, Request, StoreError};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The interval at which the store is polled for requests from other processes.
const REQUESTS_INTERVAL: Duration = Duration::from_millis(100);

/// The operations that a recorder needs from a store.
pub trait Ledger {
    /// Writes records in one transaction.
    fn record(&mut self, records: &[Record]) -> Result<(), StoreError>;
    /// Takes the requests since the last call.
    fn requests(&mut self) -> Result<Vec<Request>, StoreError>;
    /// Reads the state of the run. Open builds are recorded as lost first.
    fn load(&mut self) -> Result<Loaded, StoreError>;
}

/// A job for the recorder.
#[derive(Debug)]
pub enum Job {
    /// See [`crate::Task::Commit`].
    Commit(Arc<[Record]>),
    /// See [`crate::Task::Reload`].
    Reload,
}

/// Performs jobs until the sender is dropped, and passes on requests. Returns the store's last error. `say` returns
/// false once the receiver is gone.
pub fn record(
    ledger: &mut dyn Ledger,
    jobs: &Receiver<Job>,
    say: &dyn Fn(Input) -> bool,
) -> Option<StoreError> {
    let mut last = None;
    let mut asked = Instant::now();
    loop {
        let input = match jobs.recv_timeout(REQUESTS_INTERVAL.saturating_sub(asked.elapsed())) {
            Ok(Job::Commit(records)) => match ledger.record(&records) {
                Ok(()) => Some(Input::Committed),
                Err(error) => Some(refused(error, &mut last)),
            },
            Ok(Job::Reload) => match ledger.load() {
                Ok(loaded) => Some(Input::Loaded(Box::new(loaded))),
                Err(error) => {
                    last = Some(error);
                    Some(Input::NotCommitted(Refusal::ForGood))
                }
            },
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return last,
        };
        if input.is_some_and(|input| !say(input)) {
            return last;
        }
        if asked.elapsed() >= REQUESTS_INTERVAL {
            asked = Instant::now();
            match ledger.requests() {
                Ok(requests) => {
                    for request in requests {
                        say(Input::Event(Event::Requested(request)));
                    }
                }
                // They stay in the store.
                Err(error) if refusal(&error) != Refusal::ForGood => {}
                Err(error) => {
                    say(refused(error, &mut last));
                }
            }
        }
    }
}

fn refused(error: StoreError, last: &mut Option<StoreError>) -> Input {
    let refusal = refusal(&error);
    *last = Some(error);
    Input::NotCommitted(refusal)
}

/// How a run reacts to an error of the store.
fn refusal(error: &StoreError) -> Refusal {
    match error {
        StoreError::Full { .. } => Refusal::NoRoom,
        StoreError::Busy { .. } | StoreError::Used { .. } | StoreError::Other { .. } => Refusal::ForNow,
        StoreError::ReadOnly { .. }
        | StoreError::Damaged { .. }
        | StoreError::Unreadable { .. }
        | StoreError::Fenced { .. }
        | StoreError::TooNew { .. }
        | StoreError::TooOld { .. } => Refusal::ForGood,
    }
}
