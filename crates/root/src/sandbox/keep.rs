//! The keeper's task: performs operations, holds their results, and undoes them.

use super::outer::{StepError, at, at_with, say};
use super::{Report, execute};
use crate::block::Devices;
use crate::{IdMap, Operation, probe};
use std::io::{self, Read};

/// Performs the operations, reports success, waits until standard input ends, and undoes the operations, last one
/// first. If one fails, the earlier ones are undone immediately.
pub(super) fn keep(operations: &[Operation], ids: &IdMap) -> Result<(), StepError> {
    let mut devices = Devices::default();
    let mut perform =
        |operation: &Operation| devices.perform(operation).unwrap_or_else(|| execute::execute(operation));
    let mut done = Vec::new();
    let mut outcome = Ok(());
    for operation in operations {
        let performed = perform(operation).and_then(|()| give(operation, ids));
        outcome = at_with(operation.need(), operation.to_string(), performed);
        if outcome.is_err() {
            break;
        }
        done.push(operation);
    }
    if outcome.is_ok() {
        say(&Report::Started);
        // Standard input never has data, so this waits for its end.
        let _ = io::stdin().read(&mut [0]);
    }
    for operation in done.into_iter().rev() {
        if let Some(undone) = operation.undone() {
            outcome = outcome.and(at(undone.to_string(), perform(&undone)));
        }
    }
    outcome
}

/// Gives new folders to the root user inside the root.
fn give(operation: &Operation, ids: &IdMap) -> io::Result<()> {
    match operation {
        Operation::Folder { path } | Operation::Tmpfs { target: path, .. } => probe::give_to_root(path, ids),
        _ => Ok(()),
    }
}
