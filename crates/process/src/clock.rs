//! The time that builds are recorded in.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970 that never go back and never leap while this process lives: the time of day when it
/// first asked, and what the machine's counter says since. Whoever sets the clock neither ends a lease nor
/// makes a build take less than no time.
#[expect(clippy::disallowed_methods, reason = "the one door to the time of day")]
pub fn now_seconds() -> f64 {
    static BEGINNING: OnceLock<(Instant, f64)> = OnceLock::new();
    let (counter, time_of_day_seconds) = BEGINNING.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        (Instant::now(), since.map_or(0.0, |since| since.as_secs_f64()))
    });
    time_of_day_seconds + counter.elapsed().as_secs_f64()
}

/// User and system time of the thread that asks.
pub fn own_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
