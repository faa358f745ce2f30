//! The recorder: the thread that owns the store during a run.

use crate::{Input, Loaded, Refusal};
use kilnyard_coordinator::Event;
use kilnyard_store::{RENEW_SECONDS, Record, Request, StoreError};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The interval at which the store is polled for requests from other processes.
const REQUESTS_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the leader shows that it is alive.
const RENEW_INTERVAL: Duration = Duration::from_millis((RENEW_SECONDS * 1000.0) as u64);

/// The operations that a recorder needs from a store.
pub trait Ledger {
    /// Writes records in one transaction.
    fn record(&mut self, records: &[Record]) -> Result<(), StoreError>;
    /// Takes the requests since the last call.
    fn requests(&mut self) -> Result<Vec<Request>, StoreError>;
    /// Shows that this leader is alive.
    fn renew(&mut self) -> Result<(), StoreError>;
    /// Reads the state of the run.
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

/// Performs jobs until the sender is dropped, passes on requests, and renews the leadership. Returns the store's last error. `say` returns
/// false once the receiver is gone.
pub fn record(
    ledger: &mut dyn Ledger,
    jobs: &Receiver<Job>,
    say: &dyn Fn(Input) -> bool,
) -> Option<StoreError> {
    let mut last = None;
    let (mut asked, mut renewed) = (Instant::now(), Instant::now());
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
        if renewed.elapsed() >= RENEW_INTERVAL {
            renewed = Instant::now();
            match ledger.renew() {
                Ok(()) => {}
                // A decision will show whether the store takes more.
                Err(error) if refusal(&error) != Refusal::ForGood => {}
                Err(error) => {
                    say(refused(error, &mut last));
                }
            }
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
        StoreError::Busy { .. }
        | StoreError::Used { .. }
        | StoreError::Replaced { .. }
        | StoreError::Other { .. } => Refusal::ForNow,
        StoreError::ReadOnly { .. }
        | StoreError::Damaged { .. }
        | StoreError::Unreadable { .. }
        | StoreError::Fenced { .. }
        | StoreError::Led { .. }
        | StoreError::TooNew { .. }
        | StoreError::TooOld { .. } => Refusal::ForGood,
    }
}
