//! `kilnyard deps`, `rdeps` and `impact`: queries of the set's graph, answered from the plan in the store.

mod graph;
mod impact;

pub use impact::run as impact;

use super::{print, print_json};
use crate::cli;
use crate::error::Result;
use crate::yard::Yard;
use graph::{Direction, Edges};
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
    let edges = Edges::read(yard)?;
    let package = edges.find(yard, &options.package)?;
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
