//! The way between a run and this machine's worker: messages are bytes, as they would be over a network.

use super::Message;
use super::preparer::{BuildOf, Desk};
use kilnyard_coordinator::Event;
use kilnyard_model::order::Stage;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_protocol::{Answer, BuildResult, Built, Progress, decode, encode};
use kilnyard_worker::Link;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::mpsc::Sender;

/// The coordinator's end, for one lease.
#[derive(Clone)]
pub struct Local {
    of: BuildOf,
    desk: Desk,
    events: Sender<Message>,
}

impl Local {
    /// The way for a lease.
    pub fn new(of: BuildOf, desk: Desk, events: Sender<Message>) -> Local {
        Local { of, desk, events }
    }

    /// Sends a result.
    pub fn ended(&self, result: BuildResult) -> bool {
        let result = sent(&result).unwrap_or_else(|error| BuildResult {
            build: self.of.build,
            outcome: Err(Failure {
                stage: Stage::Collect,
                kind: FailureKind::Machine,
                message: error,
                line_number: None,
                lines: Vec::new(),
            }),
            is_reproducible: None,
        });
        self.events.send(Message::Event(Box::new(Event::Ended(result)))).is_ok()
    }
}

impl Link for Local {
    fn report(&self, progress: Progress) {
        // A report that is lost is followed by others, and nobody listens any more only when the run is over.
        let Ok(progress) = sent(&progress) else { return };
        let event = Event::Progress { build: self.of.build, progress };
        let _ = self.events.send(Message::Event(Box::new(event)));
    }

    fn built(&self, built: Built) -> Result<Answer, String> {
        let answer = self.desk.built(&self.of, sent(&built)?).ok_or("the run is over")?;
        sent(&answer)
    }
}

/// A message as it comes out at the other end.
pub fn sent<Message: Serialize + DeserializeOwned>(message: &Message) -> Result<Message, String> {
    encode(message).and_then(|bytes| decode(&bytes)).map_err(|error| error.to_string())
}
