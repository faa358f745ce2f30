//! `kilnyard plan --pbulk-rules`: compares our verdicts with those of pbulk's rules.

use super::{Pkgsrc, TreeSet, pbulk};
use kilnyard_model::result::PackageState;
use kilnyard_yard::error::{Error, Result};
use kilnyard_yard::mirror::open_files;
use kilnyard_yard::plan::{self, Forced};
use kilnyard_yard::program::Program;
use kilnyard_yard::yard::Yard;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

pub fn run(yard: &Yard, as_json: bool, program: &dyn Program) -> Result<ExitCode> {
    let distfiles = open_files(yard)?;
    let mut store = yard.store()?;
    let planned = plan::make(yard, &distfiles, &mut *store, &Forced::Nothing)?;
    let (Some(set), Some(pkgsrc)) = (planned.set.of::<TreeSet>(), yard.config.family.of::<Pkgsrc>()) else {
        return Err(Error::usage(format!(
            "pbulk builds pkgsrc, but this is a yard of {}",
            yard.config.family.title()
        )));
    };
    let verdicts = pbulk::verdicts(pkgsrc, set.workshop(), &planned.current, &distfiles);
    let rows = planned.plan.packages.iter().filter_map(|row| {
        let verdict = verdicts.get(&row.package.name)?;
        Some((&row.package, verdict.as_ref().map(ToString::to_string)))
    });
    if as_json {
        let packages = rows.map(|(package, stale)| {
            json!({
                "name": package.name,
                "version": package.version,
                "state": package.state,
                "reason": package.reason.to_string(),
                "pbulk_up_to_date": stale.is_none(),
                "pbulk_reason": stale,
            })
        });
        return program.print_json(&json!({ "packages": packages.collect::<Vec<_>>() }));
    }
    let (mut text, mut differing) = (String::new(), 0);
    for (package, stale) in rows {
        let is_current = package.state == PackageState::UpToDate;
        if is_current == stale.is_none() {
            continue;
        }
        differing += 1;
        let theirs = stale.unwrap_or_else(|| "up to date".to_owned());
        let ours = package.reason.first_line();
        let _ = writeln!(text, "{}\n  pbulk: {theirs}\n  here:  {ours}", package.name);
    }
    program.print(&text)?;
    say!(program, "{} packages, {differing} with different verdicts", verdicts.len());
    Ok(ExitCode::SUCCESS)
}
