//! `kilnyard why`: the reason for the state of a package, down to the package to blame.

use super::{print_coloured, print_data, unknown};
use crate::error::Result;
use crate::run::host_name;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_schema::package::Why;
use kilnyard_store::BuildRow;
use kilnyard_worker::RootFolder;
use kilnyard_yard::commits;
use kilnyard_yard::facts::why::why;
use std::fmt::Write;
use std::process::ExitCode;

/// The maximum number of builds read.
const ATTEMPTS_MAX: usize = 20;
/// The maximum number of commits listed.
const COMMITS_SHOWN: usize = 5;

pub fn run(yard: &Yard, options: &crate::cli::Package) -> Result<ExitCode> {
    let store = yard.store()?;
    let name = &options.package;
    let run = store.last_run().map_err(store_error)?;
    let is_in_run = match &run {
        Some(run) => store.package(run.number, name).map_err(store_error)?.is_some(),
        None => false,
    };
    let mut planned = store.planned(name).map_err(store_error)?;
    if !is_in_run {
        // There may be no plan yet, or it may be for another configuration.
        super::ensure_scanned(yard)?;
        let plan = crate::plan::current_plan(yard, &mut *yard.store()?)?;
        planned = plan.packages.into_iter().find(|row| row.package.name == *name);
    }
    let Some(why) = why(yard, &*store, name, planned)? else {
        return Err(unknown(yard, &*store, name)?);
    };
    if options.json {
        return print_data(&why);
    }
    let mut builds = store.builds_of(name, ATTEMPTS_MAX).map_err(store_error)?;
    // The tries of one run belong together.
    let last_run = builds.first().map(|build| build.run);
    builds.retain(|build| Some(build.run) == last_run);
    print_coloured(&text(yard, &why, &builds))
}

/// The package's own settings that its builds do not show.
fn own(why: &Why) -> String {
    let mut text = String::new();
    if why.network {
        text.push_str("  its build has network access\n");
    }
    if why.expected.is_some() {
        let because = why.because.as_ref().map_or(String::new(), |because| format!(": {because}"));
        let _ = writeln!(text, "  expected to fail{because}");
    }
    if let Some(stalls) = &why.stalls {
        let _ = writeln!(text, "  {}", stalls.words());
    }
    if why.priority != 0 {
        let _ = writeln!(text, "  priority: {}", why.priority);
    }
    if let Some(note) = &why.note {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}

/// `builds` are the tries of one run, the latest first.
fn text(yard: &Yard, why: &Why, builds: &[BuildRow]) -> String {
    let version = if why.version.is_empty() { String::new() } else { format!(" {}", why.version) };
    let mut text = format!("{}{version} is {}\n", why.package, why.state);
    for (index, line) in why.reason.lines().enumerate() {
        let lead = if index == 0 { "because: " } else { "" };
        let _ = writeln!(text, "  {lead}{line}");
    }
    if let Some(source) = &why.source {
        let _ = writeln!(text, "  source: {source}");
    }
    text.push_str(&own(why));
    for blamed in &why.chain {
        let _ = writeln!(text, "  {} is {}: {}", blamed.package, blamed.state, blamed.reason);
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
        if !why.changes.is_empty() {
            text.push_str("  commits since the build before:\n");
            text.push_str(&commits::lines(&why.changes, COMMITS_SHOWN, "    "));
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
            let _ = write!(text, "  more: {}", words::command(&format!("log {}", why.package)));
            // Only a worker knows what it keeps.
            let is_elsewhere = build.worker.as_ref().is_some_and(|worker| *worker != host_name());
            let has_root = is_elsewhere || RootFolder::failed_path(&yard.folder, &why.package).is_dir();
            let enter = words::command(&format!("shell {}", why.package));
            let _ = writeln!(text, "{}", if has_root { format!("; {enter}") } else { String::new() });
        }
    }
    text
}
