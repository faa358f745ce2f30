//! How long and how often a mirror is given a chance.

use std::time::Duration;

/// The bounds of a fetch. The defaults suit the internet; a test or a local mirror may choose shorter ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// For the name, the connection and the handshake together. A mirror on the other side of the world
    /// answers within two seconds; one that needs ten times that is of no use.
    pub connect_max: Duration,
    /// How long a server may take to begin its answer, and the window over which its speed is measured.
    /// Long enough for a proxy that fetches the file itself first.
    pub patience: Duration,
    /// What a body must bring on average over a window of patience. A modem did better; what is slower is
    /// stalled.
    pub speed_min_bytes_per_second: u64,
    /// How many times one url may fail without bringing anything new.
    pub attempts_max: u32,
    /// The pause before the second round over the urls; it doubles with each round.
    pub pause_first: Duration,
    /// The longest pause. An overloaded mirror needs some peace, and a build waits meanwhile.
    pub pause_max: Duration,
    /// How many redirects are followed. Mirror networks use two or three.
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
    /// The pause after a number of rounds in which nothing was fetched.
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
