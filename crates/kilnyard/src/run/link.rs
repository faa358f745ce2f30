//! The way between a run and this machine's worker: messages are bytes, as they would be over a network.

use super::Message;
use kilnyard_coordinator::Event;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::Stage;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_protocol::{Answer, BuildResult, Built, Lease, Progress, Test, decode, encode};
use kilnyard_store::Number;
use kilnyard_worker::Link;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The coordinator's end, for one lease.
#[derive(Clone)]
pub struct Local {
    /// What was handed out, as the coordinator knows it: a worker's word on it counts for nothing.
    build: Number,
    package: PackageId,
    version: String,
    set: Arc<dyn Ecosystem>,
    tests_outputs: bool,
    events: Sender<Message>,
}

impl Local {
    /// The way for the lease of a package of the set.
    pub fn new(
        lease: &Lease,
        package: PackageId,
        set: Arc<dyn Ecosystem>,
        tests_outputs: bool,
        events: Sender<Message>,
    ) -> Local {
        Local {
            build: lease.build,
            package,
            version: lease.order.version.clone(),
            set,
            tests_outputs,
            events,
        }
    }

    /// Sends a result.
    pub fn ended(&self, result: BuildResult) -> bool {
        let result = sent(&result).unwrap_or_else(|error| BuildResult {
            build: self.build,
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

    /// What becomes of what was built. The set is locked for as long as it takes, and the owner of the run does not wait.
    fn answer(&self, built: &Built) -> Answer {
        let refused = |reason: String| Answer {
            refused: Some(reason),
            outputs: Vec::new(),
            notes: Vec::new(),
            test: Test::Skip,
        };
        if built.build != self.build {
            return refused(format!("build {} was not handed out here", built.build));
        }
        let admitted = match self.set.admit(self.package, &self.version, &built.outputs) {
            Ok(admitted) => admitted,
            Err(error) => return refused(error.to_string()),
        };
        let test = match self.tests_outputs && !built.is_repeated {
            false => Test::Skip,
            true => match self.set.test(self.package, &admitted.outputs) {
                Ok(order) => Test::Run(Box::new(order)),
                Err(impossible) => Test::Impossible(impossible.explanation),
            },
        };
        Answer { refused: None, outputs: admitted.outputs, notes: admitted.notes, test }
    }
}

impl Link for Local {
    fn report(&self, progress: Progress) {
        // A report that is lost is followed by others, and nobody listens any more only when the run is over.
        let Ok(progress) = sent(&progress) else { return };
        let event = Event::Progress { build: self.build, progress };
        let _ = self.events.send(Message::Event(Box::new(event)));
    }

    fn built(&self, built: Built) -> Result<Answer, String> {
        sent(&self.answer(&sent(&built)?))
    }
}

/// A message as it comes out at the other end.
pub fn sent<Message: Serialize + DeserializeOwned>(message: &Message) -> Result<Message, String> {
    encode(message).and_then(|bytes| decode(&bytes)).map_err(|error| error.to_string())
}
