//! The objects of a pilot: a Job, and a Secret that belongs to it.

use super::KubernetesSettings;
use crate::{Launch, PilotName};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};

/// The label that has the prefix of the pool.
pub(super) const POOL: &str = "kilnyard-pool";
/// How long a Job that has ended stays, so that its reason can be read, in seconds.
const KEPT_SECONDS: u32 = 600;

/// The Job of a pilot. Environment and files are references to its Secret.
pub(super) fn job(settings: &KubernetesSettings, name: &PilotName, launch: &Launch) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "kilnyard-pilot",
        "app.kubernetes.io/managed-by": "kilnyard",
        POOL: settings.prefix,
    });
    let environment: Vec<Value> = launch
        .environment
        .keys()
        .map(|variable| {
            let key = environment_key(variable);
            json!({ "name": variable, "valueFrom": { "secretKeyRef": { "name": name.as_str(), "key": key } } })
        })
        .collect();
    let items: Vec<Value> =
        launch.files.keys().map(|file| json!({ "key": file_key(file), "path": file })).collect();
    // Kubernetes replaces `$(NAME)`; `$$` is one `$`.
    let command: Vec<String> = launch.command.iter().map(|word| word.replace('$', "$$")).collect();
    let mut resources = Map::new();
    resources.insert("cpu".to_owned(), json!(settings.cores.to_string()));
    resources.insert("memory".to_owned(), json!(settings.memory_bytes.to_string()));
    let mut folder = Map::new();
    if let Some(bytes) = settings.disk_bytes {
        resources.insert("ephemeral-storage".to_owned(), json!(bytes.to_string()));
        folder.insert("sizeLimit".to_owned(), json!(bytes.to_string()));
    }
    let mut context = Map::new();
    if settings.is_unconfined {
        context.insert("seccompProfile".to_owned(), json!({ "type": "Unconfined" }));
        context.insert("appArmorProfile".to_owned(), json!({ "type": "Unconfined" }));
        if settings.has_user_namespace {
            // The API refuses this without a user namespace.
            context.insert("procMount".to_owned(), json!("Unmasked"));
        }
    }
    let container = json!({
        "name": "pilot",
        "image": settings.image,
        "command": command,
        "env": environment,
        "workingDir": "/kilnyard",
        "resources": { "requests": resources, "limits": resources },
        "securityContext": context,
        "volumeMounts": [
            { "name": "folder", "mountPath": "/kilnyard" },
            { "name": "files", "mountPath": "/kilnyard/files", "readOnly": true },
        ],
    });
    // The site's part first: ours is not replaced.
    let mut pod = settings.pod.clone();
    let ours = json!({
        "restartPolicy": "Never",
        "containers": [container],
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": settings.grace_seconds,
        "volumes": [
            { "name": "folder", "emptyDir": folder },
            { "name": "files", "secret": { "secretName": name.as_str(), "items": items, "defaultMode": 0o400 } },
        ],
    });
    if let Value::Object(ours) = ours {
        pod.extend(ours);
    }
    if settings.has_user_namespace {
        pod.insert("hostUsers".to_owned(), json!(false));
    }
    let mut spec = json!({
        // A pod that ended has used its token; the pool starts another pilot.
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "podReplacementPolicy": "Failed",
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": { "metadata": { "labels": labels }, "spec": pod },
    });
    if let Some(seconds) = settings.pilot_seconds_max {
        spec["activeDeadlineSeconds"] = json!(seconds);
    }
    let metadata = json!({ "name": name.as_str(), "namespace": settings.namespace, "labels": labels });
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec })
}

/// The Secret of a pilot. It belongs to the Job with this uid, and is removed with it.
pub(super) fn secret(settings: &KubernetesSettings, name: &PilotName, launch: &Launch, uid: &str) -> Value {
    let mut data = Map::new();
    for (variable, value) in &launch.environment {
        data.insert(environment_key(variable), json!(BASE64_STANDARD.encode(value)));
    }
    for (file, content) in &launch.files {
        data.insert(file_key(file), json!(BASE64_STANDARD.encode(content)));
    }
    let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": name.as_str(), "uid": uid });
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name.as_str(),
            "namespace": settings.namespace,
            "labels": { "app.kubernetes.io/managed-by": "kilnyard", POOL: settings.prefix },
            "ownerReferences": [owner],
        },
        "immutable": true,
        "type": "Opaque",
        "data": data,
    })
}

fn environment_key(variable: &str) -> String {
    format!("environment.{variable}")
}

fn file_key(file: &str) -> String {
    format!("file.{file}")
}
