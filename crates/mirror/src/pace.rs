//! Decides whether a body arrives fast enough. Pure: the caller passes the time.

use std::time::Duration;

use crate::Limits;

/// Measures a body in consecutive windows of patience.
///
/// Each window must reach the minimum speed on average. A whole body takes at most its size at that speed, plus one
/// window, and a mirror that stalls after a fast start is detected just as soon.
#[derive(Debug)]
pub(crate) struct Pace {
    window: Duration,
    window_bytes_min: u64,
    speed_min_bytes_per_second: u64,
    began: Duration,
    began_bytes: u64,
}

/// A body that arrived too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slow {
    /// The speed over the last window.
    pub(crate) speed_bytes_per_second: u64,
    /// The required minimum speed.
    pub(crate) speed_min_bytes_per_second: u64,
    /// The length of the window.
    pub(crate) window: Duration,
}

impl Pace {
    /// Starts measuring a body at a time.
    pub(crate) fn begin(limits: &Limits, now: Duration) -> Pace {
        let bytes_min = u128::from(limits.speed_min_bytes_per_second) * limits.patience.as_millis() / 1000;
        Pace {
            window: limits.patience,
            // At least one byte, so that a silent server is always too slow.
            window_bytes_min: u64::try_from(bytes_min).unwrap_or(u64::MAX).max(1),
            speed_min_bytes_per_second: limits.speed_min_bytes_per_second,
            began: now,
            began_bytes: 0,
        }
    }

    /// Judges the total of bytes received so far.
    pub(crate) fn judge(&mut self, now: Duration, received_bytes: u64) -> Result<(), Slow> {
        let elapsed = now.saturating_sub(self.began);
        if elapsed < self.window {
            return Ok(());
        }
        let bytes = received_bytes.saturating_sub(self.began_bytes);
        if bytes < self.window_bytes_min {
            let speed = u128::from(bytes) * 1000 / elapsed.as_millis().max(1);
            return Err(Slow {
                speed_bytes_per_second: u64::try_from(speed).unwrap_or(u64::MAX),
                speed_min_bytes_per_second: self.speed_min_bytes_per_second,
                window: self.window,
            });
        }
        self.began = now;
        self.began_bytes = received_bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(patience_seconds: u64, speed: u64) -> Pace {
        let limits = Limits {
            patience: Duration::from_secs(patience_seconds),
            speed_min_bytes_per_second: speed,
            ..Limits::default()
        };
        Pace::begin(&limits, Duration::from_secs(1000))
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1000 + seconds)
    }

    #[test]
    fn a_byte_a_second_ends_after_one_window() {
        let mut pace = begin(30, 4096);
        for second in 0..30 {
            assert_eq!(pace.judge(at(second), second), Ok(()));
        }
        let slow = pace.judge(at(30), 30).unwrap_err();
        assert_eq!(slow.speed_bytes_per_second, 1);
    }

    #[test]
    fn a_fast_start_gives_no_credit() {
        let mut pace = begin(30, 4096);
        assert_eq!(pace.judge(at(30), 1 << 30), Ok(()));
        assert_eq!(pace.judge(at(59), 1 << 30), Ok(()));
        assert!(pace.judge(at(60), 1 << 30).is_err());
    }

    #[test]
    fn the_minimum_speed_is_always_enough() {
        let mut pace = begin(30, 4096);
        for second in 0..10_000 {
            assert_eq!(pace.judge(at(second), second * 4096), Ok(()));
        }
    }

    #[test]
    fn silence_is_too_slow_even_without_a_minimum_speed() {
        let mut pace = begin(30, 0);
        assert_eq!(pace.judge(at(31), 1), Ok(()));
        assert!(pace.judge(at(62), 1).is_err());
    }
}
