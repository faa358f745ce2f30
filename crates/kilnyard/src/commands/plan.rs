//! `kilnyard plan`: what a build would do, in which order, and why.

use super::{print, printed};
use crate::cli;
use crate::error::{Context, Result};
use crate::plan::{current_plan, keep_current};
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_schedule::effective_priorities;
use kilnyard_store::{Plan, PlanRow, PlanRowSeen, Store};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Plan) -> Result<ExitCode> {
    let mut yard = yard.clone();
    options.choices.apply(&mut yard)?;
    let yard = &yard;
    if let Some(lack) = yard.config.no_packages_note(&yard.home)? {
        say!("note: {lack}");
    }
    super::ensure_scanned(yard)?;
    let mut store = yard.store()?;
    let sources = yard.config.family.provenances(yard)?;
    if options.json {
        keep_current(yard, &mut *store)?;
        let store: &dyn Store = &*store;
        return store.at_once(|store| print_as_json(yard, store, &sources)).map_err(store_error)?;
    }
    show(yard, &current_plan(yard, &mut *store)?, options.all, &sources)
}

/// A plan for programs. Its packages are streamed from the store to the output: a release has 30,000, and
/// holding them all would cost more than the rest of the command.
#[derive(Serialize)]
struct AsJson<'a> {
    target: Option<&'a str>,
    digest: &'a str,
    made_seconds: f64,
    expected_seconds: f64,
    bound_seconds: f64,
    cycles_cut: &'a [String],
    remarks: &'a [String],
    path: &'a [String],
    sources: &'a BTreeMap<String, String>,
    packages: Packages<'a>,
}

struct Packages<'a>(&'a dyn Store);

#[derive(Serialize)]
struct PackageAsJson<'a> {
    name: &'a str,
    version: &'a str,
    state: PackageState,
    reason: String,
    why: &'a Reason,
    estimate_seconds: f64,
    rank_seconds: f64,
    dependencies: Words<'a>,
}

/// Words of a line, as a list.
struct Words<'a>(&'a str);

impl Serialize for Words<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.split_ascii_whitespace())
    }
}

impl Serialize for Packages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        let mut written = Ok(());
        let each = &mut |row: PlanRowSeen| {
            written = sequence.serialize_element(&PackageAsJson {
                name: row.name,
                version: row.version,
                state: row.state,
                reason: row.reason.to_string(),
                why: row.reason,
                estimate_seconds: row.estimate_seconds,
                rank_seconds: row.rank_seconds,
                dependencies: Words(row.dependencies),
            });
            written.is_ok()
        };
        self.0.each_planned(each).map_err(serde::ser::Error::custom)?;
        written?;
        sequence.end()
    }
}

/// The size of one write.
const CHUNK_BYTES: usize = 64 << 10;

fn print_as_json(yard: &Yard, store: &dyn Store, sources: &BTreeMap<String, String>) -> Result<ExitCode> {
    let Some(plan) = store.plan_head().map_err(store_error)? else { return Ok(ExitCode::SUCCESS) };
    let value = AsJson {
        target: yard.target_name.as_deref(),
        digest: &plan.digest,
        made_seconds: plan.made_seconds,
        expected_seconds: plan.expected_seconds,
        bound_seconds: plan.bound_seconds,
        cycles_cut: &plan.cuts,
        remarks: &plan.remarks,
        path: &plan.path,
        sources,
        packages: Packages(store),
    };
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, std::io::stdout().lock());
    match serde_json::to_writer_pretty(&mut out, &value) {
        Err(error) if error.is_io() => printed(Err(error.into())),
        Err(error) => Err(error).or_internal("write the plan"),
        Ok(()) => printed(writeln!(out).and_then(|()| out.flush())),
    }
}

/// The priority of each package of a plan, raised by the packages that wait for it.
fn priorities<'a>(yard: &Yard, plan: &'a Plan) -> HashMap<&'a str, i32> {
    let mut graph = Graph::new();
    let ids: Vec<PackageId> = plan.packages.iter().map(|row| graph.add(&row.package.name)).collect();
    for (id, row) in ids.iter().zip(&plan.packages) {
        for dependency in row.dependencies.iter().filter_map(|name| graph.find(name)).collect::<Vec<_>>() {
            graph.depend(*id, dependency);
        }
    }
    let own: Vec<i32> =
        plan.packages.iter().map(|row| yard.config.settings_of(&row.package.name).priority).collect();
    let all = effective_priorities(&graph, &own);
    plan.packages.iter().map(|row| row.package.name.as_str()).zip(all).collect()
}

/// The maximum number of packages whose sources are printed; `--json` has all.
const SOURCES_MAX: usize = 20;

/// Prints a plan for people: by priority, and then the longest paths first. `sources` says where sources come from,
/// by package.
pub fn show(yard: &Yard, plan: &Plan, all: bool, sources: &BTreeMap<String, String>) -> Result<ExitCode> {
    let priorities = if yard.config.tables.is_empty() { HashMap::new() } else { priorities(yard, plan) };
    let priority = |row: &PlanRow| priorities.get(row.package.name.as_str()).copied().unwrap_or(0);
    let mut rows: Vec<&PlanRow> =
        plan.packages.iter().filter(|row| all || row.package.state != PackageState::UpToDate).collect();
    rows.sort_by(|a, b| {
        let key = |row: &PlanRow| (row.package.state == PackageState::LeftOut, Reverse(priority(row)));
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
        let reason = package.reason.first_line();
        let mut line = format!("{what:<10} {:width$}  {reason}", package.name);
        if !row.dependencies.is_empty() && package.state == PackageState::Waiting {
            let _ = write!(line, "; after {}", row.dependencies.join(", "));
        }
        if priority(row) != 0 && package.state != PackageState::LeftOut {
            let _ = write!(line, "; priority {}", priority(row));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for cut in &plan.cuts {
        let _ = writeln!(text, "cycle cut: {cut}");
    }
    for (package, source) in sources.iter().take(SOURCES_MAX) {
        let _ = writeln!(text, "source: {package}: {source}");
    }
    for remark in &plan.remarks {
        let _ = writeln!(text, "note: {remark}");
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
            "expected: {}; estimated minimum: {}\npath: {}",
            words::duration(plan.expected_seconds),
            words::duration(plan.bound_seconds),
            plan.path.join(" -> ")
        );
    }
    print(&text)
}
