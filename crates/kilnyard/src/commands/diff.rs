//! `kilnyard diff`: the difference of two runs.

use super::{print, print_json};
use crate::cli;
use crate::error::{Error, Result};
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_store::{BuildRow, Store};
use kilnyard_yard::commits;
use kilnyard_yard::remedy::Remedy;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

/// The factor and difference from which a build counts as slower; less is noise.
const SLOWER_FACTOR: f64 = 1.25;
const SLOWER_SECONDS: f64 = 2.0;
/// The maximum number of packages listed that only one run has: after a partial run, these are nearly all.
const ONLY_NAMED_MAX: usize = 5;
/// The factor and difference from which a build counts as using more memory.
const LARGER_FACTOR: f64 = 1.25;
const LARGER_BYTES: u64 = 16 << 20;
/// The maximum number of commits listed.
const COMMITS_SHOWN: usize = 20;

/// The result of a package in a run.
#[derive(Clone, Debug, PartialEq)]
struct Figures {
    version: String,
    state: PackageState,
    reason: Reason,
    cpu_seconds: Option<f64>,
    memory_peak_bytes: u64,
}

pub fn run(yard: &Yard, options: &cli::Diff) -> Result<ExitCode> {
    let store = yard.store()?;
    let runs = store.runs().map_err(store_error)?;
    let number = |given: Option<u64>, back: usize| match given {
        Some(number) if runs.iter().any(|run| run.number == number) => Ok(number),
        Some(number) => {
            Err(Error::usage(format!("there is no run {number}")).hint(Remedy::command("history")))
        }
        None => runs.get(back).map(|run| run.number).ok_or_else(|| {
            Error::usage("there are no two runs to compare yet").hint(Remedy::command("history"))
        }),
    };
    let (earlier, later) = (number(options.earlier, 1)?, number(options.later, 0)?);
    let difference = compare(&figures(&*store, earlier)?, &figures(&*store, later)?);
    let commits = |number| runs.iter().find(|run| run.number == number).map_or(&[][..], |run| &run.commits);
    let changes = commits::between(yard, commits(earlier), commits(later), None);
    if options.json {
        return print_json(&json!({
            "earlier": earlier,
            "later": later,
            "earlier_commits": commits(earlier),
            "later_commits": commits(later),
            "changes": changes,
            "newly_failing": difference.newly_failing,
            "otherwise_failing": difference.otherwise_failing.iter().map(|(name, was, is, reason)| json!({
                "package": name, "earlier_state": was, "later_state": is, "reason": reason,
            })).collect::<Vec<_>>(),
            "newly_fixed": difference.newly_fixed,
            "new_versions": difference.new_versions.iter().map(|(name, was, is)| json!({
                "package": name, "earlier_version": was, "later_version": is,
            })).collect::<Vec<_>>(),
            "only_earlier": difference.only_earlier,
            "only_later": difference.only_later,
            "slower": difference.slower.iter().map(|(name, was, is)| json!({
                "package": name, "earlier_cpu_seconds": was, "later_cpu_seconds": is,
            })).collect::<Vec<_>>(),
            "larger": difference.larger.iter().map(|(name, was, is)| json!({
                "package": name, "earlier_memory_peak_bytes": was, "later_memory_peak_bytes": is,
            })).collect::<Vec<_>>(),
        }));
    }
    let changed = match changes.is_empty() {
        true => String::new(),
        false => format!(
            "{}:\n{}",
            words::count(changes.len() as u64, "commit"),
            commits::lines(&changes, COMMITS_SHOWN, "  ")
        ),
    };
    print(&(text(earlier, later, &difference) + &changed))
}

fn figures(store: &dyn Store, run: u64) -> Result<BTreeMap<String, Figures>> {
    let mut builds: BTreeMap<String, BuildRow> = BTreeMap::new();
    for build in store.builds_in(run).map_err(store_error)? {
        builds.insert(build.package.clone(), build);
    }
    let rows = store.packages(run).map_err(store_error)?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let build = builds.get(&row.name).filter(|_| row.state.has_outputs());
            let stages = || build.iter().flat_map(|build| &build.stages);
            let figures = Figures {
                version: row.version,
                state: row.state,
                reason: row.reason,
                cpu_seconds: build.map(|_| stages().map(|stage| stage.cpu_seconds).sum()),
                memory_peak_bytes: stages().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0),
            };
            (row.name, figures)
        })
        .collect())
}

#[derive(Debug, Default, PartialEq)]
struct Difference {
    newly_failing: Vec<(String, String)>,
    /// Packages that were not built in either run, for different causes: the state before, the state now, the reason.
    otherwise_failing: Vec<(String, PackageState, PackageState, String)>,
    newly_fixed: Vec<String>,
    /// Packages of another version: the earlier and the later one.
    new_versions: Vec<(String, String, String)>,
    /// Packages that only one of the runs contained.
    only_earlier: Vec<String>,
    only_later: Vec<String>,
    slower: Vec<(String, f64, f64)>,
    larger: Vec<(String, u64, u64)>,
}

