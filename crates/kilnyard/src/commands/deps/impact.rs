//! `kilnyard impact`: the packages that a change would rebuild.

use super::{edges, find};
use crate::cli;
use crate::commands::{print, print_data};
use crate::error::{Error, Result};
use crate::words;
use crate::yard::Yard;
use kilnyard_schema::compare::Rebuilt;
use kilnyard_yard::facts::impact::impact;
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
    let mut edges = edges(yard)?;
    let changed = names.iter().map(|name| find(yard, &edges, name)).collect::<Result<Vec<u32>>>()?;
    let impact = impact(yard, &mut edges, &changed)?;
    if options.json {
        return print_data(&impact);
    }
    let mut text = String::new();
    let all = impact.changed.iter().chain(impact.rebuilt.iter().map(|rebuilt| &rebuilt.package));
    let width = all.clone().map(String::len).max().unwrap_or(0);
    for package in &impact.changed {
        let _ = writeln!(text, "{package:width$}  changed");
    }
    for Rebuilt { package, via, .. } in &impact.rebuilt {
        let _ = writeln!(text, "{package:width$}  depends on {via}");
    }
    let _ = writeln!(
        text,
        "at most {} of {} to build: {} of work, {} on the longest path",
        words::count(all.count() as u64, "package"),
        impact.packages_of_the_set,
        words::duration(impact.work_seconds),
        words::duration(impact.path_seconds),
    );
    print(&text)
}
