//! How many cores a build could use, from what can be seen of it from outside.
//!
//! A client of a jobserver says it by the tokens that it holds: with all of them in use it could use more, and how many
//! more is unknown, so that it is taken to want all. Without a token it says nothing, and what it said last holds. What ignores the jobserver says it by its processes that run or
//! wait for a core. Both come and go from one moment to the next; a build wants the most that it used within
//! [`WINDOW_SECONDS`], so that cores do not change hands for each short pause.

use std::collections::VecDeque;

/// What a build used is remembered for so long: some looks, and longer than it takes until its processes are counted
/// again. A build that turns serial keeps its cores from others for that time.
pub const WINDOW_SECONDS: f64 = 0.15;

/// What was seen of a build at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Tokens that its jobserver has.
    pub tokens: u32,
    /// Of these, how many its processes hold.
    pub held: u32,
    /// Processes that run or could run.
    pub runnable: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// When, and the cores that it used then.
    seen: VecDeque<(f64, u32)>,
    /// Whether it held all its tokens when it last had any.
    is_short: bool,
}

impl Demand {
    /// It does something else now.
    pub fn forget(&mut self) {
        *self = Demand::default();
    }

    /// Takes a look at this time, which never goes back; how many cores the build wants, at least 1 and at most
    /// `cores_max`.
    pub fn look(&mut self, now_seconds: f64, look: Look, cores_max: u32) -> u32 {
        if look.tokens > 0 {
            self.is_short = look.held >= look.tokens;
        }
        let used = if self.is_short { cores_max } else { look.runnable.max(look.held.saturating_add(1)) };
        // What used less before says nothing any more.
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
        let mut look = |now, tokens, held, runnable| demand.look(now, Look { tokens, held, runnable }, 16);
        assert_eq!(look(0.0, 0, 0, 1), 1, "configure");
        assert_eq!(look(0.1, 1, 0, 1), 1, "a token that it does not take");
        assert_eq!(look(0.2, 1, 1, 2), 16, "it took it");
        assert_eq!(look(0.3, 15, 4, 5), 16, "a pause is no end");
        assert_eq!(look(0.6, 15, 4, 5), 5, "it uses no more than that");
        assert_eq!(look(3.0, 4, 4, 5), 16);
        assert_eq!(look(9.0, 0, 0, 1), 16, "all its tokens went to others, and it still wants them");
        assert_eq!(look(9.1, 15, 0, 1), 16);
        assert_eq!(look(10.2, 15, 0, 1), 1);
    }

    #[test]
    fn what_ignores_the_jobserver_is_told_by_its_processes() {
        let mut demand = Demand::default();
        let look = |runnable| Look { runnable, ..Look::default() };
        assert_eq!(demand.look(0.0, look(0), 4), 1);
        assert_eq!(demand.look(0.1, look(3), 4), 3);
        assert_eq!(demand.look(0.2, look(60), 4), 4);
        assert_eq!(demand.look(0.2, look(60), 0), 1, "a build has a core, whatever the machine says");
    }

    proptest! {
        /// It is the most of what was used within the window, and nothing else.
        #[test]
        fn the_most_of_the_window_counts(
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
                prop_assert_eq!(demand.look(now, Look { tokens, held, runnable }, 6), expected);
            }
        }
    }
}
