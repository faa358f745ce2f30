//! `kilnyard artifacts`: whether outputs are intact, and which of those that machines share are no longer needed.

use super::{print, print_json};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::run::OtherMachines;
use crate::run::door::Door;
use crate::yard::{Verified, Yard, fresh_since_seconds, unneeded, verify};
use crate::{signals, words};
use kilnyard_yard::helpers::{Helpers, NoHelpers};
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often progress is printed.
const STEP: Duration = Duration::from_secs(10);
/// The most files that are printed; `--json` has all.
const SHOWN_MAX: usize = 10;

pub fn run(yard: &Yard, command: &cli::Artifacts) -> Result<ExitCode> {
    signals::install();
    match command {
        cli::Artifacts::Check(options) => {
            let mut code = ExitCode::SUCCESS;
            for target in yard.targets()? {
                let found = check_locked(&target, options)?;
                if found != ExitCode::SUCCESS {
                    code = found;
                }
            }
            Ok(code)
        }
        cli::Artifacts::Clean { dry_run, json } => clean(yard, *dry_run, json.json),
    }
}

/// Reads all outputs of a target. Workers help if no run needs them.
fn check_locked(yard: &Yard, options: &cli::CheckArtifacts) -> Result<ExitCode> {
    let as_json = options.json.json;
    if options.here || !Door::is_open(yard) {
        return check(yard, &NoHelpers, as_json);
    }
    match yard.lock() {
        Ok(lock) => {
            // If this cannot be written, status shows less.
            let _ = lock.note("checking the outputs");
            check(yard, &OtherMachines::new(yard), as_json)
        }
        Err(_) => {
            say!("note: workers do not help, since another command is working on this yard");
            check(yard, &NoHelpers, as_json)
        }
    }
}

/// Reads all outputs of a target, on these machines too.
pub fn check(yard: &Yard, helpers: &dyn Helpers, as_json: bool) -> Result<ExitCode> {
    let verified = read_all(yard, helpers)?;
    let is_intact = verified.missing.is_empty() && verified.damaged.is_empty();
    if as_json {
        let (missing, damaged) = (&verified.missing, &verified.damaged);
        print_json(&json!({
            "intact": verified.intact,
            "read_elsewhere": verified.elsewhere,
            "missing": missing,
            "damaged": damaged,
        }))?;
    } else {
        let elsewhere = match verified.elsewhere {
            0 => String::new(),
            count => format!(" ({count} read by other machines)"),
        };
        print(&format!("{} intact{elsewhere}\n", words::count(verified.intact, "output")))?;
        for (files, what) in [(&verified.missing, "missing"), (&verified.damaged, "damaged, and removed")] {
            for file in files.iter().take(SHOWN_MAX) {
                print(&format!("{file} is {what}\n"))?;
            }
            if let Some(more) = files.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
                print(&format!("and {more} more are {what}\n"))?;
            }
        }
        if !is_intact {
            say!("try: {}, which builds their packages again", words::command("build"));
        }
    }
    Ok(if is_intact { ExitCode::SUCCESS } else { ExitCode::from(Kind::Machine as u8) })
}

/// Reads all outputs of a target, and prints how far it is. What is damaged is removed.
pub fn read_all(yard: &Yard, helpers: &dyn Helpers) -> Result<Verified> {
    let store = yard.store()?;
    let mut said = Instant::now();
    verify(yard, &*store, helpers, signals::cancel(), &mut |all, done| {
        if said.elapsed() > STEP {
            said = Instant::now();
            say!("{done} of {} read", words::count(all as u64, "output"));
        }
    })
}

/// Removes what nothing names. A build that runs meanwhile loses nothing: what it stores is new.
fn clean(yard: &Yard, is_dry: bool, as_json: bool) -> Result<ExitCode> {
    let Some(depot) = yard.depot()? else {
        return Err(Error::usage("outputs are in the yard alone: there is no url in the table [artifacts]")
            .hint("kilnyard clean, for files of the yard"));
    };
    let unneeded = unneeded(yard, &*depot)?;
    let (mut removed, mut removed_bytes) = (0_u64, 0_u64);
    for (sha256, size_bytes) in &unneeded.artifacts {
        if signals::count() > 0 {
            break;
        }
        // It may have been stored again since it was listed.
        let is_removed = match is_dry {
            true => true,
            false => depot
                .remove_before(sha256, unneeded.before_seconds)
                .context(Kind::Machine, "remove an artifact")?,
        };
        if is_removed {
            removed += 1;
            removed_bytes += size_bytes;
        }
    }
    let swept = match is_dry {
        true => 0,
        false => depot.sweep(fresh_since_seconds()).context(Kind::Machine, "remove abandoned uploads")?,
    };
    if as_json {
        print_json(&json!({
            "artifacts": unneeded.all,
            "removed": removed,
            "removed_bytes": removed_bytes,
            "abandoned_uploads": swept,
            "is_dry_run": is_dry,
        }))?;
    } else {
        let how = if is_dry { "would be removed" } else { "removed" };
        let (count, size) = (words::count(removed, "artifact"), words::size(removed_bytes));
        print(&format!("{count} of {} {how} from {}: {size}\n", unneeded.all, depot.name()))?;
        if swept > 0 {
            print(&format!("{} removed\n", words::count(swept, "abandoned upload")))?;
        }
    }
    match signals::count() {
        0 => Ok(ExitCode::SUCCESS),
        _ => Err(Error::new(Kind::Interrupted, "interrupted; the same command continues")),
    }
}
