//! `kilnyard check`: the sources of the release that cannot be built, and why.

use super::Debian;
use super::scan::Index;
use clap::Args;
use kilnyard_ecosystem::debian::Settings;
use kilnyard_ecosystem::debian::check::{Verdicts, check};
use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_ecosystem::debian::suites::apply;
use kilnyard_ecosystem::debian::universe::Universe;
use kilnyard_yard::error::Result;
use kilnyard_yard::family::ensure_scanned;
use kilnyard_yard::program::Program;
use kilnyard_yard::yard::Yard;
use kilnyard_yard::{interrupt, words};
use serde_json::json;
use std::process::ExitCode;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Check only the parts that a build would make. With `parts = "dependent"`, skip Build-Depends-Indep and
    /// sources that make no package for this architecture.
    #[arg(long)]
    dependent: bool,
    /// Include dependencies that only the sources' own tests need, regardless of `checks` and `profiles` in
    /// kilnyard.toml.
    #[arg(long)]
    checks: bool,
}

/// The build profile under which the sources' own tests do not run.
const NO_CHECKS: &str = "nocheck";

pub fn run(yard: &Yard, debian: &Debian, options: &Check, program: &dyn Program) -> Result<ExitCode> {
    let mut settings = debian.settings();
    program.catch_signals();
    ensure_scanned(yard, interrupt::cancel(), &|text| program.say(text))?;
    if !options.dependent {
        settings.parts = Parts::All;
    }
    if options.checks {
        settings.runs_checks = true;
        settings.profiles.retain(|profile| profile != NO_CHECKS);
    }
    let profiles = settings.context().profiles;
    let verdicts = verdicts(yard, debian, &settings)?;
    if options.json {
        return program.print_json(&json!({
            "checked": verdicts.checked,
            "profiles": profiles,
            "unbuildable": verdicts.unbuildable,
        }));
    }
    let mut text = String::new();
    for one in &verdicts.unbuildable {
        text.push_str(&format!("{} {}\n", one.package, one.version));
        for line in one.explanation.lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    program.print(&text)?;
    let bad = words::count(verdicts.unbuildable.len() as u64, "source");
    say!(program, "{} checked; {bad} cannot be built", words::count(verdicts.checked as u64, "source"));
    match profiles.iter().any(|profile| profile == NO_CHECKS) {
        true => say!(
            program,
            "under the build profiles {}, without test dependencies (--checks includes them)",
            profiles.join(", ")
        ),
        false if profiles.is_empty() => say!(program, "without build profiles, including test dependencies"),
        false => {
            say!(program, "under the build profiles {}, including test dependencies", profiles.join(", "))
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks every source of the release for the configured parts and profiles.
fn verdicts(yard: &Yard, debian: &Debian, settings: &Settings) -> Result<Verdicts> {
    let index = Index::open(yard)?;
    let mut universe = Universe::new(settings.context());
    let mut sources = Sources::default();
    let suites = index.read(yard, debian, &mut universe, &mut sources)?;
    // A pin that matches nothing is reported by `plan`.
    apply(&debian.pins(), &mut universe, &mut sources, &suites);
    Ok(check(&mut universe, &sources, settings.parts))
}
