//! Brings what builds need to this machine, ahead of time and outside of the slots.

use super::Message;
use kilnyard_coordinator::Event;
use kilnyard_mirror::{DistfileStore, FetchError, Progress, Sha256Hex, Wanted};
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{Input, Stage};
use kilnyard_model::result::{Failure, FailureKind};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::Scope;

/// Connections at once: enough to hide the round trips of small files, few enough for any mirror.
const FETCHERS: usize = 8;

struct Batch {
    package: PackageId,
    inputs: Vec<Input>,
    state: Mutex<BatchState>,
}

struct BatchState {
    next: usize,
    open: usize,
    failure: Option<Failure>,
}

/// See the module.
pub struct Fetchers {
    sender: Option<Sender<Arc<Batch>>>,
    distfiles: Arc<DistfileStore>,
    cancel: Arc<AtomicBool>,
}

impl Fetchers {
    /// Starts the threads; they end when this is cancelled.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        distfiles: Arc<DistfileStore>,
        events: Sender<Message>,
    ) -> Fetchers {
        let (sender, receiver) = mpsc::channel::<Arc<Batch>>();
        let receiver = Arc::new(Mutex::new(receiver));
        let cancel = Arc::new(AtomicBool::new(false));
        for _ in 0..FETCHERS {
            let fetcher =
                Fetcher { distfiles: distfiles.clone(), events: events.clone(), cancel: cancel.clone() };
            let receiver = receiver.clone();
            scope.spawn(move || {
                loop {
                    let received = receiver.lock().map(|receiver| receiver.recv());
                    let Ok(Ok(batch)) = received else { return };
                    fetcher.work(&batch);
                }
            });
        }
        Fetchers { sender: Some(sender), distfiles, cancel }
    }

    /// Whether all files are here already.
    pub fn has_all(&self, inputs: &[Input]) -> bool {
        inputs
            .iter()
            .all(|input| Sha256Hex::parse(&input.sha256).is_ok_and(|hash| self.distfiles.contains(&hash)))
    }

    /// Fetches what is missing; an event tells when it is there.
    pub fn fetch(&self, package: PackageId, inputs: Vec<Input>) {
        let inputs: Vec<Input> =
            inputs.into_iter().filter(|i| !self.has_all(std::slice::from_ref(i))).collect();
        let open = inputs.len();
        let state = Mutex::new(BatchState { next: 0, open, failure: None });
        let batch = Arc::new(Batch { package, inputs, state });
        if let Some(sender) = &self.sender {
            // One turn of work for each thread that can help with this batch.
            for _ in 0..open.min(FETCHERS) {
                let _ = sender.send(batch.clone());
            }
        }
    }

    /// Ends all fetches, and lets the threads end.
    pub fn cancel(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        self.sender = None;
    }
}

struct Fetcher {
    distfiles: Arc<DistfileStore>,
    events: Sender<Message>,
    cancel: Arc<AtomicBool>,
}

impl Fetcher {
    fn work(&self, batch: &Batch) {
        loop {
            let next = {
                let Ok(mut state) = batch.state.lock() else { return };
                if state.next == batch.inputs.len() {
                    return;
                }
                state.next += 1;
                state.next - 1
            };
            let failure = self.fetch(&batch.inputs[next]).err();
            let Ok(mut state) = batch.state.lock() else { return };
            state.open -= 1;
            if state.failure.is_none() {
                state.failure = failure;
            }
            if state.open == 0 {
                let outcome = state.failure.take().map_or(Ok(()), Err);
                let _ = self.events.send(Message::Event(Event::Fetched { package: batch.package, outcome }));
            }
        }
    }

    fn fetch(&self, input: &Input) -> Result<(), Failure> {
        let failed = |message: String| Failure {
            stage: Stage::Fetch,
            kind: FailureKind::Fetch,
            message,
            line_number: None,
            lines: Vec::new(),
        };
        let sha256 = Sha256Hex::parse(&input.sha256).map_err(|error| failed(error.to_string()))?;
        let wanted = Wanted {
            urls: input.urls.clone(),
            sha256,
            size_bytes: input.size_bytes,
            name: input.name.clone(),
        };
        let told = Cell::new(0);
        let progress = |progress: Progress| {
            if let Progress::Received { part_bytes, .. } = progress {
                let bytes = part_bytes.saturating_sub(told.replace(part_bytes));
                let _ = self.events.send(Message::Received(bytes));
            }
        };
        match self.distfiles.ensure(&wanted, &progress, &self.cancel) {
            Ok(_) => Ok(()),
            Err(FetchError::Cancelled { .. }) => {
                Err(Failure { kind: FailureKind::Cancelled, ..failed("it was cancelled".to_owned()) })
            }
            Err(error) => Err(failed(format!("failed to {error}"))),
        }
    }
}
