//! `kilnyard scan`: brings the yard's index up to date.

use super::Console;
use crate::cli::Scan;
use crate::error::Result;
use crate::signals;
use crate::yard::Yard;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &Scan, console: &Console) -> Result<ExitCode> {
    signals::install();
    let _lock = yard.lock()?;
    let scanned = yard.config.family.scan(yard, signals::cancel(), &|text| say!("{text}"))?;
    scanned.report(console, options.json)
}
