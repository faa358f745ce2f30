//! `kilnyard why`: the reason for the state of a package, down to the package to blame.

use super::{print, print_json, unknown};
use crate::config::packages::PackageSettings;
use crate::error::Result;
use crate::run::host_name;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_model::result::PackageState;
use kilnyard_store::{BuildRow, PackageRow, Store};
use kilnyard_worker::RootFolder;
use kilnyard_yard::commits::{self, Change};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// The maximum number of builds read.
const ATTEMPTS_MAX: usize = 20;
/// The longest chain of blame that is followed.
const CHAIN_MAX: usize = 50;
/// The maximum number of commits listed.
const COMMITS_SHOWN: usize = 5;

pub fn run(yard: &Yard, options: &crate::cli::Package) -> Result<ExitCode> {
    let store = yard.store()?;
    let name = &options.package;
    let run = store.last_run().map_err(store_error)?;
    let in_run = match &run {
        Some(run) => store.package(run.number, name).map_err(store_error)?,
        None => None,
    };
    let mut planned = store.planned(name).map_err(store_error)?;
    if in_run.is_none() {
        // There may be no plan yet, or it may be for another configuration.
        super::ensure_scanned(yard)?;
        let plan = crate::plan::current_plan(yard, &mut *yard.store()?)?;
        planned = plan.packages.into_iter().find(|row| row.package.name == *name);
    }
    // A package that is now left out may have been in an earlier run, whose state is obsolete.
    let now = planned.clone().map(|planned| planned.package);
    let left_out = now.clone().filter(|row| row.state == PackageState::LeftOut);
    let Some(row) = left_out.or(in_run).or(now) else {
        return Err(unknown(yard, &*store, name)?);
    };
    let mut builds = store.builds_of(name, ATTEMPTS_MAX).map_err(store_error)?;
    // The tries of one run belong together.
    let last_run = builds.first().map(|build| build.run);
    let changes = changes(yard, &*store, name, &builds)?;
    builds.retain(|build| Some(build.run) == last_run);
    let source = yard.config.family.provenances(yard)?.remove(name);
    let chain = chain(&*store, run.as_ref().map(|run| run.number), &row)?;
    let settings = yard.config.settings_of(name);
    if options.json {
        return print_json(&json!({
            "package": name,
            "version": row.version,
            "source": source,
            "changes": changes,
            "state": row.state,
            "reason": row.reason.to_string(),
            "why": row.reason,
            "blamed": row.blamed,
            "chain": chain.iter().map(|row| json!({
                "package": row.name, "state": row.state, "reason": row.reason.to_string(), "why": row.reason,
            })).collect::<Vec<_>>(),
            "dependencies": planned.map(|planned| planned.dependencies),
            "note": settings.note,
            "expected": settings.expected_failure.as_ref().map(|_| "failure"),
            "because": settings.expected_failure.and_then(|expected| expected.because),
            "network": settings.has_network,
            "priority": settings.priority,
            "build": builds.first().map(build_json),
            "attempts": builds.iter().rev().map(build_json).collect::<Vec<_>>(),
        }));
    }
    print(&text(yard, &row, (source.as_deref(), &changes), &builds, &chain))
}

fn build_json(build: &BuildRow) -> serde_json::Value {
    json!({
        "build": build.number,
        "run": build.run,
        "outcome": build.outcome,
        "failure": build.failure,
        "kept": build.kept(),
    })
}

/// The commits that concern a package, between the run of its last build and that of the build before.
fn changes(yard: &Yard, store: &dyn Store, name: &str, builds: &[BuildRow]) -> Result<Vec<Change>> {
    let Some(last) = builds.first().map(|build| build.run) else { return Ok(Vec::new()) };
    let before = builds.iter().map(|build| build.run).find(|run| *run != last);
    let runs = store.runs().map_err(store_error)?;
    let commits = |number: u64| runs.iter().find(|run| run.number == number).map(|run| &run.commits[..]);
    Ok(match (before.and_then(commits), commits(last)) {
        (Some(before), Some(last)) => commits::between(yard, before, last, Some(name)),
        _ => Vec::new(),
    })
}

