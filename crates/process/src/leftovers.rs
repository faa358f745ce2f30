//! Describes the processes that a command left behind, and what started them.

use crate::births::Followed;
use crate::tree;
use kilnyard_root::sandbox::Leftover;
use std::collections::HashMap;

/// How many ancestors of a process are named.
const ANCESTORS_MAX: usize = 12;

/// One line per process. `known` has the command lines of processes that have ended, by their numbers in the sandbox.
pub(crate) fn describe(
    outer: u32,
    processes: &[Leftover],
    known: &[(i32, String)],
    births: &Followed,
) -> Vec<String> {
    let outside: HashMap<u32, u32> = tree::below(outer)
        .iter()
        .filter_map(|member| {
            let number = u32::try_from(member.stat.number).ok()?;
            Some((number_inside(number)?, number))
        })
        .collect();
    let known: HashMap<i32, &str> = known.iter().map(|(number, line)| (*number, &**line)).collect();
    let living: HashMap<i32, &str> = processes.iter().map(|left| (left.number, &*left.line)).collect();
    let name = |number: u32| match (living.get(&(number as i32)), known.get(&(number as i32))) {
        (Some(line), _) => format!("{line} ({number})"),
        (None, Some(line)) => format!("{line} ({number}, ended)"),
        (None, None) => format!("an ended process ({number})"),
    };
    let words = |left: &Leftover| {
        let number = u32::try_from(left.number).unwrap_or(0);
        let heard = outside.get(&number).and_then(|outside| births.ancestors(number, *outside));
        // The recorded births are complete; observation may have gaps.
        let started_by = match heard {
            Some(ancestors) => ancestors.into_iter().take(ANCESTORS_MAX).map(name).collect(),
            None => left.started_by.clone(),
        };
        let mut words = format!("{} ({number})", left.line);
        if let Some(directory) = &left.directory {
            words.push_str(&format!(" in {directory}"));
        }
        if !started_by.is_empty() {
            words.push_str(&format!(", started by {}", started_by.join(", by ")));
        }
        words
    };
    processes.iter().map(words).collect()
}

/// The id of a process in the innermost pid namespace that it is in (proc_pid_status(5)).
fn number_inside(number: u32) -> Option<u32> {
    parse_inside(&std::fs::read_to_string(format!("/proc/{number}/status")).ok()?)
}

fn parse_inside(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_number_is_the_last() {
        assert_eq!(parse_inside("Name:\tx\nNSpid:\t4711\t12\t3\nNSpgid:\t1\t2\n"), Some(3));
        assert_eq!(parse_inside("NSpid:\t4711\n"), Some(4711));
        for status in ["", "NSpid:", "NSpid:\tx", "Name:\tNSpid: 3"] {
            assert_eq!(parse_inside(status), None, "{status}");
        }
    }
}
