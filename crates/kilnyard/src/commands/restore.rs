//! `kilnyard restore`: recovers a store from its backup and the repository.
//!
//! The new store is made under another name and replaces the old one when it is complete: an interrupted restore leaves
//! the old one, or none, and every command reports either. An empty store in its place would withdraw all packages.

use super::print;
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{STORE, Yard, store_error};
use crate::{mirror, words};
use kilnyard_store::{Record, Store};
use kilnyard_store_sqlite::{Sqlite, check_file, files};
use kilnyard_yard::remedy::Remedy;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Restore) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    let path = yard.path(STORE);
    if !options.force && check_file(&path).is_ok() {
        return Err(Error::usage(format!("the store {} is intact", path.display()))
            .hint(Remedy::command("restore --force").then(", which replaces it with its last backup")));
    }
    let mut text = String::new();
    let making = path.with_extension(MAKING);
    remove(&making)?;
    let backup = match options.without_backup {
        true => None,
        false => yard.backups().into_iter().find(|backup| check_file(backup).is_ok()),
    };
    if let Some(backup) = &backup {
        Sqlite::restore(backup, &making).map_err(store_error)?;
        let _ = writeln!(text, "restored from {}: later runs and builds are lost", backup.display());
    } else {
        let _ = writeln!(text, "there is no good backup: all runs, builds, their times and keys are lost");
    }
    // The repository may be newer than the backup, and the store must not be empty while the repository has packages.
    let mut store = Sqlite::open(&making, &yard.target()?).map_err(store_error)?;
    store.lead(&yard.as_holder()?).map_err(store_error)?;
    let distfiles = mirror::open_files(yard)?;
    let recovered = yard.config.family.recover(yard, &store, &distfiles)?;
    let records: Vec<Record> = recovered.packages.iter().cloned().map(Record::Outputs).collect();
    store.record(&records).map_err(store_error)?;
    let count = words::count(records.len() as u64, "package");
    if !records.is_empty() {
        let _ = writeln!(text, "{count} taken from the repository: the next build compares them by content");
    }
    for remark in &recovered.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    // One file, without SQLite's separate log.
    let complete = path.with_extension(COMPLETE);
    store.back_up(&complete).map_err(store_error)?;
    drop(store);
    if let Some(aside) = put_aside(&path)? {
        let _ = writeln!(text, "the previous store is kept as {}", aside.display());
    }
    Sqlite::restore(&complete, &path).map_err(store_error)?;
    remove(&making)?;
    remove(&complete)?;
    print(&text)?;
    // The next publication would withdraw lost packages: a script must notice.
    Ok(if recovered.remarks.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The file extensions of the new store while it is made, and of the copy that replaces the old store.
const MAKING: &str = "making.db";
const COMPLETE: &str = "complete.db";

/// Removes a store that an interrupted restore left, or that is no longer needed.
fn remove(path: &Path) -> Result<()> {
    for file in files(path) {
        match fs_err::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context(Kind::Machine, "remove an incomplete store");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Renames the files of the store. Returns the new name of its main file, if there is one.
fn put_aside(path: &Path) -> Result<Option<PathBuf>> {
    let aside = path.with_extension(format!("damaged-{}.db", words::now_seconds() as u64));
    let mut is_kept = None;
    for (from, to) in files(path).iter().zip(files(&aside)) {
        if from.exists() {
            fs_err::rename(from, &to).context(Kind::Machine, "set the damaged store aside")?;
            is_kept = Some(aside.clone());
        }
    }
    Ok(is_kept)
}
