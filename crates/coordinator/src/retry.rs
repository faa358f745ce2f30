//! Which failures are retried, how often, and what changes on the retry.
//!
//! Failures that circumstances may have caused are retried; a package's own failures are not, unless the configuration
//! says so. The kind decides what changes: after running out of memory or disk, a package is built alone; after a
//! network failure or a signal, it waits first; after the loss of its worker, it starts immediately.

use kilnyard_model::result::FailureKind;
use std::collections::BTreeMap;

/// The first pause before a retry, in seconds. The n-th is n times as long.
pub const PAUSE_SECONDS: f64 = 10.0;
/// The maximum that can be configured: a package that failed ten times will fail again.
pub const RETRIES_MAX: u32 = 10;

/// What changes on a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryMode {
    /// Nothing: it starts immediately.
    AtOnce,
    /// No other build runs at the same time, and its work folder is on disk.
    Alone,
    /// It waits for a pause first.
    Later,
}

/// The number of retries in one run, by kind of failure.
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
    /// The default with these changes.
    ///
    /// # Errors
    /// A kind that is never retried, or a number above [`RETRIES_MAX`].
    pub fn with(times: &BTreeMap<FailureKind, u32>) -> Result<RetryPolicy, String> {
        RetryPolicy::default().and(times)
    }

    /// This policy with these changes, for one package.
    ///
    /// # Errors
    /// As for [`RetryPolicy::with`].
    pub fn and(&self, times: &BTreeMap<FailureKind, u32>) -> Result<RetryPolicy, String> {
        let mut policy = self.clone();
        for (kind, count) in times {
            if matches!(kind, FailureKind::Cancelled | FailureKind::Dependencies) {
                return Err(format!(
                    "a failure of kind `{}` cannot be retried: the result would be the same",
                    kind.as_str()
                ));
            }
            if *count > RETRIES_MAX {
                return Err(format!("{} is {count}; the maximum is {RETRIES_MAX}", kind.as_str()));
            }
            policy.times.insert(*kind, *count);
        }
        Ok(policy)
    }

    /// The number of retries after failures of this kind.
    pub fn times(&self, kind: FailureKind) -> u32 {
        self.times.get(&kind).copied().unwrap_or(0)
    }

    /// What changes on the retry after a failure of this kind.
    pub fn mode(kind: FailureKind) -> RetryMode {
        match kind {
            FailureKind::Memory | FailureKind::Disk | FailureKind::Processes => RetryMode::Alone,
            FailureKind::Machine | FailureKind::Lost => RetryMode::AtOnce,
            _ => RetryMode::Later,
        }
    }
}

/// The number of failures of a package in this run, by kind, since it was last retried on request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures(BTreeMap<FailureKind, u32>);

impl Failures {
    /// Counts a failure. Returns the number of earlier ones of this kind, if there is a retry.
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
        assert_eq!(failures.count(FailureKind::Memory, &policy), Some(0), "each kind is counted separately");
        assert_eq!(failures.count(FailureKind::Command, &policy), None);
    }

    #[test]
    fn the_number_of_retries_can_be_configured_within_bounds() {
        let with = |kind, times| RetryPolicy::with(&[(kind, times)].into());
        assert_eq!(with(FailureKind::Command, 2).unwrap().times(FailureKind::Command), 2);
        let less = with(FailureKind::Memory, 0).unwrap();
        assert_eq!((less.times(FailureKind::Memory), less.times(FailureKind::Disk)), (0, 1));
        assert!(with(FailureKind::Memory, RETRIES_MAX + 1).unwrap_err().contains("memory is 11"));
        assert!(with(FailureKind::Dependencies, 1).is_err());
        // A package's own policy changes the yard's.
        let own = less.and(&[(FailureKind::Disk, 4)].into()).unwrap();
        assert_eq!((own.times(FailureKind::Memory), own.times(FailureKind::Disk)), (0, 4));
        assert!(less.and(&[(FailureKind::Cancelled, 1)].into()).is_err());
    }
}
