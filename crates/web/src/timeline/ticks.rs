//! The time axis: round steps, few enough that labels do not touch.

use crate::words;

/// Maximum number of steps. This many labels fit on the narrowest drawing.
const TICKS_MAX: usize = 10;

/// Step sizes in which people count time.
const STEPS_SECONDS: [f64; 24] = [
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    10800.0,
    21600.0,
    43200.0,
    86400.0,
    172_800.0,
    432_000.0,
    864_000.0,
    1_728_000.0,
    4_320_000.0,
    8_640_000.0,
];

/// One mark on the axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Position, as a fraction of the width.
    pub(crate) at: f64,
    /// Text at the mark.
    pub(crate) label: String,
}

/// The marks of an axis from zero to `range_seconds`.
pub(crate) fn ticks(range_seconds: f64) -> Vec<Tick> {
    let range = words::sane_seconds(range_seconds);
    if range <= 0.0 {
        return vec![Tick { at: 0.0, label: "0".to_owned() }];
    }
    let step = step_seconds(range);
    (0..=TICKS_MAX)
        .map(|index| index as f64 * step)
        // The tolerance keeps the last tick if range / step is an integer except for rounding.
        .take_while(|seconds| *seconds <= range * (1.0 + 1e-9))
        .map(|seconds| Tick { at: (seconds / range).min(1.0), label: label(seconds, step) })
        .collect()
}

/// The smallest round step that results in few enough ticks.
fn step_seconds(range: f64) -> f64 {
    let enough = |step: &f64| range / step <= TICKS_MAX as f64;
    if range < TICKS_MAX as f64 / 2.0 {
        // Below a second, use decimal fractions.
        let power = 10f64.powf((range / TICKS_MAX as f64).log10().floor());
        return [power, 2.0 * power, 5.0 * power, 10.0 * power].into_iter().find(enough).unwrap_or(range);
    }
    STEPS_SECONDS.into_iter().find(enough).unwrap_or_else(|| {
        let days = 86400.0 * 100.0;
        let power = 10f64.powf((range / days / TICKS_MAX as f64).log10().ceil()).max(1.0);
        days * power
    })
}

fn label(seconds: f64, step: f64) -> String {
    if seconds <= 0.0 {
        return "0".to_owned();
    }
    if step < 1.0 {
        let decimals = (-step.log10()).ceil().clamp(1.0, 9.0) as usize;
        return format!("{seconds:.decimals$} s");
    }
    if seconds < 10.0 {
        return format!("{seconds:.0} s");
    }
    words::duration(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: f64) -> Vec<String> {
        ticks(range).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn steps_are_round_for_the_range() {
        assert_eq!(labels(9.0), ["0", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s", "7 s", "8 s", "9 s"]);
        assert_eq!(labels(372.0)[..3], ["0", "1 min", "2 min"]);
        assert_eq!(labels(100.0)[..4], ["0", "10 s", "20 s", "30 s"]);
        assert_eq!(labels(7200.0 * 2.0)[..4], ["0", "30 min", "1 h", "1 h 30 min"]);
        assert_eq!(labels(86400.0 * 4.0)[..4], ["0", "12 h", "1 d", "1 d 12 h"]);
        assert_eq!(labels(0.4)[..3], ["0", "0.05 s", "0.10 s"]);
        assert_eq!(labels(0.0), ["0"]);
    }

    #[test]
    fn ticks_are_few_ascending_and_inside_for_every_range() {
        let mut range = 1e-6;
        while range < 1e12 {
            let ticks = ticks(range);
            assert!((2..=TICKS_MAX + 1).contains(&ticks.len()), "{range}: {}", ticks.len());
            assert!(ticks.windows(2).all(|pair| pair[0].at < pair[1].at), "{range}");
            assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.at)), "{range}");
            range *= 1.37;
        }
        for odd in [f64::NAN, -1.0, f64::INFINITY, f64::MIN_POSITIVE] {
            assert!(ticks(odd).iter().all(|tick| (0.0..=1.0).contains(&tick.at)), "{odd}");
        }
    }
}
