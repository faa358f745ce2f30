//! Which failures are tried again, how often, and what is another thing then.
//!
//! What may come from the circumstances is tried again by itself; what is the package's own is not, unless somebody wants
//! it. What changes follows from the kind: who lacked memory or room is built with nobody beside it, whom the network or a
//! signal ended waits a while, and whose worker was lost begins at once.

use kilnyard_model::result::FailureKind;
use std::collections::BTreeMap;

/// How long the first pause before another try is; each further one is as much longer.
pub const PAUSE_SECONDS: f64 = 10.0;
/// Nobody wants more: who fails ten times will fail again.
pub const RETRIES_MAX: u32 = 10;

/// What is another thing when a package is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Nothing.
    AtOnce,
    /// No other package is built meanwhile, and its files are on the disk.
    Alone,
    /// Some time goes by before.
    Later,
}

/// How often a package is tried again after failures of each kind, in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    times: BTreeMap<FailureKind, u32>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let times = [
            (FailureKind::Memory, 1),
            (FailureKind::Disk, 1),
            (FailureKind::Signal, 1),
            (FailureKind::Network, 2),
            (FailureKind::Machine, 2),
            (FailureKind::Lost, 3),
        ];
        RetryPolicy { times: times.into() }
    }
}

impl RetryPolicy {
    /// The usual one, but for what somebody says. An error says what cannot be.
    pub fn with(times: &BTreeMap<FailureKind, u32>) -> Result<RetryPolicy, String> {
        let mut policy = RetryPolicy::default();
        for (kind, count) in times {
            if matches!(kind, FailureKind::Cancelled | FailureKind::Dependencies) {
                return Err(format!("what failed by `{}` comes to the same another time", kind.as_str()));
            }
            if *count > RETRIES_MAX {
                return Err(format!("{} is {count}, and {RETRIES_MAX} is the most", kind.as_str()));
            }
            policy.times.insert(*kind, *count);
        }
        Ok(policy)
    }

    /// How often a failure of this kind is tried again.
    pub fn times(&self, kind: FailureKind) -> u32 {
        self.times.get(&kind).copied().unwrap_or(0)
    }

    /// What is another thing after a failure of this kind.
    pub fn manner(kind: FailureKind) -> Manner {
        match kind {
            FailureKind::Memory | FailureKind::Disk | FailureKind::Processes => Manner::Alone,
            FailureKind::Machine | FailureKind::Lost => Manner::AtOnce,
            _ => Manner::Later,
        }
    }
}

/// How often a package failed in this run, by kind, since somebody asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures(BTreeMap<FailureKind, u32>);

impl Failures {
    /// Counts one more; how often it was of this kind before, if that is to be tried again.
    pub(crate) fn count(&mut self, kind: FailureKind, policy: &RetryPolicy) -> Option<u32> {
        let count = self.0.entry(kind).or_default();
        let before = *count;
        *count = count.saturating_add(1);
        (before < policy.times(kind)).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_the_circumstances_is_tried_again_and_nothing_else() {
        let policy = RetryPolicy::default();
        for kind in FailureKind::ALL {
            assert_eq!(policy.times(kind) > 0, kind.is_transient(), "{}", kind.as_str());
        }
        let mut failures = Failures::default();
        let counted: Vec<_> = (0..3).map(|_| failures.count(FailureKind::Network, &policy)).collect();
        assert_eq!(counted, [Some(0), Some(1), None]);
        assert_eq!(failures.count(FailureKind::Memory, &policy), Some(0), "each kind for itself");
        assert_eq!(failures.count(FailureKind::Command, &policy), None);
    }

    #[test]
    fn somebody_may_want_more_or_less_within_bounds() {
        let with = |kind, times| RetryPolicy::with(&[(kind, times)].into());
        assert_eq!(with(FailureKind::Command, 2).unwrap().times(FailureKind::Command), 2);
        let less = with(FailureKind::Memory, 0).unwrap();
        assert_eq!((less.times(FailureKind::Memory), less.times(FailureKind::Disk)), (0, 1));
        assert!(with(FailureKind::Memory, RETRIES_MAX + 1).unwrap_err().contains("memory is 11"));
        assert!(with(FailureKind::Dependencies, 1).is_err());
    }
}
