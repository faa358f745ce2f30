//! Other load on the machine during a measurement.

use super::super::child::all_cpu_seconds;

/// The state of the counters when the measurement began.
pub struct Load {
    machine: Option<Ticks>,
    own_seconds: f64,
}

/// Total times of all cores, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    busy: f64,
    all: f64,
}

impl Load {
    pub fn start() -> Load {
        Load { machine: Ticks::read(), own_seconds: all_cpu_seconds() }
    }

    /// The share of the cores' time used by neither this process nor the descendants that it has waited for.
    /// Absent if the kernel does not count it.
    pub fn others_share(&self) -> Option<f64> {
        let (before, now) = (self.machine?, Ticks::read()?);
        // SAFETY: this only reads a kernel constant.
        let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        let own_ticks = (all_cpu_seconds() - self.own_seconds) * ticks_per_second;
        others_share(before, now, own_ticks)
    }
}

fn others_share(before: Ticks, now: Ticks, own_ticks: f64) -> Option<f64> {
    let (busy, all) = (now.busy - before.busy, now.all - before.all);
    (all > 0.0).then(|| ((busy - own_ticks) / all).max(0.0))
}

impl Ticks {
    fn read() -> Option<Ticks> {
        Ticks::of(&fs_err::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)). Time taken
    /// by a hypervisor counts as busy. Guests are already included in user and nice.
    fn of(text: &str) -> Option<Ticks> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<f64> =
            line.split_whitespace().take(8).map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let idle = fields.get(3)? + fields.get(4)?;
        let all: f64 = fields.iter().sum();
        Some(Ticks { busy: all - idle, all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_load_is_busy_time_that_is_not_ours() {
        let before = Ticks::of("cpu  10 0 10 60 20 0 0 0 0 0\ncpu0 1\n").unwrap();
        assert_eq!(before, Ticks { busy: 20.0, all: 100.0 });
        let now = Ticks::of("cpu  60 0 20 90 20 0 0 10 5 0\n").unwrap();
        assert_eq!(others_share(before, now, 20.0), Some(0.5));
        // The two clocks may differ by some ticks.
        assert_eq!(others_share(before, now, 90.0), Some(0.0));
        assert_eq!(others_share(now, now, 0.0), None);
        assert_eq!([Ticks::of(""), Ticks::of("cpu  1 2\n"), Ticks::of("cpu  a\n")], [None; 3]);
        assert!(Load::start().own_seconds >= 0.0);
    }
}
