//! Determines how many cores a build could use, observed from outside.
//!
//! A jobserver client shows its demand by the tokens that it holds. If it holds all that it was given, it could use
//! more; how many more is unknown, so it counts as wanting all cores. A client without tokens shows nothing, and its
//! last demand stays in effect. A build that ignores the jobserver shows its demand by its processes that run or wait
//! for a core. Both signals fluctuate from moment to moment. A build wants the most that it used within
//! [`WINDOW_SECONDS`], so that cores do not change hands at each short pause.

use std::collections::VecDeque;

/// How long a sample counts: longer than several samples take, and than the time between two process counts. A build
/// that becomes serial withholds its cores from others for this long.
pub const WINDOW_SECONDS: f64 = 0.15;

/// A sample of a build's use of cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreSample {
    /// Tokens given to its jobserver.
    pub tokens: u32,
    /// How many of these tokens its processes hold.
    pub held: u32,
    /// Processes that run, or would run if they had a core.
    pub runnable: u32,
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// Times, with the cores used then. Only samples that may still be the maximum.
    seen: VecDeque<(f64, u32)>,
    /// Whether it held all its tokens when it last had any.
    is_short: bool,
}

impl Demand {
    /// Starts over, for a build that has moved on to other work.
    pub fn forget(&mut self) {
        *self = Demand::default();
    }

    /// Adds a sample; `now_seconds` must not decrease. Returns how many cores the build wants, at least 1 and at most
    /// `cores_max`.
    pub fn sample(&mut self, now_seconds: f64, sample: CoreSample, cores_max: u32) -> u32 {
        if sample.tokens > 0 {
            self.is_short = sample.held >= sample.tokens;
        }
        let used = if self.is_short { cores_max } else { sample.runnable.max(sample.held.saturating_add(1)) };
        // Earlier samples with less use no longer matter.
        while self.seen.back().is_some_and(|(_, earlier)| *earlier <= used) {
            self.seen.pop_back();
        }
        self.seen.push_back((now_seconds, used));
        while self.seen.front().is_some_and(|(at, _)| now_seconds - at > WINDOW_SECONDS) {
            self.seen.pop_front();
        }
        self.seen.front().map_or(1, |(_, most)| (*most).clamp(1, cores_max.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_client_that_holds_all_its_tokens_wants_all_cores() {
        let mut demand = Demand::default();
        let mut sample =
            |now, tokens, held, runnable| demand.sample(now, CoreSample { tokens, held, runnable }, 16);
        assert_eq!(sample(0.0, 0, 0, 1), 1, "configure");
        assert_eq!(sample(0.1, 1, 0, 1), 1, "a token that it leaves");
        assert_eq!(sample(0.2, 1, 1, 2), 16, "a token that it takes");
        assert_eq!(sample(0.3, 15, 4, 5), 16, "a short pause");
        assert_eq!(sample(0.6, 15, 4, 5), 5, "a long decrease");
        assert_eq!(sample(3.0, 4, 4, 5), 16);
        assert_eq!(sample(9.0, 0, 0, 1), 16, "it lost all tokens and still wants them");
        assert_eq!(sample(9.1, 15, 0, 1), 16);
        assert_eq!(sample(10.2, 15, 0, 1), 1);
    }

    #[test]
    fn builds_that_ignore_the_jobserver_are_judged_by_their_processes() {
        let mut demand = Demand::default();
        let sample = |runnable| CoreSample { runnable, ..CoreSample::default() };
        assert_eq!(demand.sample(0.0, sample(0), 4), 1);
        assert_eq!(demand.sample(0.1, sample(3), 4), 3);
        assert_eq!(demand.sample(0.2, sample(60), 4), 4);
        assert_eq!(demand.sample(0.2, sample(60), 0), 1, "every build has a core");
    }

    proptest! {
        #[test]
        fn the_highest_use_within_the_window_counts(
            looks in proptest::collection::vec((0.0f64..0.1, 0u32..8, 0u32..8, 0u32..8), 1..60),
        ) {
            let (mut demand, mut now, mut all, mut is_short) = (Demand::default(), 0.0, Vec::new(), false);
            for (passed, tokens, held, runnable) in looks {
                now += passed;
                if tokens > 0 {
                    is_short = held >= tokens;
                }
                let used = if is_short { 6 } else { runnable.max(held + 1) };
                all.push((now, used));
                let recent = all.iter().filter(|(at, _)| now - at <= WINDOW_SECONDS);
                let expected = recent.map(|(_, used)| *used).max().unwrap_or(1).clamp(1, 6);
                prop_assert_eq!(demand.sample(now, CoreSample { tokens, held, runnable }, 6), expected);
            }
        }
    }
}
