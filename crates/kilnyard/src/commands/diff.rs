//! `kilnyard diff`: the difference of two runs.

use super::{print_coloured, print_data};
use crate::cli;
use crate::error::Result;
use crate::words;
use crate::yard::Yard;
use kilnyard_schema::compare::{Difference, Larger, NewVersion, OtherState, Slower};
use kilnyard_yard::commits;
use kilnyard_yard::facts::compare::difference;
use std::fmt::Write;
use std::process::ExitCode;

/// The maximum number of packages listed that only one run has: after a partial run, these are nearly all.
const ONLY_NAMED_MAX: usize = 5;
/// The maximum number of commits listed.
const COMMITS_SHOWN: usize = 20;

pub fn run(yard: &Yard, options: &cli::Diff) -> Result<ExitCode> {
    let difference = difference(yard, &*yard.store()?, options.earlier, options.later)?;
    if options.json {
        return print_data(&difference);
    }
    let changes = &difference.changes;
    let changed = match changes.is_empty() {
        true => String::new(),
        false => format!(
            "{}:\n{}",
            words::count(changes.len() as u64, "commit"),
            commits::lines(changes, COMMITS_SHOWN, "  ")
        ),
    };
    print_coloured(&(text(&difference) + &changed))
}

fn text(difference: &Difference) -> String {
    let (earlier, later) = (difference.earlier, difference.later);
    let mut text = String::new();
    for (name, reason) in &difference.newly_failing {
        let _ = writeln!(text, "newly failing: {name}: {}", reason.lines().next().unwrap_or(""));
    }
    for OtherState { package, earlier_state, later_state, reason } in &difference.otherwise_failing {
        let reason = reason.lines().next().unwrap_or("");
        let _ = writeln!(text, "{later_state}, was {earlier_state}: {package}: {reason}");
    }
    for name in &difference.newly_fixed {
        let _ = writeln!(text, "newly fixed: {name}");
    }
    for NewVersion { package, earlier_version, later_version } in &difference.new_versions {
        let version = |version: &str| if version.is_empty() { "none".to_owned() } else { version.to_owned() };
        let _ = writeln!(
            text,
            "new version: {package}: {}, was {}",
            version(later_version),
            version(earlier_version)
        );
    }
    for (run, names) in [(earlier, &difference.only_earlier), (later, &difference.only_later)] {
        if !names.is_empty() {
            let (shown, more) = names.split_at(names.len().min(ONLY_NAMED_MAX));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            let count = words::count(names.len() as u64, "package");
            let _ = writeln!(text, "only in run {run}: {count}: {}{more}", shown.join(", "));
        }
    }
    for Slower { package, earlier_cpu_seconds, later_cpu_seconds } in &difference.slower {
        let (was, is) = (words::duration(*earlier_cpu_seconds), words::duration(*later_cpu_seconds));
        let _ = writeln!(text, "slower: {package}: {is} of CPU time, was {was}");
    }
    for Larger { package, earlier_memory_peak_bytes, later_memory_peak_bytes } in &difference.larger {
        let (was, is) = (words::size(*earlier_memory_peak_bytes), words::size(*later_memory_peak_bytes));
        let _ = writeln!(text, "larger: {package}: {is} of memory, was {was}");
    }
    if text.is_empty() {
        text = format!("runs {earlier} and {later} had the same results\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_difference_is_left_out() {
        let of = |difference: Difference| text(&Difference { earlier: 1, later: 2, ..difference });
        let (package, reason) = ("a".to_owned(), "r".to_owned());
        let otherwise_failing = vec![OtherState {
            package: package.clone(),
            earlier_state: "blocked".to_owned(),
            later_state: "failed".to_owned(),
            reason,
        }];
        let failing = Difference { otherwise_failing, ..Difference::default() };
        assert_eq!(of(failing), "failed, was blocked: a: r\n");
        let (earlier_version, later_version) = ("1".to_owned(), "2".to_owned());
        let new_versions = vec![NewVersion { package: package.clone(), earlier_version, later_version }];
        let newer = Difference { new_versions, ..Difference::default() };
        assert_eq!(of(newer), "new version: a: 2, was 1\n");
        let only = Difference {
            only_earlier: vec![package],
            only_later: vec!["b".to_owned()],
            ..Difference::default()
        };
        assert_eq!(of(only), "only in run 1: 1 package: a\nonly in run 2: 1 package: b\n");
        assert_eq!(of(Difference::default()), "runs 1 and 2 had the same results\n");
    }
}
