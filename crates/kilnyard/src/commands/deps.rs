//! `kilnyard deps`, `rdeps` and `impact`: queries of the set's graph, answered from the plan in the store.

mod impact;

pub use impact::run as impact;

use super::{print, print_json, unplanned};
use crate::cli;
use crate::error::{Error, Result};
use crate::plan::keep_current;
use crate::yard::Yard;
use kilnyard_yard::facts::edges::{Direction, Edges};
use kilnyard_yard::remedy::Remedy;
use serde_json::json;
use std::collections::HashSet;
use std::fmt::Write;
use std::process::ExitCode;

/// Maximum number of lines of a tree: more are of no use to a reader, and `--json` has all.
const LINES_MAX: usize = 5000;

/// Prints the dependencies of a package within the set.
pub fn deps(yard: &Yard, options: &cli::Deps) -> Result<ExitCode> {
    answer(yard, options, Direction::Dependencies)
}

/// Prints the dependents of a package within the set.
pub fn rdeps(yard: &Yard, options: &cli::Deps) -> Result<ExitCode> {
    answer(yard, options, Direction::Dependents)
}

fn answer(yard: &Yard, options: &cli::Deps, direction: Direction) -> Result<ExitCode> {
    let edges = edges(yard)?;
    let package = find(yard, &edges, &options.package)?;
    let direct = edges.of(package, direction);
    let reached = edges.reach(&[package], direction);
    if options.json {
        let names = |some: &[u32]| some.iter().map(|other| edges.name(*other)).collect::<Vec<_>>();
        let all: Vec<u32> = reached.iter().map(|step| step.package).collect();
        return print_json(
            &json!({ "package": options.package, "direct": names(direct), "all": names(&all) }),
        );
    }
    let mut text = String::new();
    if options.tree {
        tree(&edges, package, direction, &mut text);
    } else {
        let mut names: Vec<&str> = match options.all {
            true => reached.iter().map(|step| edges.name(step.package)).collect(),
            false => direct.iter().map(|other| edges.name(*other)).collect(),
        };
        names.sort_unstable();
        for name in names {
            let _ = writeln!(text, "{name}");
        }
    }
    print(&text)
}

/// The edges of the current plan, which is made if there is none.
fn edges(yard: &Yard) -> Result<Edges> {
    super::ensure_scanned(yard)?;
    let mut store = yard.store()?;
    keep_current(yard, &mut *store)?;
    Edges::read(&*store)
}

/// The number of a package of this yard.
///
/// # Errors
/// The graph has no package of this name. The error says why.
fn find(yard: &Yard, edges: &Edges, name: &str) -> Result<u32> {
    match edges.find(name) {
        Some(number) => Ok(number),
        None if edges.is_left_out(name) => {
            Err(Error::usage(format!("{name} is left out, so it has no dependencies in the set"))
                .hint(Remedy::command(format!("why {name}"))))
        }
        None => Err(unplanned(yard, name, edges.names())?),
    }
}

/// An indented tree. A package that was expanded before is marked with `(*)`.
fn tree(edges: &Edges, package: u32, direction: Direction, text: &mut String) {
    let mut expanded = HashSet::new();
    let mut open = vec![(package, 0)];
    for _ in 0..LINES_MAX {
        let Some((package, depth)) = open.pop() else { return };
        let next = edges.of(package, direction);
        let is_again = !expanded.insert(package) && !next.is_empty();
        let mark = if is_again { " (*)" } else { "" };
        let _ = writeln!(text, "{:1$}{2}{mark}", "", depth * 2, edges.name(package));
        if !is_again {
            open.extend(next.iter().rev().map(|other| (*other, depth + 1)));
        }
    }
    if !open.is_empty() {
        let _ = writeln!(text, "… and more; --json has all");
    }
}
