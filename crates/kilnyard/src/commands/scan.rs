//! `kilnyard scan`: brings the yard's index up to date.

use super::{print, print_json};
use crate::error::Result;
use crate::yard::Yard;
use crate::{family, signals};
use serde_json::json;
use std::process::ExitCode;

pub fn run(yard: &Yard, json: bool) -> Result<ExitCode> {
    signals::install();
    let _lock = yard.lock()?;
    let scanned = family::scan(yard, signals::cancel(), &|text| tell!("{text}"))?;
    if json {
        return print_json(&json!({ "changed": scanned.changed, "unchanged": scanned.unchanged }));
    }
    for suite in &scanned.changed {
        tell!("{suite}: a new index");
    }
    for suite in &scanned.unchanged {
        tell!("{suite}: nothing new");
    }
    print("")
}
