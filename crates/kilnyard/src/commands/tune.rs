//! `kilnyard tune`: writes the fastest root backend of this machine into the configuration.
//!
//! It uses the recommendation of the last `kilnyard bench roots` or `bench cells` in this yard; if there is none, it runs a short
//! benchmark. Cells are workers, which the configuration of a yard does not start: it names their commands.

use super::{bench, print, print_json};
use crate::cli;
use crate::config::edit::{self, OnConflict, Refusal, Setting};
use crate::error::{Context, Error, Kind, Result};
use crate::signals;
use crate::yard::{CONFIG, Yard};
use kilnyard_bench::figures::Machine;
use kilnyard_bench::processors;
use kilnyard_bench::roots::{self, StoredAdvice};
use kilnyard_yard::remedy::Remedy;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

/// The minimum number of rounds for a result above noise.
const PAIRS: u32 = 3;

pub fn run(yard: &Yard, options: &cli::Tune) -> Result<ExitCode> {
    signals::install();
    let path = fs_err::canonicalize(yard.path(CONFIG)).context(Kind::Usage, "find the configuration")?;
    let kept = match roots::kept(yard).filter(|_| !options.measure) {
        Some(kept) => kept,
        None => {
            say!("measuring {PAIRS} rounds; the machine should be idle otherwise");
            let found = bench::with_trial(PAIRS, |trial| {
                roots::measure(yard, &options.package, trial, &Machine::now(), None)
            })?;
            found.kept().map_err(undecided)?
        }
    };
    let failed = format!("read {}", path.display());
    let before = fs_err::read_to_string(&path).context(Kind::Usage, failed)?;
    let lines = lines(&kept);
    let otherwise = if options.force { OnConflict::Replace } else { OnConflict::Refuse };
    let edited = edit::set(&before, "root", &lines, otherwise);
    let edited = edited.map_err(|refusal| refused(refusal, &kept, yard))?;
    let is_changed = !edited.changes.is_empty();
    if is_changed && !options.dry_run {
        write(&path, &edited.text)?;
    }
    if options.json {
        return print_json(&json!({
            "recommended": kept.roots,
            "reason": kept.reason,
            "measured_with": kept.package,
            "cells": kept.cells,
            "machine_cores": kept.machine_cores,
            "is_changed": is_changed,
            "is_written": is_changed && !options.dry_run,
            "difference": edited.changes,
        }));
    }
    let head = format!("{}: {}, since {} (building {})\n", CONFIG, kept.roots, kept.reason, kept.package);
    let difference: String = edited.changes.iter().map(|line| format!("{line}\n")).collect();
    let what = match (is_changed, options.dry_run) {
        (false, _) => "already configured\n".to_owned(),
        (true, true) => format!("{difference}nothing was written (--dry-run)\n"),
        (true, false) => difference,
    };
    print(&format!("{head}{what}{}", cells(kept.cells)))
}

/// What is written to the table `root`.
fn lines(kept: &StoredAdvice) -> Vec<(&'static str, Setting<'static>)> {
    let roots = roots::lines(kept.roots).into_iter().map(|(key, value)| (key, Setting::Text(value)));
    let machines =
        kept.machine_cores.map(|cores| [("machine", Setting::Text("vm")), ("cores", Setting::Number(cores))]);
    roots.chain(machines.into_iter().flatten()).collect()
}

/// How a machine is divided into cells.
fn cells(count: usize) -> String {
    let all = processors().unwrap_or_default();
    let own = all.len() / count.max(1);
    if count < 2 || own == 0 {
        return String::new();
    }
    let worker = |cell: usize| {
        let of_cell: Vec<String> = all[cell * own..(cell + 1) * own].iter().map(usize::to_string).collect();
        let of_cell = of_cell.join(",");
        format!("  taskset -c {of_cell} kilnyard worker --name cell-{} --cores {own} …\n", cell + 1)
    };
    let workers: String = (0..count).map(worker).collect();
    format!("and {count} cells: run kilnyard build --elsewhere, and these workers (docs/farm.md)\n{workers}")
}

/// The error for a machine without a recommendation; the configuration is unchanged.
fn undecided(why: String) -> Error {
    let mut error = Error::new(Kind::Machine, "no root backend is recommended; nothing was changed");
    error.causes.push(why);
    error.hint(Remedy::command("bench roots --pairs 10").then(", while the machine is idle"))
}

fn refused(refusal: Refusal, kept: &StoredAdvice, yard: &Yard) -> Error {
    let path = yard.path(CONFIG);
    let mut error = Error::usage(format!("{} was not changed", path.display()));
    error.causes.push(refusal.to_string());
    let lines: Vec<String> = lines(kept).into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let by_hand = format!("add these lines under [root] yourself: {}", lines.join("; "));
    match refusal {
        Refusal::OtherValue { .. } => {
            error.hint(Remedy::command("tune --force").then(", which replaces it")).hint(by_hand)
        }
        Refusal::Unreadable { .. } => {
            error.hint(Remedy::from("fix the line, then run ").then_command("tune").then(" again"))
        }
        Refusal::Shape { .. } => error.hint(by_hand),
    }
}

/// Replaces the configuration atomically, and keeps its mode.
fn write(path: &std::path::Path, text: &str) -> Result<()> {
    let failed = format!("write {}", path.display());
    let metadata = fs_err::metadata(path).context(Kind::Machine, &failed)?;
    let part = path.with_extension("toml.part");
    let written = fs_err::File::create(&part).and_then(|mut file| {
        file.set_permissions(std::fs::Permissions::from_mode(metadata.permissions().mode() & 0o7777))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs_err::rename(&part, path)
    });
    written.context(Kind::Machine, failed)
}
