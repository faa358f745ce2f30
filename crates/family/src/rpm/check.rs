//! `kilnyard check`: the packages that cannot be installed, the sources that cannot be built, and why.

use super::Rpm;
use super::scan::{Index, Packages};
use kilnyard_ecosystem::rpm::check::check;
use kilnyard_yard::error::Result;
use kilnyard_yard::family::ensure_scanned;
use kilnyard_yard::program::Program;
use kilnyard_yard::yard::Yard;
use kilnyard_yard::{interrupt, words};
use serde_json::json;
use std::process::ExitCode;

pub fn run(yard: &Yard, rpm: &Rpm, as_json: bool, program: &dyn Program) -> Result<ExitCode> {
    program.catch_signals();
    ensure_scanned(yard, interrupt::cancel(), &|text| program.say(text))?;
    let Packages { mut universe, sources, others, .. } = Index::open(yard)?.read(yard, rpm)?;
    let verdicts = check(&mut universe, &sources);
    if as_json {
        return program.print_json(&json!({
            "checked": verdicts.checked,
            "sources": sources.len(),
            "other-architectures": others,
            "broken": verdicts.broken,
        }));
    }
    let mut text = String::new();
    let addresses = rpm.addresses();
    for one in &verdicts.broken {
        // Several may have the same package.
        let of = addresses.get(one.repository as usize).filter(|_| addresses.len() > 1);
        let of = of.map(|address| format!(" of {address}")).unwrap_or_default();
        text.push_str(&format!("{} {} ({}){of}\n", one.package, one.version, one.architecture));
        for line in one.explanation.lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    program.print(&text)?;
    let packages = words::count((verdicts.checked - sources.len()) as u64, "package");
    let checked = format!("{packages} and {} checked", words::count(sources.len() as u64, "source"));
    say!(program, "{checked}; {} cannot be installed or built", verdicts.broken.len());
    if others > 0 {
        say!(program, "{} of other architectures left out", words::count(others as u64, "package"));
    }
    Ok(ExitCode::SUCCESS)
}
