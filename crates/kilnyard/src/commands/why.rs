//! `kilnyard why`: why a package stands where it stands, down to who is to blame.

use super::{print, print_json, unknown};
use crate::error::Result;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_model::result::PackageState;
use kilnyard_store::{BuildRow, PackageRow, Sqlite, Store};
use kilnyard_worker::RootFolder;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// How long a chain of blame is followed.
const CHAIN_MAX: usize = 50;

pub fn run(yard: &Yard, options: &crate::cli::Package) -> Result<ExitCode> {
    let store = yard.store()?;
    let name = &options.package;
    let run = store.last_run().map_err(store_error)?;
    let in_run = match &run {
        Some(run) => store.package(run.number, name).map_err(store_error)?,
        None => None,
    };
    let mut planned = store.planned(name).map_err(store_error)?;
    if in_run.is_none() && planned.is_none() {
        // Somebody may ask before the first plan was made.
        let plan = crate::plan::current_plan(yard, &mut yard.store()?)?;
        planned = plan.packages.into_iter().find(|row| row.package.name == *name);
    }
    // What is left out now was in a run before, and that run says nothing of it.
    let now = planned.clone().map(|planned| planned.package);
    let left_out = now.clone().filter(|row| row.state == PackageState::LeftOut);
    let Some(row) = left_out.or(in_run).or(now) else {
        return Err(unknown(yard, &store, name)?);
    };
    let build = store.builds_of(name, 1).map_err(store_error)?.into_iter().next();
    let chain = chain(&store, run.as_ref().map(|run| run.number), &row)?;
    if options.json {
        return print_json(&json!({
            "package": name,
            "version": row.version,
            "state": row.state,
            "reason": row.reason,
            "blamed": row.blamed,
            "chain": chain.iter().map(|row| json!({
                "package": row.name, "state": row.state, "reason": row.reason,
            })).collect::<Vec<_>>(),
            "dependencies": planned.map(|planned| planned.dependencies),
            "build": build.as_ref().map(|build| json!({
                "build": build.number,
                "run": build.run,
                "outcome": build.outcome,
                "failure": build.failure,
            })),
        }));
    }
    print(&text(yard, &row, build.as_ref(), &chain))
}

/// From a package to the one that is to blame in the end.
fn chain(store: &Sqlite, run: Option<u64>, row: &PackageRow) -> Result<Vec<PackageRow>> {
    let mut chain = Vec::new();
    let mut next = row.blamed.clone();
    while let (Some(name), Some(run)) = (next, run) {
        let Some(row) = store.package(run, &name).map_err(store_error)? else { break };
        next = row.blamed.clone().filter(|_| chain.len() < CHAIN_MAX);
        chain.push(row);
    }
    Ok(chain)
}

fn text(yard: &Yard, row: &PackageRow, build: Option<&BuildRow>, chain: &[PackageRow]) -> String {
    let version = if row.version.is_empty() { String::new() } else { format!(" {}", row.version) };
    let mut text = format!("{}{version} is {}\n", row.name, row.state);
    for (index, line) in row.reason.lines().enumerate() {
        let lead = if index == 0 { "because: " } else { "" };
        let _ = writeln!(text, "  {lead}{line}");
    }
    for blamed in chain {
        let _ = writeln!(text, "  {} is {}: {}", blamed.name, blamed.state, blamed.reason);
    }
    if let Some(build) = build {
        let when = words::time(build.started_seconds);
        let _ =
            writeln!(text, "  last build: {} in run {}, {when}, {}", build.number, build.run, build.outcome);
        if let Some(failure) = &build.failure {
            let _ = writeln!(text, "  {} ({}): {}", failure.stage, failure.kind.as_str(), failure.message);
            for line in &failure.lines {
                let _ = writeln!(text, "    {line}");
            }
            let _ = write!(text, "  more: kilnyard log {}", row.name);
            let has_root = RootFolder::failed_path(&yard.folder, &row.name).is_dir();
            let _ = writeln!(
                text,
                "{}",
                if has_root { format!("; kilnyard shell {}", row.name) } else { String::new() }
            );
        }
    }
    text
}
