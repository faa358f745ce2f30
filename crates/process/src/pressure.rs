//! Memory of this machine: how much is available for builds, and whether they stall for it.
//!
//! If Kilnyard runs in a control group with a limit, such as a container, that limit counts. Each call asks the kernel
//! again, which takes a few reads of small files.
//!
//! Known downsides: limits above a container that are not visible inside it are ignored. Swap does not count as
//! memory here.

use crate::groups::folder::count;
use crate::groups::{GroupPath, Hierarchy};
use std::path::Path;

/// The memory pressure of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// No reason to hold builds back.
    Low,
    /// No further build should start.
    High,
}

/// The percentage of stalled time from which [`Pressure::High`] applies. Time is stalled if a process waits for pages
/// that were in memory a moment ago, or for others to free memory (Documentation/accounting/psi.rst): a machine with
/// enough memory shows 0.0 even while it constantly reads new files. Android's lmkd begins to look for victims at 7
/// percent on machines with much memory (`ro.lmk.psi_partial_stall_ms`, 70 of 1,000), and systemd-oomd kills at 60
/// (oomd.conf(5)). Holding builds back has to start long before killing, but above the noise.
pub const HIGH_PERCENT: f64 = 10.0;

impl Pressure {
    /// Rates a result of [`memory_stalled_percent`]. Without a figure, the pressure is taken to be low.
    pub fn of(stalled_percent: Option<f64>) -> Pressure {
        if stalled_percent.is_some_and(|percent| percent >= HIGH_PERCENT) {
            Pressure::High
        } else {
            Pressure::Low
        }
    }
}

/// The percentage of the last ten seconds in which some process waited for memory; `None` if the kernel does not count
/// it (CONFIG_PSI, `psi=1`). The figure is that of the machine, which includes all groups; if that may not be read,
/// that of Kilnyard's own group.
pub fn memory_stalled_percent() -> Option<f64> {
    let read = |file: &Path| parse_some_avg10(&std::fs::read_to_string(file).ok()?);
    read("/proc/pressure/memory".as_ref()).or_else(|| {
        let own = GroupPath::own(Hierarchy::Version2)?;
        read(&own.folder.join("memory.pressure"))
    })
}

/// The memory that builds could take now without swapping; `None` if `/proc` cannot be read.
pub fn available_bytes() -> Option<u64> {
    let machine = meminfo("MemAvailable")?;
    Some(limits().into_iter().map(|limit| limit.free()).fold(machine, u64::min))
}

/// The memory available to all processes in Kilnyard's group, whether in use or not; `None` if `/proc` cannot be read.
pub fn total_bytes() -> Option<u64> {
    let machine = meminfo("MemTotal")?;
    Some(limits().into_iter().map(|limit| limit.bytes).fold(machine, u64::min))
}

/// The number of out-of-memory kills since this machine started, in any group (`oom_kill`, since Linux 4.13); `None` if
/// the kernel does not report it. If it grew, this may explain an end by signal 9.
pub fn killed_for_memory() -> Option<u64> {
    count("/proc/vmstat".as_ref(), "oom_kill")
}

fn meminfo(name: &str) -> Option<u64> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?, name)
}

/// The memory limit of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    bytes: u64,
    used_bytes: u64,
    /// File cache that it can release immediately.
    spare_bytes: u64,
}

impl Limit {
    fn free(&self) -> u64 {
        self.bytes.saturating_sub(self.used_bytes.saturating_sub(self.spare_bytes))
    }
}

/// The names of a group's files.
struct Words {
    limits: &'static [&'static str],
    used: &'static str,
    /// A line of `memory.stat`: inactive file pages of the group and its descendants.
    spare: &'static str,
}

/// `memory.high` counts as well, since it throttles all processes above it (Documentation/admin-guide/cgroup-v2.rst).
const VERSION_2: Words =
    Words { limits: &["memory.max", "memory.high"], used: "memory.current", spare: "inactive_file" };
/// Documentation/admin-guide/cgroup-v1/memory.rst.
const VERSION_1: Words =
    Words { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", spare: "total_inactive_file" };

/// The limits of Kilnyard's own group and of its visible ancestors.
fn limits() -> Vec<Limit> {
    let mut found = Vec::new();
    for (hierarchy, words) in [(Hierarchy::Version1("memory"), VERSION_1), (Hierarchy::Version2, VERSION_2)] {
        if let Some(own) = GroupPath::own(hierarchy) {
            found.extend(own.upward().filter_map(|folder| limit_of(folder, &words)));
        }
    }
    found
}

fn limit_of(folder: &Path, words: &Words) -> Option<Limit> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let bytes = words.limits.iter().filter_map(|name| parse_limit(&read(name)?)).min()?;
    let used_bytes = read(words.used).and_then(|text| parse_limit(&text)).unwrap_or(0);
    let spare_bytes = count(&folder.join("memory.stat"), words.spare).unwrap_or(0);
    Some(Limit { bytes, used_bytes, spare_bytes })
}

