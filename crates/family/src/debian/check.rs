//! `kilnyard check`: which sources of the release cannot be built, and why.

use super::scan::Index;
use super::{Debian, TITLE};
use clap::Args;
use kilnyard_ecosystem::debian::Settings;
use kilnyard_ecosystem::debian::check::{Verdicts, check};
use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_ecosystem::debian::universe::Universe;
use kilnyard_yard::error::Result;
use kilnyard_yard::family::ensure_scanned;
use kilnyard_yard::program::Program;
use kilnyard_yard::yard::Yard;
use kilnyard_yard::{interrupt, words};
use serde_json::json;
use std::process::ExitCode;

/// `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Only what a build would build of each source: with `parts = "dependent"`, no Build-Depends-Indep and no
    /// source that makes nothing for this architecture.
    #[arg(long)]
    dependent: bool,
    /// What the sources' own tests need counts too, whatever `checks` and `profiles` in kilnyard.toml say.
    #[arg(long)]
    checks: bool,
}

/// The build profile under which the sources' own tests do not run.
const NO_CHECKS: &str = "nocheck";

pub fn run(yard: &Yard, options: &Check, program: &dyn Program) -> Result<ExitCode> {
    let mut settings = yard.config.family.require::<Debian>(TITLE)?.settings();
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
    let verdicts = verdicts(yard, &settings)?;
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
            "under the build profiles {}: what only tests need is left out (--checks counts it too)",
            profiles.join(", ")
        ),
        false if profiles.is_empty() => say!(program, "under no build profile: what tests need counts too"),
        false => {
            say!(program, "under the build profiles {}: what tests need counts too", profiles.join(", "))
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The verdicts on the release, of these parts and under these profiles.
fn verdicts(yard: &Yard, settings: &Settings) -> Result<Verdicts> {
    let index = Index::open(yard)?;
    let mut universe = Universe::new(settings.context());
    let mut sources = Sources::default();
    index.read(yard, &mut universe, &mut sources)?;
    Ok(check(&mut universe, &sources, settings.parts))
}
