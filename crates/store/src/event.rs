//! The log of decisions.
//!
//! Events are written in the transaction of the decision that they report, so that they always agree with the other
//! rows. The format changes by additions only: a published kind of event keeps its fields and their meaning, new
//! fields are optional, and readers skip unknown kinds.
//!
//! The events of the latest [`EVENT_RUNS_MAX`] runs are kept. Known downside: samples and the starts of stages are not
//! decisions, so they are not among the events; only readers on the machine of the run can get them.

use crate::{Number, RequestKind, RunState};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::identity::{FarmId, YardId};
use kilnyard_model::order::Stage;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Failure, PackageState, StageResult};
use kilnyard_model::target::Target;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

/// The number of latest runs whose events are kept. A run of a whole archive has about 350,000 events.
pub const EVENT_RUNS_MAX: u64 = 10;
/// The version of the events that this program writes.
pub const EVENT_VERSION: u32 = 1;

/// A recorded decision. As JSON it is `{epoch, seq, version, ids, at, type, body}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The epoch of the leader that wrote it.
    pub epoch: Number,
    /// Its number among all events of the store, from 1. Numbers increase, with gaps.
    pub seq: Number,
    /// The version of its kind, [`EVENT_VERSION`] for events of this program.
    pub version: u32,
    /// The run, package and build that it is about.
    pub ids: Ids,
    /// The time in seconds since 1970, by the coordinator's clock.
    pub at: f64,
    /// The decision, serialized as `type` and `body`.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The ids of everything that an event is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ids {
    /// The farm of the yard.
    pub farm: FarmId,
    /// The yard whose store this is.
    pub yard: YardId,
    /// The target that the yard builds for.
    pub target: Target,
    /// The run; absent for requests, which may come outside a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Number>,
    /// The package; absent for events of a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The build; present in events of builds and stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Number>,
    /// The build's random id; present with `build`, unless the build is older than these ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The name of the worker that performs the build; present with `build`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// The kinds of decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "body", rename_all = "kebab-case")]
pub enum EventKind {
    /// A run started or was resumed.
    RunBegan {
        /// Whether this run was interrupted before.
        is_resumed: bool,
        /// Total cores of all its machines.
        cores: u32,
        /// Maximum number of concurrent builds.
        slots: u32,
        /// Estimated duration.
        expected_seconds: f64,
    },
    /// A run ended.
    RunEnded {
        /// Finished or interrupted.
        state: RunState,
    },
    /// The state of a package changed.
    Package {
        /// The new state.
        state: PackageState,
        /// Why the package is in this state.
        reason: Reason,
        /// The package that is to blame, if it is another one.
        blamed: Option<String>,
    },
    /// A build started.
    BuildBegan {
        /// The version that its outputs will get.
        version: String,
        /// The slot of the worker that performs the build.
        slot: u32,
        /// Digest of the build's key.
        key: String,
    },
    /// A stage of a build ended.
    StageEnded {
        /// The slot of the worker that performs the build.
        slot: u32,
        /// Times and resource usage of the stage.
        result: Box<StageResult>,
    },
    /// A build ended.
    BuildEnded {
        /// The version that its outputs got or would have got.
        version: String,
        /// The slot of the worker that performed the build.
        slot: u32,
        /// Whether the build succeeded, or how it ended otherwise.
        outcome: BuildOutcome,
        /// The cause of the failure; absent if the build did not fail.
        failure: Option<Box<Failure>>,
        /// Whether a second build gave the same bytes; absent if there was none.
        is_reproducible: Option<bool>,
    },
    /// A user requested something of a run.
    Requested {
        /// What the run should do with the package of the ids.
        request: RequestKind,
        /// The user; absent in events of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// A stage of a build began.
    StageBegan {
        /// The stage.
        stage: Stage,
    },
    /// The repository was published.
    Published {
        /// The number of binary packages in it.
        packages: u64,
        /// Whether it differs from the one before.
        is_changed: bool,
    },
    /// A worker came, went, or is treated otherwise from now on.
    Worker {
        /// Its name.
        name: String,
        /// What happened.
        change: WorkerChange,
        /// Why; absent if the change says it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        /// The user who decided it; absent if the run did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// A kind written by a later version.
    #[serde(other, deserialize_with = "skip_body")]
    Unknown,
}

/// What happened to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerChange {
    /// It takes part in the run.
    Joined,
    /// It has been silent for too long. Builds that it had are lost.
    Lost,
    /// It gets no more builds, since it fails them.
    Quarantined,
    /// It gets no more builds, on request.
    Drained,
    /// It gets builds, on request.
    Approved,
}

/// Something to report that changes no other row of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The run; absent outside of runs.
    pub run: Option<Number>,
    /// The build, for events of a build.
    pub build: Option<Number>,
    /// When, in seconds since 1970.
    pub at_seconds: f64,
    /// What happened. Only kinds that no [`Record`](crate::Record) reports may be noted: [`EventKind::StageBegan`],
    /// [`EventKind::Published`] and [`EventKind::Worker`].
    pub kind: EventKind,
}

impl Note {
    /// The name of its kind, and its body. Absent if the kind may not be noted.
    pub fn parts(&self) -> Option<(&'static str, serde_json::Value)> {
        let name = match &self.kind {
            EventKind::StageBegan { .. } => "stage-began",
            EventKind::Published { .. } => "published",
            EventKind::Worker { .. } => "worker",
            EventKind::RunBegan { .. }
            | EventKind::RunEnded { .. }
            | EventKind::Package { .. }
            | EventKind::BuildBegan { .. }
            | EventKind::StageEnded { .. }
            | EventKind::BuildEnded { .. }
            | EventKind::Requested { .. }
            | EventKind::Unknown => return None,
        };
        let mut value = serde_json::to_value(&self.kind).ok()?;
        Some((name, value["body"].take()))
    }
}

fn skip_body<'de, D: Deserializer<'de>>(body: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(body).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_later_version_is_unknown() {
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
            kind: EventKind::Requested { request: RequestKind::Retry, author: None },
        };
        let mut value = serde_json::to_value(&event).unwrap();
        assert_eq!((&value["type"], &value["body"]["request"]), (&"requested".into(), &"retry".into()));
        value["type"] = "paused".into();
        value["body"] = serde_json::json!({ "until": 7 });
        value["more"] = true.into();
        let later: Event = serde_json::from_value(value).unwrap();
        assert_eq!(later, Event { kind: EventKind::Unknown, ..event });
    }
}
