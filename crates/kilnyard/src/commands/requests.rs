//! `kilnyard retry`, `skip` and `bump`: requests to the current run, or the next one.

use super::unknown;
use crate::error::{Error, Result};
use crate::words::{self, now_seconds};
use crate::yard::{Yard, store_error, user_name};
use kilnyard_model::result::PackageState;
use kilnyard_store::{Number, RequestKind, RunState};
use kilnyard_yard::remedy::Remedy;
use std::process::ExitCode;

pub fn run(yard: &Yard, kind: RequestKind, packages: &[String]) -> Result<ExitCode> {
    let run = ask(yard, kind, packages, &user_name())?;
    let whom = if run.is_some() { "the current run" } else { "the next run" };
    for package in packages {
        say!("asked {whom} to {} {package}", kind.as_str());
    }
    if run.is_none() {
        say!("next: {}", words::command("build"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Leaves requests for packages: all, or none if one of them cannot be. Returns the number of the run in progress, if there is one.
pub fn ask(yard: &Yard, kind: RequestKind, packages: &[String], author: &str) -> Result<Option<Number>> {
    let mut store = yard.store()?;
    let run = store.last_run().map_err(store_error)?;
    // A scan or a clean-up holds the lock too.
    let running = run.as_ref().filter(|run| run.state == RunState::Running && yard.is_locked());
    for package in packages {
        if store.planned(package).map_err(store_error)?.is_none() {
            return Err(unknown(yard, &*store, package)?);
        }
        let Some(run) = &run else { continue };
        let row = store.package(run.number, package).map_err(store_error)?;
        if running.is_some() && row.is_none() {
            let message = format!("{package} is not part of run {}, which is in progress", run.number);
            return Err(
                Error::usage(message).hint(Remedy::command(format!("build {package}")).then(", afterwards"))
            );
        }
        if kind == RequestKind::Retry
            && let Some(row) = row
            && (row.state.has_outputs() || row.state == PackageState::Blocked)
        {
            let error = Error::usage(format!("{package} is {}, so there is nothing to retry", row.state));
            return Err(match row.blamed {
                Some(blamed) => {
                    error.hint(Remedy::command(format!("retry {blamed}")).then(", which is to blame"))
                }
                None => error.hint(Remedy::command(format!("build --force {package}"))),
            });
        }
    }
    if running.is_none() && kind == RequestKind::Skip {
        return Err(Error::usage("no run is in progress, so there is nothing to skip").hint(
            Remedy::command("build PACKAGE...").then(", which builds only these and their dependencies"),
        ));
    }
    let running = running.map(|run| run.number);
    for package in packages {
        store.request(kind, package, author, now_seconds()).map_err(store_error)?;
    }
    Ok(running)
}
