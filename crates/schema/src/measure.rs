//! Times of many runs as percentiles.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Times of the latest runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// The runs that they are from, the latest first.
    pub runs: Vec<u64>,
    /// The last run in which every package had outputs or failed as expected; absent if there is none among all runs.
    pub last_all_green_run: Option<u64>,
    /// From a commit of the tree, or a new source in the archive, to the publication of what was built from it.
    pub end_to_end: Percentiles,
    /// From the moment when a package could start to its start.
    pub wait: Percentiles,
    /// From the start of a build to its end.
    pub build: Percentiles,
    /// From the end of a run's last build to the end of its publication.
    pub publication: Percentiles,
    /// The packages with the longest test stages, the slowest first.
    pub slowest_tests: Vec<SlowTest>,
}

/// Percentiles of durations, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Percentiles {
    /// The number of durations.
    pub count: u64,
    /// Their sum.
    pub sum_seconds: f64,
    /// The median; 0 without durations, as the others.
    pub p50_seconds: f64,
    /// Nine of ten are not longer.
    pub p90_seconds: f64,
    /// 99 of a hundred are not longer.
    pub p99_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
}

impl Percentiles {
    /// Those of these durations, by the nearest rank.
    pub fn of(mut seconds: Vec<f64>) -> Percentiles {
        seconds.retain(|seconds| seconds.is_finite());
        seconds.sort_by(f64::total_cmp);
        let rank = |part: f64| {
            let place = (part * seconds.len() as f64).ceil() as usize;
            seconds.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Percentiles {
            count: seconds.len() as u64,
            sum_seconds: seconds.iter().sum(),
            p50_seconds: rank(0.5),
            p90_seconds: rank(0.9),
            p99_seconds: rank(0.99),
            max_seconds: seconds.last().copied().unwrap_or(0.0),
        }
    }
}

/// A package with a long test stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlowTest {
    /// Its name.
    pub package: String,
    /// The build.
    pub build: u64,
    /// The duration of its test stages.
    pub wall_seconds: f64,
    /// Their part of the whole build, from 0 to 1.
    pub part: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_the_nearest_rank() {
        let of = Percentiles::of((1..=100).map(f64::from).collect());
        assert_eq!(
            (of.p50_seconds, of.p90_seconds, of.p99_seconds, of.max_seconds),
            (50.0, 90.0, 99.0, 100.0)
        );
        assert_eq!((of.count, of.sum_seconds), (100, 5050.0));
        assert_eq!(Percentiles::of(vec![f64::NAN]), Percentiles::default());
        assert_eq!(Percentiles::of(vec![7.0]).p99_seconds, 7.0);
    }
}
