//! `kilnyard plan`: what a build would do, in which order, and why.

use super::{print, print_json};
use crate::cli;
use crate::error::Result;
use crate::plan::current_plan;
use crate::words;
use crate::yard::Yard;
use kilnyard_model::result::PackageState;
use kilnyard_store::{Plan, PlanRow};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Plan) -> Result<ExitCode> {
    let mut store = yard.store()?;
    let plan = current_plan(yard, &mut store)?;
    if options.json {
        return print_json(&as_json(&plan));
    }
    show(&plan, options.all)
}

fn as_json(plan: &Plan) -> serde_json::Value {
    let package = |row: &PlanRow| {
        json!({
            "name": row.package.name,
            "version": row.package.version,
            "state": row.package.state,
            "reason": row.package.reason,
            "estimate_seconds": row.package.estimate_seconds,
            "rank_seconds": row.package.rank_seconds,
            "dependencies": row.dependencies,
        })
    };
    json!({
        "digest": plan.digest,
        "made_seconds": plan.made_seconds,
        "expected_seconds": plan.expected_seconds,
        "bound_seconds": plan.bound_seconds,
        "cycles_cut": plan.cuts,
        "path": plan.path,
        "packages": plan.packages.iter().map(package).collect::<Vec<_>>(),
    })
}

/// Prints a plan for people: the longest paths first.
pub fn show(plan: &Plan, all: bool) -> Result<ExitCode> {
    let mut rows: Vec<&PlanRow> =
        plan.packages.iter().filter(|row| all || row.package.state != PackageState::UpToDate).collect();
    rows.sort_by(|a, b| {
        let key = |row: &PlanRow| row.package.state == PackageState::LeftOut;
        key(a).cmp(&key(b)).then_with(|| b.package.rank_seconds.total_cmp(&a.package.rank_seconds))
    });
    let width = rows.iter().map(|row| row.package.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &rows {
        let package = &row.package;
        let what = match package.state {
            PackageState::Ready => "build",
            PackageState::Waiting => "wait",
            other => other.as_str(),
        };
        let reason = package.reason.lines().next().unwrap_or("");
        let mut line = format!("{what:<10} {:width$}  {reason}", package.name);
        if !row.dependencies.is_empty() && package.state == PackageState::Waiting {
            let _ = write!(line, "; after {}", row.dependencies.join(", "));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for cut in &plan.cuts {
        let _ = writeln!(text, "cycle cut: {cut}");
    }
    let count = |state| plan.packages.iter().filter(|row| row.package.state == state).count() as u64;
    let to_build = count(PackageState::Ready) + count(PackageState::Waiting);
    let _ = writeln!(
        text,
        "{} to build, {} up to date, {} left out",
        words::count(to_build, "package"),
        count(PackageState::UpToDate),
        count(PackageState::LeftOut)
    );
    if to_build > 0 {
        let _ = writeln!(
            text,
            "expected: {}; by these estimates no schedule could take less than {}\npath: {}",
            words::duration(plan.expected_seconds),
            words::duration(plan.bound_seconds),
            plan.path.join(" -> ")
        );
    }
    print(&text)
}
