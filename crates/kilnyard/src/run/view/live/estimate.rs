//! The estimated end of a run.

use super::super::{BuildSeen, Snapshot};
use kilnyard_model::result::PackageState;
use std::time::Instant;

/// Longer estimates are not shown.
const LEFT_SECONDS_MAX: f64 = 30.0 * 86_400.0;

/// The number of finished builds, which determines the pace.
pub fn worked(snapshot: &Snapshot) -> u64 {
    [PackageState::Built, PackageState::Unchanged, PackageState::Failed]
        .into_iter()
        .map(|state| snapshot.count(state))
        .sum()
}

/// The seconds left: by the plan, but no less than the longest open path. After the planned end, by the pace until now.
/// `None` if unknown.
pub fn left_seconds(snapshot: &Snapshot, worked_before: u64, now: Instant) -> Option<f64> {
    let elapsed = now.saturating_duration_since(snapshot.started).as_secs_f64();
    let (done, total) = snapshot.done();
    let open = total.saturating_sub(done);
    if open == 0 {
        return Some(0.0);
    }
    // The open path starts with a running build, usually the oldest one.
    let gone = |build: &BuildSeen| {
        let gone = now.saturating_duration_since(build.started).as_secs_f64();
        gone.min(positive(build.estimate_seconds))
    };
    if open == snapshot.builds.len() as u64 {
        // No package waits: the last of these builds is the end.
        let left = snapshot.builds.iter().map(|build| positive(build.estimate_seconds) - gone(build));
        return sensible(left.fold(0.0, f64::max));
    }
    let path =
        positive(snapshot.remaining_path_seconds) - snapshot.builds.iter().map(gone).fold(0.0, f64::max);
    let planned = positive(snapshot.expected_seconds) - elapsed;
    let left = if planned > path {
        planned
    } else {
        let worked = worked(snapshot).saturating_sub(worked_before);
        let pace = if worked > 0 { elapsed / worked as f64 * open as f64 } else { 0.0 };
        path.max(pace)
    };
    sensible(left)
}

fn sensible(left: f64) -> Option<f64> {
    (left > 0.0 && left <= LEFT_SECONDS_MAX).then_some(left)
}

fn positive(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }
}

/// Rounds to the precision of the estimate.
pub fn rounded(seconds: f64) -> f64 {
    let step = match seconds {
        ..120.0 => 5.0,
        ..1200.0 => 15.0,
        _ => 60.0,
    };
    (seconds / step).ceil() * step
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ago, snapshot};
    use super::*;

    #[test]
    fn the_plan_then_the_path_then_the_pace() {
        let now = Instant::now();
        let mut run = snapshot(2, 2);
        run.started = ago(now, 130);
        run.expected_seconds = 225.0;
        run.remaining_path_seconds = 50.0;
        assert_eq!(left_seconds(&run, 0, now).map(f64::round), Some(95.0));
        run.expected_seconds = 140.0;
        run.builds.clear();
        run.remaining_path_seconds = 600.0;
        assert_eq!(left_seconds(&run, 0, now).map(f64::round), Some(600.0));
        // Five packages of twelve are open, seven took 130 seconds, and the plan is over.
        run.expected_seconds = 100.0;
        run.remaining_path_seconds = 1.0;
        assert_eq!(left_seconds(&run, 0, now).map(f64::round), Some(93.0));
    }

    #[test]
    fn the_last_builds_are_the_end() {
        let now = Instant::now();
        let mut run = snapshot(2, 2);
        run.counts = vec![(PackageState::Built, 7), (PackageState::Building, 2)];
        run.expected_seconds = 9000.0;
        for (build, gone) in run.builds.iter_mut().zip([10, 45]) {
            build.started = ago(now, gone);
        }
        assert_eq!(left_seconds(&run, 0, now).map(f64::round), Some(50.0));
        run.builds.iter_mut().for_each(|build| build.started = ago(now, 500));
        assert_eq!(left_seconds(&run, 0, now), None, "past the estimate, the rest is unknown");
    }

    #[test]
    fn no_nonsense_is_ever_said() {
        let now = Instant::now();
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300, 60.0];
        for expected in odd {
            for path in odd {
                for slots in [0, 1, 64] {
                    let mut run = snapshot(slots, slots);
                    run.expected_seconds = expected;
                    run.remaining_path_seconds = path;
                    for build in &mut run.builds {
                        build.estimate_seconds = path;
                    }
                    if let Some(left) = left_seconds(&run, 9, now) {
                        assert!(left > 0.0 && left <= LEFT_SECONDS_MAX, "{expected} {path}: {left}");
                        assert!(rounded(left).is_finite());
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_open_is_nothing_left() {
        let mut run = snapshot(2, 0);
        run.counts = vec![(PackageState::Built, 3)];
        assert_eq!(left_seconds(&run, 0, Instant::now()), Some(0.0));
        assert_eq!((rounded(94.0), rounded(130.0), rounded(3601.0)), (95.0, 135.0, 3660.0));
    }
}
