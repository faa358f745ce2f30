//! The clock for recorded build times.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, as a clock that never goes back or jumps while this process lives: the time of day at the first
/// call, advanced by the monotonic clock. A change of the system clock cannot end a lease or give a build a negative
/// duration.
pub fn now_seconds() -> f64 {
    static BEGINNING: OnceLock<(Instant, f64)> = OnceLock::new();
    let (counter, time_of_day_seconds) = BEGINNING.get_or_init(|| (Instant::now(), time_of_day_seconds()));
    time_of_day_seconds + counter.elapsed().as_secs_f64()
}

/// Seconds since 1970, as the machine's clock says now, which may jump: for comparison with the clocks of others.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the time of day")]
pub fn time_of_day_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// User and system time of the calling thread.
pub fn own_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
