//! `kilnyard bench`: measures Kilnyard on this machine.

use crate::cli::Bench;
use crate::error::{Error, Result};
use crate::yard::Yard;
use std::process::ExitCode;

pub fn run(_yard: impl FnOnce() -> Result<Yard>, _options: &Bench) -> Result<ExitCode> {
    Err(Error::usage("not yet"))
}