/// Parses `some avg10=0.29 avg60=1.09 avg300=0.69 total=8342156`.
fn parse_some_avg10(text: &str) -> Option<f64> {
    let mut fields = text.lines().find_map(|line| line.strip_prefix("some "))?.split_whitespace();
    let value: f64 = fields.find_map(|field| field.strip_prefix("avg10="))?.parse().ok()?;
    (0.0..=100.0).contains(&value).then_some(value)
}

/// Parses lines such as `MemTotal:       24684084 kB`, into bytes.
fn parse_meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = line.split_whitespace();
    let kibibytes: u64 = words.next()?.parse().ok()?;
    (words.next() == Some("kB")).then(|| kibibytes.checked_mul(1024))?
}

/// Parses a number of bytes, or `max` for no limit.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pressure_is_read_and_malformed_text_is_rejected() {
        let text = "some avg10=12.50 avg60=1.09 avg300=0.69 total=8342156\nfull avg10=3.00 avg60=0.00 avg300=0.16 total=4296923\n";
        assert_eq!(parse_some_avg10(text), Some(12.5));
        assert_eq!(parse_some_avg10("full avg10=3.00\nsome avg60=1.00 avg10=0.00 new=1\n"), Some(0.0));
        for odd in [
            "",
            "some",
            "some ",
            "some avg10=",
            "some avg10=x",
            "some avg10=NaN",
            "some avg10=-1",
            "some avg10=101",
        ] {
            assert_eq!(parse_some_avg10(odd), None, "{odd}");
        }
    }

    #[test]
    fn pressure_is_high_from_the_threshold_on() {
        assert_eq!(Pressure::of(None), Pressure::Low);
        assert_eq!(Pressure::of(Some(9.99)), Pressure::Low);
        assert_eq!(Pressure::of(Some(HIGH_PERCENT)), Pressure::High);
        assert_eq!(Pressure::of(Some(f64::NAN)), Pressure::Low);
    }

    #[test]
    fn amounts_and_counts_are_read_and_malformed_text_is_rejected() {
        let text = "MemTotal:       24684084 kB\nMemAvailable:   22251040 kB\nHugePages_Total:       0\n";
        assert_eq!(parse_meminfo(text, "MemTotal"), Some(24_684_084 * 1024));
        assert_eq!(parse_meminfo(text, "MemAvailable"), Some(22_251_040 * 1024));
        for odd in ["Mem", "MemFree", "HugePages_Total"] {
            assert_eq!(parse_meminfo(text, odd), None, "{odd}");
        }
        assert_eq!(parse_meminfo("MemTotal: 18446744073709551615 kB", "MemTotal"), None);
        assert_eq!(parse_meminfo("MemTotal: -1 kB", "MemTotal"), None);
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn the_tightest_limit_of_a_group_counts_and_file_cache_can_be_released() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(limit_of(folder.path(), &VERSION_2), None);
        write("memory.max", "1000\n");
        write("memory.high", "max\n");
        write("memory.current", "700\n");
        write("memory.stat", "inactive_anon 9\ninactive_file 200\n");
        let limit = limit_of(folder.path(), &VERSION_2).unwrap();
        assert_eq!((limit.bytes, limit.free()), (1000, 500));
        write("memory.high", "400\n");
        let limit = limit_of(folder.path(), &VERSION_2).unwrap();
        assert_eq!((limit.bytes, limit.free()), (400, 0));
        write("memory.max", "max\n");
        write("memory.high", "max\n");
        assert_eq!(limit_of(folder.path(), &VERSION_2), None);
        write("memory.limit_in_bytes", "2000\n");
        assert_eq!(limit_of(folder.path(), &VERSION_1).unwrap().free(), 2000);
    }

    #[test]
    fn this_machine_reports_its_memory() {
        let (total, available) = (total_bytes().unwrap(), available_bytes().unwrap());
        assert!(0 < available && available <= total, "{available} of {total}");
        assert!(killed_for_memory().is_some());
        assert!(memory_stalled_percent().is_none_or(|percent| (0.0..=100.0).contains(&percent)));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "((some|full|MemTotal:|oom_kill)[ a-z0-9=.:-]{0,30}\n?){0,4}|\\PC{0,60}") {
            if let Some(percent) = parse_some_avg10(&text) {
                prop_assert!((0.0..=100.0).contains(&percent));
            }
            if let Some(bytes) = parse_meminfo(&text, "MemTotal") {
                prop_assert_eq!(bytes % 1024, 0);
            }
            let _ = parse_limit(&text);
        }

        #[test]
        fn free_memory_is_within_the_limit(bytes: u64, used_bytes: u64, spare_bytes: u64) {
            let limit = Limit { bytes, used_bytes, spare_bytes };
            prop_assert!(limit.free() <= bytes);
        }

        #[test]
        fn kernel_output_is_read_as_meant(hundredths in 0..=10_000_u32, kibibytes in 0..1_u64 << 50, count: u64) {
            let percent = f64::from(hundredths) / 100.0;
            let text = format!("some avg10={percent:.2} avg60=0.00 avg300=0.00 total={count}\n");
            prop_assert_eq!(parse_some_avg10(&text), Some(percent));
            prop_assert_eq!(parse_meminfo(&format!("A: 1 kB\nB: {kibibytes} kB\n"), "B"), Some(kibibytes * 1024));
        }
    }
}
