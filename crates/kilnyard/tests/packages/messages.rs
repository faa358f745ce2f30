//! Coordinator and worker of a local run communicate only by messages that survive JSON.

use crate::fixtures::{Fixture, Shared, Trial, good};
use kilnyard_protocol::{ToCoordinator, ToWorker, encode_as, open};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

pub const CASES: &[Trial] = &[("every_message_of_a_local_run_survives_json", every_message_survives_json)];

fn every_message_survives_json(shared: &Shared) {
    let fails = Fixture { build: "exit 3", ..good("fails", "") };
    let yard = shared.yard("messages", &[good("one", ""), good("two", ""), fails]);
    let transcript = yard.path("messages.jsonl");
    let to = transcript.display().to_string();
    yard.run(&["build", "--no-scan", "--check-reproducible", "--messages", &to]).exits(1);
    let text = std::fs::read_to_string(&transcript).unwrap();
    let mut kinds = BTreeSet::new();
    for line in text.lines() {
        let said: serde_json::Value = serde_json::from_str(line).unwrap();
        let to = said["to"].as_str().unwrap();
        let start = format!("{{\"to\":\"{to}\",\"message\":");
        let message = line.strip_prefix(&start).and_then(|rest| rest.strip_suffix('}')).unwrap();
        match to {
            "coordinator" => survives::<ToCoordinator>(message),
            "worker" => survives::<ToWorker>(message),
            other => panic!("a message to {other}"),
        }
        kinds.insert(said["message"]["body"].as_object().unwrap().keys().next().unwrap().clone());
    }
    // The transcript has the whole conversation, so nothing bypassed it.
    for kind in [
        "hello",
        "welcome",
        "offer",
        "ranks",
        "grant",
        "progress",
        "received",
        "built",
        "answer",
        "result",
        "acknowledged",
    ] {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }
    let count =
        |kind: &str| text.lines().filter(|line| line.contains(&format!("\"body\":{{\"{kind}\":"))).count();
    assert!(
        count("grant") >= 3 && count("result") >= 3,
        "{} leases, {} results",
        count("grant"),
        count("result")
    );
    assert_eq!(count("built"), 4, "each completed build, and its repetition");
    assert_eq!(count("superseded"), 0);
}

/// Asserts that a message is unchanged after decoding and encoding.
fn survives<Message: Serialize + DeserializeOwned>(message: &str) {
    let opened = open::<Message>(message.as_bytes()).unwrap();
    let again = encode_as(opened.version, &opened.capabilities, &opened.body).unwrap();
    assert_eq!(String::from_utf8(again).unwrap(), message);
}
