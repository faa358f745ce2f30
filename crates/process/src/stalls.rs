//! How long processes were stalled waiting for a core, for memory or for a disk (Documentation/accounting/psi.rst).
//!
//! The kernel counts stalls for every cgroup v2, with or without controllers. If a command has a group of its own,
//! its figures are read; otherwise those of the whole machine are, and the result says so.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Stall times in seconds; absent where the kernel does not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Waiting for a core.
    pub cpu_seconds: Option<f64>,
    /// Waiting for memory.
    pub memory_seconds: Option<f64>,
    /// Waiting for a disk.
    pub io_seconds: Option<f64>,
    /// Whether the figures cover all processes of the machine rather than the command alone.
    pub is_of_machine: bool,
}

/// The counters at the start of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Stalling {
    files: [PathBuf; 3],
    before: [Option<f64>; 3],
    is_of_machine: bool,
}

impl Stalling {
    /// Starts counting the stalls of a control group. Without a group, or if the group does not count them, counts
    /// those of the machine.
    pub(crate) fn of(group: Option<&Path>) -> Stalling {
        let group = group.filter(|group| group.join("cpu.pressure").exists());
        let files = ["cpu", "memory", "io"].map(|what| match group {
            Some(folder) => folder.join(format!("{what}.pressure")),
            None => PathBuf::from(format!("/proc/pressure/{what}")),
        });
        let before = [0, 1, 2].map(|which: usize| seconds(&files[which]));
        Stalling { files, before, is_of_machine: group.is_none() }
    }

    /// The stalls since the start.
    pub(crate) fn since(&self) -> Stalls {
        let [cpu_seconds, memory_seconds, io_seconds] = [0, 1, 2].map(|which: usize| {
            let (before, now) = (self.before[which]?, seconds(&self.files[which])?);
            Some((now - before).max(0.0))
        });
        Stalls { cpu_seconds, memory_seconds, io_seconds, is_of_machine: self.is_of_machine }
    }
}

fn seconds(file: &Path) -> Option<f64> {
    parse_some_total(&std::fs::read_to_string(file).ok()?)
}

/// Parses `some avg10=0.29 avg60=1.09 avg300=0.69 total=8342156`, where the total is in microseconds.
fn parse_some_total(text: &str) -> Option<f64> {
    let mut fields = text.lines().find_map(|line| line.strip_prefix("some "))?.split_ascii_whitespace();
    let microseconds: u64 = fields.find_map(|field| field.strip_prefix("total="))?.parse().ok()?;
    Some(microseconds as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some_is_read() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_some_total(text), Some(2.5));
        for text in ["", "some", "some total=", "some total=x", "full avg10=0 total=7", "some avg10=1"] {
            assert_eq!(parse_some_total(text), None, "{text}");
        }
    }
}
