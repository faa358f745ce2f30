//! Limits on time, speed and number of attempts for a mirror.

use std::time::Duration;

/// The limits of a fetch. The defaults suit the internet; tests and local mirrors may use shorter ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The time for name resolution, connection and handshake together. A mirror on the other side of the world
    /// responds within two seconds; one that needs ten times as long is useless.
    pub connect_max: Duration,
    /// How long a server may take to start its response, and the window over which its speed is measured. Long enough
    /// for a proxy that fetches the file itself first.
    pub patience: Duration,
    /// The minimum average speed of a body over a window of patience. A modem did better, so anything slower has
    /// stalled.
    pub speed_min_bytes_per_second: u64,
    /// Maximum number of failures of one URL without progress.
    pub attempts_max: u32,
    /// The pause before the second round over the URLs. It doubles with each round.
    pub pause_first: Duration,
    /// The longest pause. An overloaded mirror needs time to recover, but a build is waiting.
    pub pause_max: Duration,
    /// Maximum number of redirects followed. Mirror networks use two or three.
    pub redirects_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect_max: Duration::from_secs(20),
            patience: Duration::from_secs(30),
            speed_min_bytes_per_second: 4096,
            attempts_max: 4,
            pause_first: Duration::from_millis(500),
            pause_max: Duration::from_secs(30),
            redirects_max: 8,
        }
    }
}

impl Limits {
    /// The pause after a number of rounds without progress.
    pub(crate) fn pause_after(&self, rounds: u32) -> Duration {
        let doublings = rounds.saturating_sub(1).min(31);
        self.pause_first.saturating_mul(1 << doublings).min(self.pause_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_bounded() {
        let limits = Limits::default();
        let pauses = [1, 2, 3, 4, 7, 8, 1000].map(|rounds| limits.pause_after(rounds).as_millis());
        assert_eq!(pauses, [500, 1000, 2000, 4000, 30_000, 30_000, 30_000]);
    }
}
