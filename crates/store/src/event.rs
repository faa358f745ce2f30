//! What was decided, one thing after another.
//!
//! Events are written in the transaction of the decision that they report, so that a reader who follows them sees what is in the
//! other rows and nothing else. There are only additions: a kind of event that is published keeps its fields and their meaning, what is
//! added is optional, and readers pass over kinds that they do not know.
//!
//! They are kept for the latest [`EVENT_RUNS_MAX`] runs. Known downside: samples and the beginnings of stages are no decisions and
//! are not among them; a reader who wants those has to be on the machine of the run.

use crate::{Number, RequestKind, RunState};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::identity::{FarmId, YardId};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, PackageState, StageResult};
use kilnyard_model::target::Target;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

/// The events of this many runs are kept, the latest. A run of a whole archive has some 200,000.
pub const EVENT_RUNS_MAX: u64 = 10;
/// The version of the events that this program writes.
pub const EVENT_VERSION: u32 = 1;

/// Something that was decided. As JSON it is `{epoch, seq, version, ids, at, type, body}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Which of those who led one after the other wrote it.
    pub epoch: Number,
    /// Its place among all events of the store, from 1. It counts up, with gaps.
    pub seq: Number,
    /// The version of its kind.
    pub version: u32,
    /// What it is about.
    pub ids: Ids,
    /// When, in seconds since 1970 by the clock of the coordinator.
    pub at: f64,
    /// What was decided.
    #[serde(flatten)]
    pub happening: Happening,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ids {
    /// The farm.
    pub farm: FarmId,
    /// The yard.
    pub yard: YardId,
    /// What the yard builds for.
    pub target: Target,
    /// The run; absent for requests, which may come when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Number>,
    /// The package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Number>,
    /// The build's random id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The worker that performs the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "body", rename_all = "kebab-case")]
pub enum Happening {
    /// A run begins, or continues.
    RunBegan {
        /// Whether it continues.
        is_resumed: bool,
        /// Cores of all its machines.
        cores: u32,
        /// Builds at once.
        slots: u32,
        /// How long it is expected to take.
        expected_seconds: f64,
    },
    /// A run ended.
    RunEnded {
        /// How.
        state: RunState,
    },
    /// A package stands elsewhere.
    Package {
        /// Where.
        state: PackageState,
        /// Why.
        reason: Reason,
        /// The package to blame, where another one is.
        blamed: Option<String>,
    },
    /// A build begins.
    BuildBegan {
        /// The version of the outputs.
        version: String,
        /// The slot of the worker.
        slot: u32,
        /// The key's digest.
        key: String,
    },
    /// A stage of a build ended.
    StageEnded {
        /// The slot of the worker.
        slot: u32,
        /// What it did.
        result: Box<StageResult>,
    },
    /// A build ended.
    BuildEnded {
        /// The version of the outputs.
        version: String,
        /// The slot of the worker.
        slot: u32,
        /// How.
        outcome: BuildOutcome,
        /// Why it failed.
        failure: Option<Box<Failure>>,
        /// Whether a second build gave the same bytes.
        is_reproducible: Option<bool>,
    },
    /// A request was left.
    Requested {
        /// What is asked.
        request: RequestKind,
    },
    /// A kind that a later version wrote.
    #[serde(other, deserialize_with = "pass_over")]
    Unknown,
}

fn pass_over<'de, D: Deserializer<'de>>(body: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(body).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_later_version_is_passed_over() {
        let event = Event {
            epoch: 2,
            seq: 9,
            version: EVENT_VERSION,
            ids: Ids {
                farm: FarmId::from_bytes([1; 16]),
                yard: YardId::from_bytes([2; 16]),
                target: "any/linux/one/amd64".parse().unwrap(),
                run: None,
                package: Some("a".to_owned()),
                build: None,
                attempt: None,
                worker: None,
            },
            at: 5.5,
            happening: Happening::Requested { request: RequestKind::Retry },
        };
        let mut value = serde_json::to_value(&event).unwrap();
        assert_eq!((&value["type"], &value["body"]["request"]), (&"requested".into(), &"retry".into()));
        value["type"] = "paused".into();
        value["body"] = serde_json::json!({ "until": 7 });
        value["more"] = true.into();
        let later: Event = serde_json::from_value(value).unwrap();
        assert_eq!(later, Event { happening: Happening::Unknown, ..event });
    }
}
