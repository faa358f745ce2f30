//! `kilnyard restore`: makes a store again from what is left of it.

use super::print;
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{STORE, Yard, store_error};
use crate::{family, mirror, words};
use kilnyard_store::{Record, Sqlite, Store, check_file, files};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Restore) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    let path = yard.path(STORE);
    if !options.force && check_file(&path).is_ok() {
        return Err(Error::usage(format!("the store {} is in order", path.display()))
            .hint("kilnyard restore --force, which replaces it by its last backup"));
    }
    let mut text = String::new();
    if let Some(aside) = put_aside(&path)? {
        let _ = writeln!(text, "what was left of the store is kept as {}", aside.display());
    }
    let backup = match options.without_backup {
        true => None,
        false => yard.backups().into_iter().find(|backup| check_file(backup).is_ok()),
    };
    if let Some(backup) = &backup {
        Sqlite::restore(backup, &path).map_err(store_error)?;
        let _ = writeln!(text, "restored from {}: later runs and builds are lost", backup.display());
    } else {
        let _ = writeln!(text, "there is no good backup: all runs, builds, their times and keys are lost");
    }
    // The repository may be newer than the backup, and the store may not be empty while it has packages.
    let mut store = Sqlite::open(&path).map_err(store_error)?;
    let distfiles = mirror::open_distfiles(yard)?;
    let recovered = family::recover(yard, &store, &distfiles)?;
    let records: Vec<Record> = recovered.packages.iter().cloned().map(Record::Outputs).collect();
    store.record(&records).map_err(store_error)?;
    let count = words::count(records.len() as u64, "package");
    let _ =
        writeln!(text, "{count} taken from the repository: the next build compares them by their content");
    for remark in recovered.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    print(&text)
}

/// Renames the files of the store; the new name of its main file, if there is one.
fn put_aside(path: &Path) -> Result<Option<PathBuf>> {
    let aside = path.with_extension(format!("damaged-{}.db", words::now_seconds() as u64));
    let mut is_kept = None;
    for (from, to) in files(path).iter().zip(files(&aside)) {
        if from.exists() {
            fs_err::rename(from, &to).context(Kind::Machine, "put the damaged store aside")?;
            is_kept = Some(aside.clone());
        }
    }
    Ok(is_kept)
}
