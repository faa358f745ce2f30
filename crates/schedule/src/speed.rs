//! The speed of a machine, measured by what its builds took.

use crate::work::median;

/// The number of builds after which a machine's speed is measured; again each time that number doubles.
const BUILDS_MIN: usize = 4;
/// Bounds the factor between measured and declared speed: a worker reports the times of its builds itself.
const FACTOR_MAX: f64 = 4.0;

/// The speed of one machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speed {
    /// What the machine declared when the first build ended.
    declared: f64,
    /// Logarithms of the ratios between expected and actual core time.
    ratios: Vec<f64>,
}

impl Speed {
    /// Adds a build with its expected and actual core time, in seconds. Returns the speed if there is a new one.
    pub fn add(&mut self, current: f64, expected_seconds: f64, actual_seconds: f64) -> Option<f64> {
        if !(expected_seconds > 0.0 && actual_seconds > 0.0) {
            return None;
        }
        if self.ratios.is_empty() {
            self.declared = current;
        }
        self.ratios.push((expected_seconds / actual_seconds).ln());
        let is_due = self.ratios.len() >= BUILDS_MIN && self.ratios.len().is_power_of_two();
        if is_due { self.measured(self.declared) } else { None }
    }

    /// The measured speed, close to the declared one; absent before enough builds have ended.
    pub fn measured(&self, declared: f64) -> Option<f64> {
        if self.ratios.len() < BUILDS_MIN {
            return None;
        }
        // The median, so that a few outliers have no effect.
        let speed = median(self.ratios.clone()).exp();
        Some(speed.clamp(declared / FACTOR_MAX, declared * FACTOR_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_the_median_of_many_builds_within_bounds() {
        let mut speed = Speed::default();
        let mut measured = Vec::new();
        for actual in [10.0, 12.0, 8.0, 1000.0, 10.0, 10.0, 10.0, 10.0] {
            measured.extend(speed.add(1.0, 20.0, actual));
        }
        let [first, second] = measured[..] else { panic!("{measured:?}") };
        assert!((1.5..2.5).contains(&first) && (second - 2.0).abs() < 1e-9, "{measured:?}");
        let mut liar = Speed::default();
        let claimed = (0..4).filter_map(|_| liar.add(1.5, 1000.0, 0.001)).next_back();
        assert_eq!(claimed, Some(6.0));
        assert_eq!((0..9).filter_map(|_| Speed::default().add(1.0, 0.0, 1.0)).count(), 0);
    }
}
