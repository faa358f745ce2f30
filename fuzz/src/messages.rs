//! Messages between processes of Kilnyard, and hashes.

use crate::text;
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::order::{Key, Stage};
use kilnyard_protocol::{BuildResult, Lease, Progress, ToCoordinator, ToWorker};
use kilnyard_root::{Report, Sandbox};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A parsed message is written on one line, and parses to the same message again.
fn round_trip<T: DeserializeOwned + Serialize + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let message: T = serde_json::from_slice(data).ok()?;
    let written = serde_json::to_string(&message).unwrap();
    assert!(!written.contains('\n'));
    assert_eq!(serde_json::from_str::<T>(&written).unwrap(), message);
    Some(message)
}

/// The description of a sandbox, and the sandbox's reports.
pub fn sandbox(data: &[u8]) {
    round_trip::<Sandbox>(data);
    round_trip::<Report>(data);
}

/// Leases, progress, results, and messages between a worker and its coordinator.
pub fn protocol(data: &[u8]) {
    if let Some(lease) = round_trip::<Lease>(data) {
        let key = &lease.order.key;
        assert!(key.differences(key).is_empty());
        let nothing = Key { digest: String::new(), lines: Vec::new() };
        assert_eq!(key.differences(&nothing).is_empty(), key.lines.is_empty());
        for stage in &lease.order.stages {
            assert_eq!(Stage::parse(stage.stage.as_str()), Some(stage.stage));
        }
    }
    round_trip::<Progress>(data);
    round_trip::<BuildResult>(data);
    round_trip::<ToCoordinator>(data);
    round_trip::<ToWorker>(data);
}

/// A hash is 64 hexadecimal digits; no other text is accepted.
pub fn hash(data: &[u8]) {
    let own = Sha256Hex::of(data);
    assert_eq!(Sha256Hex::parse(&own.as_str().to_uppercase()).as_ref(), Ok(&own));
    let Some(text) = text(data) else { return };
    let is_hash = text.chars().count() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
    match Sha256Hex::parse(text) {
        Ok(hash) => assert!(is_hash && hash.as_str() == text.to_lowercase()),
        Err(error) => assert!(!is_hash && error.text.chars().count() <= 80),
    }
}
