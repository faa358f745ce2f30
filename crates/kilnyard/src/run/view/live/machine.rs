//! The load of the machine: cores and memory, from `/proc`.

use std::time::{Duration, Instant};

/// The shortest interval for CPU load: the kernel counts in hundredths of a second.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// The load of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Busy cores, and all cores.
    pub cores: Option<(f64, u32)>,
    /// Memory in use, and all memory, in bytes.
    pub memory_bytes: Option<(u64, u64)>,
}

/// The CPU time of all cores, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spent {
    busy: u64,
    all: u64,
    cores: u32,
}

/// Samples the load.
#[derive(Debug, Default)]
pub struct Gauge {
    machine: Machine,
    spent: Option<Spent>,
    sampled_at: Option<Instant>,
}

impl Gauge {
    /// The load since the last sample.
    pub fn machine(&mut self, now: Instant) -> Machine {
        let is_fresh = self.sampled_at.is_some_and(|at| now.saturating_duration_since(at) < SPAN_MIN);
        if !is_fresh {
            self.sampled_at = Some(now);
            let read = |path| std::fs::read_to_string(path).unwrap_or_default();
            let spent = spent(&read("/proc/stat"));
            let cores = self.spent.zip(spent).and_then(|(before, after)| busy(before, after));
            self.machine = Machine { cores, memory_bytes: memory(&read("/proc/meminfo")) };
            self.spent = spent;
        }
        self.machine
    }
}

fn spent(stat: &str) -> Option<Spent> {
    let mut fields = stat.lines().next()?.split_whitespace();
    if fields.next() != Some("cpu") {
        return None;
    }
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user (proc_stat(5)).
    let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
    let all = ticks.iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
    let idle = ticks.get(3)?.saturating_add(*ticks.get(4).unwrap_or(&0));
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let cores = stat.lines().filter(is_core).count() as u32;
    Some(Spent { busy: all.saturating_sub(idle), all, cores })
}

fn busy(before: Spent, after: Spent) -> Option<(f64, u32)> {
    let all = after.all.checked_sub(before.all).filter(|all| *all > 0)?;
    // iowait can decrease, and with it this sum.
    let busy = after.busy.saturating_sub(before.busy).min(all);
    Some((busy as f64 / all as f64 * f64::from(after.cores), after.cores))
}

fn memory(meminfo: &str) -> Option<(u64, u64)> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let total = bytes("MemTotal:")?;
    Some((total.saturating_sub(bytes("MemAvailable:")?), total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let before = spent("cpu  100 0 100 700 100 0 0 0 9 9\ncpu0 1 2\ncpu1 1 2\nintr 5\n").unwrap();
        assert_eq!(before, Spent { busy: 200, all: 1000, cores: 2 });
        let after = Spent { busy: 350, all: 1200, cores: 2 };
        assert_eq!(busy(before, after), Some((1.5, 2)));
        assert_eq!(busy(after, before), None);
        assert_eq!(busy(after, after), None);
        let memory_bytes = memory("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n");
        assert_eq!(memory_bytes, Some((600 * 1024, 1000 * 1024)));
        for odd in ["", "cpu", "cpu x", "cpu 1 2", "MemTotal:", "MemTotal: 18446744073709551615 kB"] {
            assert_eq!((spent(odd), memory(odd)), (None, None), "{odd}");
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = Gauge::default().machine(Instant::now());
        assert_eq!(machine.cores, None, "one sample is not an interval");
        let (used, total) = machine.memory_bytes.unwrap();
        assert!(used <= total && total > 0);
    }
}
