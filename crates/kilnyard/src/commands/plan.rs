//! `kilnyard plan`: what a build would do, in which order, and why.

use super::print;
use crate::cli;
use crate::error::Result;
use crate::plan::current_plan;
use crate::words;
use crate::yard::Yard;
use kilnyard_model::result::PackageState;
use kilnyard_store::{Plan, PlanRow};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Plan) -> Result<ExitCode> {
    let mut store = yard.store()?;
    let plan = current_plan(yard, &mut store)?;
    if options.json {
        return print_as_json(&plan);
    }
    show(&plan, options.all)
}

/// A plan for programs. It is written from what it is made of: a release has 30,000 packages, and a tree of
/// values of them all would cost more than everything else that answering takes.
#[derive(Serialize)]
struct AsJson<'a> {
    digest: &'a str,
    made_seconds: f64,
    expected_seconds: f64,
    bound_seconds: f64,
    cycles_cut: &'a [String],
    path: &'a [String],
    packages: Vec<PackageAsJson<'a>>,
}

#[derive(Serialize)]
struct PackageAsJson<'a> {
    name: &'a str,
    version: &'a str,
    state: PackageState,
    reason: &'a str,
    estimate_seconds: f64,
    rank_seconds: f64,
    dependencies: &'a [String],
}

impl<'a> AsJson<'a> {
    fn new(plan: &'a Plan) -> AsJson<'a> {
        let package = |row: &'a PlanRow| PackageAsJson {
            name: &row.package.name,
            version: &row.package.version,
            state: row.package.state,
            reason: &row.package.reason,
            estimate_seconds: row.package.estimate_seconds,
            rank_seconds: row.package.rank_seconds,
            dependencies: &row.dependencies,
        };
        AsJson {
            digest: &plan.digest,
            made_seconds: plan.made_seconds,
            expected_seconds: plan.expected_seconds,
            bound_seconds: plan.bound_seconds,
            cycles_cut: &plan.cuts,
            path: &plan.path,
            packages: plan.packages.iter().map(package).collect(),
        }
    }
}

/// How much is written at once.
const CHUNK_BYTES: usize = 64 << 10;

fn print_as_json(plan: &Plan) -> Result<ExitCode> {
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, std::io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, &AsJson::new(plan));
    // Whoever stops reading has had enough.
    let _ = written.map_err(std::io::Error::from).and_then(|()| writeln!(out)).and_then(|()| out.flush());
    Ok(ExitCode::SUCCESS)
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
