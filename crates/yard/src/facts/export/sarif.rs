//! SARIF 2.1.0 (OASIS): the telling line of each failure, in its log.

use super::failed;
use crate::facts::picture::Picture;
use crate::words::encoded;
use crate::yard::Yard;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The failures of a run.
pub fn sarif(yard: &Yard, picture: &Picture) -> Value {
    let mut kinds = BTreeSet::new();
    let results: Vec<Value> = failed(&yard.config, picture)
        .map(|failed| {
            kinds.insert(failed.kind());
            let location = failed.log().map(|(log, line)| {
                let region = line.map(|line| json!({ "startLine": line }));
                json!({ "artifactLocation": { "uri": encoded(&log), "uriBaseId": "YARD" }, "region": region })
            });
            let mut place = json!({ "logicalLocations": [{ "name": failed.row.name, "kind": "package" }] });
            if let Some(mut location) = location {
                if location["region"].is_null() {
                    location.as_object_mut().map(|fields| fields.remove("region"));
                }
                place["physicalLocation"] = location;
            }
            json!({
                "ruleId": failed.kind(),
                "level": "error",
                "message": { "text": format!("{} failed: {}", failed.row.name, failed.message()) },
                "locations": [place],
            })
        })
        .collect();
    let rules: Vec<Value> = kinds.iter().map(|kind| json!({ "id": kind })).collect();
    json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "Kilnyard", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    })
}
