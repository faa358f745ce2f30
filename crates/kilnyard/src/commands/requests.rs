//! `kilnyard retry`, `skip` and `bump`: requests for the run that is going on, or the next one.

use super::unknown_package;
use crate::error::{Error, Result};
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use kilnyard_store::{RequestKind, Store};
use std::process::ExitCode;

pub fn run(yard: &Yard, kind: RequestKind, packages: &[String]) -> Result<ExitCode> {
    let mut store = yard.store()?;
    let is_running = yard.is_locked();
    for package in packages {
        if store.planned(package).map_err(store_error)?.is_none() {
            let plan = store.plan().map_err(store_error)?;
            let known: Vec<String> =
                plan.into_iter().flat_map(|plan| plan.packages).map(|row| row.package.name).collect();
            return Err(unknown_package(package, &known));
        }
    }
    if !is_running && kind == RequestKind::Skip {
        return Err(Error::usage("no run is going on, so there is nothing to skip")
            .hint("kilnyard build PACKAGE..., which builds only these and what they need"));
    }
    for package in packages {
        store.request(kind, package, now_seconds()).map_err(store_error)?;
        let whom = if is_running { "the run that is going on" } else { "the next run" };
        eprintln!("asked {whom} to {} {package}", kind.as_str());
    }
    if !is_running {
        eprintln!("next: kilnyard build");
    }
    Ok(ExitCode::SUCCESS)
}
