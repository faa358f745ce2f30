//! `kilnyard store`: where the records of a yard are, and whether they are intact.

use super::print;
use crate::cli;
use crate::config::store::StoreTable;
use crate::error::{Error, Result};
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_yard::helpers::NoHelpers;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub fn run(yard: &Yard, command: &cli::Store) -> Result<ExitCode> {
    match command {
        cli::Store::Check(options) => check(yard, options.json.json),
        cli::Store::Move(options) => move_to(yard, options),
        cli::Store::Adopt => adopt(yard),
        cli::Store::Backup { file } => back_up(yard, file),
        cli::Store::Restore { file } => restore(yard, file),
    }
}

fn check(yard: &Yard, as_json: bool) -> Result<ExitCode> {
    let store = yard.store()?;
    store.check().map_err(store_error)?;
    let place = yard.store_name()?;
    let (runs, next) = (store.runs().map_err(store_error)?.len(), store.next_build().map_err(store_error)?);
    let (builds, outputs) = (next - 1, store.outputs().map_err(store_error)?.len());
    let (farm, target) = (store.scope().farm, &store.scope().target);
    if as_json {
        let value = json!({
            "store": place,
            "farm": farm.to_string(),
            "yard": store.scope().yard.to_string(),
            "target": target.to_string(),
            "runs": runs,
            "highest_build": builds,
            "outputs": outputs,
        });
        return print(&format!("{value:#}\n"));
    }
    let runs = words::count(runs as u64, "run");
    let outputs = words::count(outputs as u64, "output");
    print(&format!(
        "the store {place} is intact\n\
         farm {farm}, target {target}: {runs}, builds up to number {builds}, {outputs}\n"
    ))
}

fn back_up(yard: &Yard, file: &Path) -> Result<ExitCode> {
    let copied = yard.back_up_to(file)?;
    for table in &copied.tables {
        say!("{}: {}", table.table, words::count(table.rows, "row"));
    }
    say!("all rows of {} are in {}", copied.from, copied.to);
    Ok(ExitCode::SUCCESS)
}

/// The records first, then what they name.
fn restore(yard: &Yard, file: &Path) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    let restored = yard.restore_from(file)?;
    for table in &restored.tables {
        say!("{}: {}", table.table, words::count(table.rows, "row"));
    }
    say!(
        "all rows of {} are in {}; what used the store after the backup is refused",
        restored.from,
        restored.to
    );
    super::artifacts::check(yard, &NoHelpers, false)
}

fn adopt(yard: &Yard) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    say!("this yard uses the store {}", yard.adopt_store()?);
    Ok(ExitCode::SUCCESS)
}

fn move_to(yard: &Yard, options: &cli::Move) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    let cli::Move { to, password_file, certificates, schema } = options;
    let url = (to != FILE).then(|| to.clone());
    let (password_file, certificates, schema) = (password_file.clone(), certificates.clone(), schema.clone());
    let table = StoreTable { url, password_file, certificates, schema };
    table.check().map_err(Error::usage)?;
    let moved = yard.move_store(&table)?;
    for table in &moved.tables {
        say!("{}: {}", table.table, words::count(table.rows, "row"));
    }
    say!("all rows of {} are in {}; the former stays as it is", moved.from, moved.to);
    // The URL may have a password, and the configuration is the user's.
    let change = match table.url {
        Some(_) => "set url in the table [store] of kilnyard.toml, and the other settings of the database",
        None => "remove the table [store] from kilnyard.toml",
    };
    say!("now {change}: until then, commands use the former");
    Ok(ExitCode::SUCCESS)
}

/// What `--to` says for a file of the yard.
const FILE: &str = "file";