fn compare(earlier: &BTreeMap<String, Figures>, later: &BTreeMap<String, Figures>) -> Difference {
    let mut difference = Difference::default();
    let is_bad = |figures: &Figures| {
        matches!(figures.state, PackageState::Failed | PackageState::Blocked | PackageState::LeftOut)
    };
    for (name, now) in later {
        let before = earlier.get(name);
        if is_bad(now) && !before.is_some_and(is_bad) {
            difference.newly_failing.push((name.clone(), now.reason.to_string()));
        }
        let Some(before) = before else {
            difference.only_later.push(name.clone());
            continue;
        };
        if before.version != now.version {
            difference.new_versions.push((name.clone(), before.version.clone(), now.version.clone()));
        }
        if is_bad(before) && is_bad(now) && before.state != now.state {
            let row = (name.clone(), before.state, now.state, now.reason.to_string());
            difference.otherwise_failing.push(row);
        }
        if is_bad(before) && now.state.has_outputs() {
            difference.newly_fixed.push(name.clone());
        }
        if let (Some(was), Some(is)) = (before.cpu_seconds, now.cpu_seconds) {
            if is > was * SLOWER_FACTOR && is - was > SLOWER_SECONDS {
                difference.slower.push((name.clone(), was, is));
            }
            let (was, is) = (before.memory_peak_bytes, now.memory_peak_bytes);
            if is as f64 > was as f64 * LARGER_FACTOR && is - was > LARGER_BYTES {
                difference.larger.push((name.clone(), was, is));
            }
        }
    }
    let is_gone = |name: &&String| !later.contains_key(*name);
    difference.only_earlier = earlier.keys().filter(is_gone).cloned().collect();
    difference.slower.sort_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)));
    difference.larger.sort_by_key(|(_, was, is)| std::cmp::Reverse(is - was));
    difference
}

fn text(earlier: u64, later: u64, difference: &Difference) -> String {
    let mut text = String::new();
    for (name, reason) in &difference.newly_failing {
        let _ = writeln!(text, "newly failing: {name}: {}", reason.lines().next().unwrap_or(""));
    }
    for (name, was, is, reason) in &difference.otherwise_failing {
        let reason = reason.lines().next().unwrap_or("");
        let _ = writeln!(text, "{is}, was {was}: {name}: {reason}");
    }
    for name in &difference.newly_fixed {
        let _ = writeln!(text, "newly fixed: {name}");
    }
    for (name, was, is) in &difference.new_versions {
        let version = |version: &str| if version.is_empty() { "none".to_owned() } else { version.to_owned() };
        let _ = writeln!(text, "new version: {name}: {}, was {}", version(is), version(was));
    }
    for (run, names) in [(earlier, &difference.only_earlier), (later, &difference.only_later)] {
        if !names.is_empty() {
            let (shown, more) = names.split_at(names.len().min(ONLY_NAMED_MAX));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            let count = words::count(names.len() as u64, "package");
            let _ = writeln!(text, "only in run {run}: {count}: {}{more}", shown.join(", "));
        }
    }
    for (name, was, is) in &difference.slower {
        let _ = writeln!(
            text,
            "slower: {name}: {} of CPU time, was {}",
            words::duration(*is),
            words::duration(*was)
        );
    }
    for (name, was, is) in &difference.larger {
        let _ = writeln!(text, "larger: {name}: {} of memory, was {}", words::size(*is), words::size(*was));
    }
    if text.is_empty() {
        text = format!("runs {earlier} and {later} had the same results\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(state: PackageState, cpu_seconds: f64, memory_peak_bytes: u64) -> Figures {
        Figures {
            version: "1".into(),
            state,
            reason: Reason::impossible("r"),
            cpu_seconds: Some(cpu_seconds),
            memory_peak_bytes,
        }
    }

    #[test]
    fn only_changes_that_matter_are_shown() {
        use PackageState::{Blocked, Built, Failed, UpToDate};
        let earlier = BTreeMap::from([
            ("broke".into(), figures(Built, 5.0, 0)),
            ("fixed".into(), figures(Blocked, 0.0, 0)),
            ("grew".into(), figures(Built, 10.0, 100 << 20)),
            ("noise".into(), figures(Built, 1.0, 1 << 20)),
            ("still".into(), figures(Failed, 1.0, 0)),
        ]);
        let later = BTreeMap::from([
            ("broke".into(), figures(Failed, 5.0, 0)),
            ("fixed".into(), figures(UpToDate, 0.0, 0)),
            ("grew".into(), figures(Built, 20.0, 200 << 20)),
            ("noise".into(), figures(Built, 2.0, 2 << 20)),
            ("still".into(), figures(Failed, 1.0, 0)),
            ("new".into(), figures(Failed, 1.0, 0)),
        ]);
        let difference = compare(&earlier, &later);
        assert_eq!(
            difference.newly_failing.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(),
            ["broke", "new"]
        );
        assert_eq!(difference.newly_fixed, ["fixed"]);
        assert_eq!(difference.slower, [("grew".to_owned(), 10.0, 20.0)]);
        assert_eq!(difference.larger.len(), 1);
    }

    #[test]
    fn no_difference_is_left_out() {
        use PackageState::{Blocked, Built, Failed, UpToDate};
        let one = |name: &str, figures: Figures| BTreeMap::from([(name.to_owned(), figures)]);
        let blocked = one("a", figures(Blocked, 0.0, 0));
        let failed = one("a", figures(Failed, 0.0, 0));
        let difference = compare(&blocked, &failed);
        assert_eq!(text(1, 2, &difference), "failed, was blocked: a: r\n");
        let newer = one("a", Figures { version: "2".into(), ..figures(Built, 0.0, 0) });
        let difference = compare(&one("a", figures(Built, 0.0, 0)), &newer);
        assert_eq!(text(1, 2, &difference), "new version: a: 2, was 1\n");
        let difference = compare(&newer, &one("b", figures(Built, 0.0, 0)));
        assert_eq!(text(1, 2, &difference), "only in run 1: 1 package: a\nonly in run 2: 1 package: b\n");
        let difference = compare(&one("a", figures(Built, 0.0, 0)), &one("a", figures(UpToDate, 0.0, 0)));
        assert_eq!(text(1, 2, &difference), "runs 1 and 2 had the same results\n");
    }
}