/// The chain from a package to the one to blame.
fn chain(store: &dyn Store, run: Option<u64>, row: &PackageRow) -> Result<Vec<PackageRow>> {
    let mut chain = Vec::new();
    let mut next = row.blamed.clone();
    while let (Some(name), Some(run)) = (next, run) {
        let Some(row) = store.package(run, &name).map_err(store_error)? else { break };
        next = row.blamed.clone().filter(|_| chain.len() < CHAIN_MAX);
        chain.push(row);
    }
    Ok(chain)
}

/// The package's own settings that its builds do not show.
fn own(settings: &PackageSettings) -> String {
    let mut text = String::new();
    if settings.has_network {
        text.push_str("  its build has network access\n");
    }
    if let Some(expected) = &settings.expected_failure {
        let because = expected.because.as_ref().map_or(String::new(), |because| format!(": {because}"));
        let _ = writeln!(text, "  expected to fail{because}");
    }
    if settings.priority != 0 {
        let _ = writeln!(text, "  priority: {}", settings.priority);
    }
    if let Some(note) = &settings.note {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}

/// `builds` are the tries of one run, the latest first.
fn text(
    yard: &Yard,
    row: &PackageRow,
    (source, changes): (Option<&str>, &[Change]),
    builds: &[BuildRow],
    chain: &[PackageRow],
) -> String {
    let version = if row.version.is_empty() { String::new() } else { format!(" {}", row.version) };
    let mut text = format!("{}{version} is {}\n", row.name, row.state);
    for (index, line) in row.reason.to_string().lines().enumerate() {
        let lead = if index == 0 { "because: " } else { "" };
        let _ = writeln!(text, "  {lead}{line}");
    }
    if let Some(source) = source {
        let _ = writeln!(text, "  source: {source}");
    }
    text.push_str(&own(&yard.config.settings_of(&row.name)));
    for blamed in chain {
        let _ = writeln!(text, "  {} is {}: {}", blamed.name, blamed.state, blamed.reason);
    }
    for (try_number, build) in builds.iter().skip(1).rev().enumerate() {
        let how = build.failure.as_ref().map_or_else(String::new, |failure| {
            format!(": {} ({}): {}", failure.stage, failure.kind.as_str(), failure.message)
        });
        let how = how.lines().next().unwrap_or_default();
        let _ = writeln!(text, "  try {}, build {}: {}{how}", try_number + 1, build.number, build.outcome);
    }
    if let Some(build) = builds.first() {
        let when = words::time(build.started_seconds);
        let _ =
            writeln!(text, "  last build: {} in run {}, {when}, {}", build.number, build.run, build.outcome);
        if let Some(kept) = build.kept() {
            let _ = writeln!(text, "  it {kept}");
        }
        if !changes.is_empty() {
            text.push_str("  commits since the build before:\n");
            text.push_str(&commits::lines(changes, COMMITS_SHOWN, "    "));
        }
        if let Some(failure) = &build.failure {
            let _ = writeln!(text, "  {} ({}): {}", failure.stage, failure.kind.as_str(), failure.message);
            for line in &failure.lines {
                let _ = writeln!(text, "    {line}");
            }
            let left =
                build.stages.iter().flat_map(|stage| stage.left_behind.iter().map(move |left| (stage, left)));
            for (stage, left) in left {
                let _ = writeln!(text, "  {} left behind: {left}", stage.stage);
            }
            let _ = write!(text, "  more: {}", words::command(&format!("log {}", row.name)));
            // Only a worker knows what it keeps.
            let is_elsewhere = build.worker.as_ref().is_some_and(|worker| *worker != host_name());
            let has_root = is_elsewhere || RootFolder::failed_path(&yard.folder, &row.name).is_dir();
            let enter = words::command(&format!("shell {}", row.name));
            let _ = writeln!(text, "{}", if has_root { format!("; {enter}") } else { String::new() });
        }
    }
    text
}
