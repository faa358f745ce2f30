//! `kilnyard scan`: brings the yard's index up to date.

use super::Console;
use crate::cli::Scan;
use crate::error::Result;
use crate::run::OtherMachines;
use crate::signals;
use crate::yard::Yard;
use kilnyard_yard::family::Scanned;
use std::process::ExitCode;

/// Brings the index up to date, with the workers on other machines that take part in scans.
pub fn scan(yard: &Yard, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned> {
    yard.config.family.scan_with(yard, &OtherMachines::new(yard), signals::cancel(), say)
}

pub fn run(yard: &Yard, options: &Scan, console: &Console) -> Result<ExitCode> {
    signals::install();
    let _lock = yard.lock()?;
    let scanned = scan(yard, &|text| say!("{text}"))?;
    scanned.report(console, options.json)
}
