//! `kilnyard watch`: polls the archives, the tree and the repositories of a yard, and starts a run when there is something new.

use super::scan::scan;
use crate::cli;
use crate::error::{Context, Kind, Result};
use crate::words;
use crate::yard::{Yard, store_error};
use crate::{plan, signals};
use kilnyard_store::RunState;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How often a sleeping process checks whether it is to end.
const STEP: Duration = Duration::from_millis(200);

pub fn run(yard: &Yard, options: &cli::Watch) -> Result<ExitCode> {
    signals::install();
    loop {
        let begun = Instant::now();
        let code = match look(yard) {
            Ok(true) => build(yard)?,
            Ok(false) => ExitCode::SUCCESS,
            // What fails now, such as a mirror, may work the next time.
            Err(error) if !options.once && signals::count() == 0 => {
                say!("{error}");
                ExitCode::SUCCESS
            }
            Err(error) => return Err(error),
        };
        if options.once {
            return Ok(code);
        }
        if signals::count() > 0 {
            return Ok(ExitCode::SUCCESS);
        }
        while begun.elapsed() < options.every {
            if signals::count() > 0 {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(STEP);
        }
    }
}

/// Whether there is something that the last run did not have.
fn look(yard: &Yard) -> Result<bool> {
    if yard.is_locked() {
        say!("another process works on the yard: looking again later");
        return Ok(false);
    }
    {
        let _lock = yard.lock()?;
        let scanned = scan(yard, &|text| say!("{text}"))?;
        for part in &scanned.changed {
            say!("{part}: something new");
        }
    }
    let store = yard.store()?;
    let Some(last) = store.last_run().map_err(store_error)? else { return Ok(true) };
    // A run that was killed is resumed, too.
    let digest = plan::digest(yard, &*store)?;
    let is_same = plan::inputs_of(&digest) == plan::inputs_of(&last.plan_digest);
    if is_same && last.state == RunState::Finished {
        say!("{}: nothing new since run {}", words::time(words::now_seconds()), last.number);
        return Ok(false);
    }
    Ok(true)
}

/// Runs `kilnyard build` in a process of its own: a run ends with its process.
fn build(yard: &Yard) -> Result<ExitCode> {
    let failed = "start kilnyard build";
    let program = std::env::current_exe().context(Kind::Machine, failed)?;
    let mut command = Command::new(program);
    command.arg("--yard").arg(&yard.home);
    if let Some(target) = &yard.target_name {
        command.args(["--target", target]);
    }
    let status = command.arg("build").status().context(Kind::Machine, failed)?;
    Ok(ExitCode::from(status.code().map_or(Kind::Interrupted as u8, |code| code as u8)))
}
