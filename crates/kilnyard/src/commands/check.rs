//! `kilnyard check`: which sources of the release cannot be built, and why.

use super::{print, print_json};
use crate::cli;
use crate::error::Result;
use crate::family::debian::scan::Index;
use crate::words;
use crate::yard::Yard;
use kilnyard_ecosystem::debian::check::{Verdicts, check};
use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_ecosystem::debian::universe::Universe;
use serde_json::json;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Check) -> Result<ExitCode> {
    let verdicts = verdicts(yard, !options.dependent)?;
    if options.json {
        return print_json(&json!({ "checked": verdicts.checked, "unbuildable": verdicts.unbuildable }));
    }
    let mut text = String::new();
    for one in &verdicts.unbuildable {
        text.push_str(&format!("{} {}\n", one.package, one.version));
        for line in one.explanation.lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    print(&text)?;
    let bad = words::count(verdicts.unbuildable.len() as u64, "source");
    tell!("{} checked; {bad} cannot be built", words::count(verdicts.checked as u64, "source"));
    Ok(ExitCode::SUCCESS)
}

/// The verdicts on the whole release, or on what a build would build of it.
pub fn verdicts(yard: &Yard, is_of_all: bool) -> Result<Verdicts> {
    let index = Index::open(yard)?;
    let settings = yard.config.debian()?.settings();
    let mut universe = Universe::new(settings.context());
    let mut sources = Sources::default();
    index.read(yard, &mut universe, &mut sources)?;
    let parts = if is_of_all { Parts::All } else { settings.parts };
    Ok(check(&mut universe, &sources, parts))
}
