//! The states of pilots, from Jobs and their pods.

use crate::{Listed, PilotName, PilotState};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A page of a list. An answer without items is not an empty list: all pilots would count as gone.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub(super) struct Page<T> {
    /// `JobList`, `PodList`.
    pub kind: String,
    #[serde(deserialize_with = "or_null")]
    pub items: Vec<T>,
    #[serde(default)]
    pub metadata: PageMetadata,
}

/// Old servers write an empty list as `null`; the key must be there.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Default, Deserialize)]
pub(super) struct PageMetadata {
    #[serde(default, rename = "continue")]
    pub next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub name: String,
    #[serde(default)]
    pub uid: String,
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
pub(super) struct Job {
    pub metadata: Metadata,
    #[serde(default)]
    status: JobStatus,
}

#[derive(Default, Deserialize)]
struct JobStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    container_statuses: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
struct ContainerState {
    #[serde(default)]
    waiting: Option<Waiting>,
    #[serde(default)]
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
struct Waiting {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    #[serde(default)]
    exit_code: i64,
    #[serde(default)]
    reason: Option<String>,
}

/// The pilots. Jobs whose names are not those of pilots are an error: they have the label of the pool.
pub(super) fn listed(jobs: &[Job], pods: &[Pod]) -> Result<Vec<Listed>, String> {
    let mut by_job: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods {
        let owner = pod.metadata.owner_references.iter().find(|owner| owner.kind == "Job");
        by_job.entry(owner.map_or("", |owner| &owner.name)).or_default().push(pod);
    }
    let one = |job: &Job| {
        let name = PilotName::parse(&job.metadata.name).map_err(|error| error.to_string())?;
        let pods = by_job.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        let (state, reason) = state(job, pods);
        // Two pods of a Job should not be: a node that came back can have one more.
        let running = pods.iter().filter(|pod| pod.status.phase == "Running" && !pod.is_ending()).count();
        let copies = u32::try_from(running).unwrap_or(u32::MAX).max(1);
        Ok(Listed { name, state, reason: reason.map(|reason| crate::text::reason(&reason)), copies })
    };
    jobs.iter().map(one).collect()
}

fn state(job: &Job, pods: &[&Pod]) -> (PilotState, Option<String>) {
    let is_true = |kind: &str| {
        job.status.conditions.iter().find(|condition| condition.kind == kind && condition.status == "True")
    };
    let has_living_pod =
        pods.iter().any(|pod| matches!(&*pod.status.phase, "Running" | "Pending" | "Unknown"));
    if let Some(failed) = is_true("Failed").filter(|_| !has_living_pod) {
        let ends = pods.iter().filter_map(|pod| pod.end_words()).next();
        return (PilotState::Ended, ends.or_else(|| failed.words()));
    }
    if is_true("Complete").is_some() && !has_living_pod {
        return (PilotState::Ended, None);
    }
    if job.metadata.deletion_timestamp.is_some()
        || is_true("FailureTarget").is_some()
        || is_true("Failed").is_some()
    {
        return (PilotState::Ending, None);
    }
    let Some(pod) = pods.iter().max_by_key(|pod| pod.status.phase == "Running") else {
        return (PilotState::Queued, Some("it has no pod yet".to_owned()));
    };
    match &*pod.status.phase {
        // A node is drained, or a pod is preempted: the machine is taken away.
        "Running" | "Pending" if pod.is_ending() => (PilotState::Ending, pod.status.reason.clone()),
        "Running" => (PilotState::Running, None),
        "Pending" => (PilotState::Queued, pod.queue_words()),
        "Unknown" => (PilotState::Unknown, Some("its node does not answer".to_owned())),
        // Its Job gets its condition a moment later.
        _ => (PilotState::Ending, pod.end_words()),
    }
}

impl Condition {
    fn words(&self) -> Option<String> {
        match (&self.reason, &self.message) {
            (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
            (reason, message) => reason.clone().or_else(|| message.clone()),
        }
    }
}

impl Pod {
    fn is_ending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Why it does not run yet.
    fn queue_words(&self) -> Option<String> {
        let waiting =
            self.status.container_statuses.iter().find_map(|container| container.state.waiting.as_ref());
        let words = |waiting: &Waiting| match (&waiting.reason, &waiting.message) {
            (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
            (reason, message) => reason.clone().or_else(|| message.clone()),
        };
        let unscheduled =
            self.status.conditions.iter().find(|one| one.kind == "PodScheduled" && one.status == "False");
        waiting.and_then(words).or_else(|| unscheduled.and_then(Condition::words))
    }

    /// How its container ended, if it failed.
    fn end_words(&self) -> Option<String> {
        let ends =
            self.status.container_statuses.iter().find_map(|container| container.state.terminated.as_ref());
        let words = |end: &Terminated| match &end.reason {
            Some(reason) => format!("{reason}, exit code {}", end.exit_code),
            None => format!("exit code {}", end.exit_code),
        };
        ends.filter(|end| end.exit_code != 0).map(words).or_else(|| self.status.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(name: &str, conditions: Value, deleted: bool) -> Value {
        let deletion = deleted.then_some("2026-11-26T20:00:00Z");
        json!({ "metadata": { "name": name, "uid": "u", "deletionTimestamp": deletion }, "status": { "conditions": conditions } })
    }

    fn pod(job: &str, status: Value, deleted: bool) -> Value {
        let deletion = deleted.then_some("2026-11-26T20:00:00Z");
        json!({ "metadata": { "name": "x", "deletionTimestamp": deletion,
            "ownerReferences": [{ "kind": "Job", "name": job }] }, "status": status })
    }

    fn read(jobs: Value, pods: Value) -> Result<Vec<(PilotState, Option<String>, u32)>, String> {
        let jobs: Vec<Job> = serde_json::from_value(jobs).unwrap();
        let pods: Vec<Pod> = serde_json::from_value(pods).unwrap();
        Ok(listed(&jobs, &pods)?.into_iter().map(|one| (one.state, one.reason, one.copies)).collect())
    }

    #[test]
    fn states_follow_from_jobs_and_pods() {
        let state = |conditions: Value, deleted: bool, pods: Value| {
            read(json!([job("p-1", conditions, deleted)]), pods).unwrap().remove(0)
        };
        let none = || json!([]);
        let reason = |text: &str| Some(text.to_owned());
        assert_eq!(state(none(), false, none()), (PilotState::Queued, reason("it has no pod yet"), 1));
        assert_eq!(state(none(), true, none()), (PilotState::Ending, None, 1));
        let running = || pod("p-1", json!({ "phase": "Running" }), false);
        assert_eq!(state(none(), false, json!([running()])), (PilotState::Running, None, 1));
        assert_eq!(state(none(), false, json!([running(), running()])), (PilotState::Running, None, 2));
        assert_eq!(state(none(), true, json!([running()])), (PilotState::Ending, None, 1));
        let drained = pod("p-1", json!({ "phase": "Running", "reason": "Preempted" }), true);
        assert_eq!(state(none(), false, json!([drained])), (PilotState::Ending, reason("Preempted"), 1));
        let unscheduled = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory." }] });
        let words = reason("Unschedulable: 0/3 nodes are available: 3 Insufficient memory.");
        assert_eq!(
            state(none(), false, json!([pod("p-1", unscheduled, false)])),
            (PilotState::Queued, words, 1)
        );
        let pulling = json!({ "phase": "Pending", "containerStatuses": [{ "state": { "waiting": {
            "reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\"" } } }] });
        let words = reason("ImagePullBackOff: Back-off pulling image \"x\"");
        assert_eq!(state(none(), false, json!([pod("p-1", pulling, false)])), (PilotState::Queued, words, 1));
        let failed = || json!([{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }]);
        let killed = json!({ "phase": "Failed", "containerStatuses": [{ "state": { "terminated": {
            "reason": "OOMKilled", "exitCode": 137 } } }] });
        let words = reason("OOMKilled, exit code 137");
        assert_eq!(state(failed(), false, json!([pod("p-1", killed, false)])), (PilotState::Ended, words, 1));
        assert_eq!(state(failed(), false, none()), (PilotState::Ended, reason("BackoffLimitExceeded"), 1));
        // The Job has failed, and its pod still ends.
        assert_eq!(state(failed(), false, json!([running()])), (PilotState::Ending, None, 1));
        let complete = json!([{ "type": "Complete", "status": "True" }]);
        assert_eq!(state(complete, false, none()), (PilotState::Ended, None, 1));
    }

    #[test]
    fn a_job_that_is_no_pilot_is_an_error() {
        assert!(read(json!([job("p.1", json!([]), false)]), json!([])).is_err());
        assert!(read(json!([]), json!([pod("q", json!({}), false)])).unwrap().is_empty());
    }
}
