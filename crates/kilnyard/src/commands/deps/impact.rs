//! `kilnyard impact`: the packages that a change would rebuild.
//!
//! The result is an upper bound: a dependency that is rebuilt to the same content stops the rebuild there. The time is
//! estimated as in `kilnyard plan`.

use super::graph::{Direction, Edges};
use crate::cli;
use crate::commands::{print, print_json};
use crate::error::{Error, Result};
use crate::words;
use crate::yard::Yard;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// Prints the packages that a change of the named packages would rebuild.
pub fn run(yard: &Yard, options: &cli::Impact) -> Result<ExitCode> {
    let mut names = options.packages.clone();
    if options.own {
        names.extend(yard.config.family.own_packages(yard)?);
    }
    if let Some(commit) = &options.commit {
        names.extend(yard.config.family.changed_packages(yard, commit)?);
    }
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return match (options.own, &options.commit) {
            (false, None) => Err(Error::usage("no packages given").hint("names, --commit REV or --own")),
            _ => print("no package of the set changed\n"),
        };
    }
    let mut edges = Edges::read(yard)?;
    let changed = names.iter().map(|name| edges.find(yard, name)).collect::<Result<Vec<u32>>>()?;
    let steps = edges.reach(&changed, Direction::Dependents);
    let all: Vec<u32> = changed.iter().copied().chain(steps.iter().map(|step| step.package)).collect();
    edges.estimate_from_history(yard, &all)?;
    let work_seconds: f64 = all.iter().map(|package| edges.estimate_seconds(*package)).sum();
    let path_seconds = edges.longest_path_seconds(&all);
    if options.json {
        return print_json(&json!({
            "changed": names,
            "rebuilt": steps.iter().map(|step| json!({
                "package": edges.name(step.package),
                "via": edges.name(step.via),
                "depth": step.depth,
                "estimate_seconds": edges.estimate_seconds(step.package),
            })).collect::<Vec<_>>(),
            "work_seconds": work_seconds,
            "path_seconds": path_seconds,
            "packages_of_the_set": edges.len(),
        }));
    }
    let mut text = String::new();
    let width = all.iter().map(|package| edges.name(*package).len()).max().unwrap_or(0);
    for package in &changed {
        let _ = writeln!(text, "{:width$}  changed", edges.name(*package));
    }
    for step in &steps {
        let _ = writeln!(text, "{:width$}  depends on {}", edges.name(step.package), edges.name(step.via));
    }
    let _ = writeln!(
        text,
        "at most {} of {} to build: {} of work, {} on the longest path",
        words::count(all.len() as u64, "package"),
        edges.len(),
        words::duration(work_seconds),
        words::duration(path_seconds),
    );
    print(&text)
}
