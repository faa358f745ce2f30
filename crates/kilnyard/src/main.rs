//! Kilnyard: rebuilds whole trees of packages.
//!
//! This program is the fourth floor: it reads the command line, the configuration and the environment,
//! talks to people, and drives the crates below, which do none of that.

mod base;
mod cli;
mod commands;
mod config;
mod error;
mod plan;
mod publish;
mod report;
mod run;
mod scan;
mod signals;
mod words;
mod yard;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A build's root is entered by this program itself, started again.
    kilnyard_root::sandbox::become_sandbox_if_asked();
    let arguments = cli::Arguments::parse();
    match commands::run(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.kind as u8)
        }
    }
}
