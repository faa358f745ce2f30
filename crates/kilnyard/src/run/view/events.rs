//! Events for programs: a JSON object a line on standard output.

use super::{Seen, Snapshot, View};
use crate::words::{json_text, now_seconds};
use serde_json::{Value, json};
use std::io::Write;

/// See the module.
#[derive(Debug, Default)]
pub struct Events;

impl View for Events {
    fn see(&mut self, seen: &Seen, snapshot: &Snapshot) {
        let mut event = match seen {
            Seen::Began => json!({
                "event": "run-began",
                "resumed": snapshot.is_resumed,
                "cores": snapshot.cores,
                "slots": snapshot.slots,
                "expected_seconds": snapshot.expected_seconds,
            }),
            Seen::State { package, state, reason } => json!({
                "event": "package",
                "package": package,
                "state": state,
                "reason": reason.to_string(),
                "why": reason,
            }),
            Seen::StageBegan(build, stage) => json!({
                "event": "stage-began",
                "package": build.package,
                "build": build.build,
                "slot": build.slot,
                "stage": stage,
            }),
            Seen::StageEnded(build, result) => json!({
                "event": "stage-ended",
                "package": build.package,
                "build": build.build,
                "slot": build.slot,
                "result": result,
            }),
            Seen::BuildEnded(build, result) => json!({
                "event": "build-ended",
                "package": build.package,
                "build": build.build,
                "slot": build.slot,
                "version": build.version,
                "ok": result.outcome.is_ok(),
                "failure": result.outcome.as_ref().err(),
                "reproducible": result.is_reproducible,
            }),
            Seen::Asked(request) => {
                json!({ "event": "asked", "request": request.kind.as_str(), "package": request.package })
            }
            Seen::Refused { request, reason } => json!({
                "event": "refused",
                "request": request.kind.as_str(),
                "package": request.package,
                "reason": reason,
            }),
            Seen::DiskFull => json!({ "event": "disk-full" }),
            Seen::Reloading => json!({ "event": "reloading" }),
            Seen::Stopping => json!({ "event": "stopping" }),
            Seen::Ended(state) => json!({ "event": "run-ended", "state": state.as_str() }),
        };
        if let Value::Object(fields) = &mut event {
            fields.insert("run".to_owned(), snapshot.run.into());
            fields.insert("at_seconds".to_owned(), now_seconds().into());
        }
        // Nobody reads any more: the run goes on.
        let _ = writeln!(std::io::stdout(), "{}", json_text(&event));
    }

    fn tick(&mut self, _snapshot: &Snapshot) {}
}
