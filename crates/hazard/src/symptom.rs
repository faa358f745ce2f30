//! The symptom of a build that stalls all cores, without any counter: time in the kernel that no build accounts for, which rises
//! when the build begins and falls when it ends.
//!
//! For each interval between two readings, the machine's time in the kernel less that of its builds is what is left. A build is
//! suspected if the mean of what is left is larger while it runs than otherwise, by Welch's t-test with as many trials as there
//! are builds (Welch, "The generalization of Student's problem", 1947; Bonferroni's correction). The test takes the normal
//! distribution, so that few intervals give no confidence.
//!
//! Known downside: builds that always run together are suspected together.

use std::collections::BTreeMap;

/// The least intervals with and without a build.
pub const INTERVALS_MIN: usize = 6;
/// The least share of the other cores' time that is worth a word.
const SHARE_MIN: f64 = 0.1;
/// The least confidence.
const CONFIDENCE_MIN: f64 = 0.99;
/// The least deviation of what is left, in cores: the clock of the kernel has ticks.
const DEVIATION_MIN: f64 = 0.01;

/// What the machine had used at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// When, in seconds.
    pub at_seconds: f64,
    /// Time in the kernel of all cores until then.
    pub system_seconds: f64,
}

/// A build, or a stage of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The package.
    pub package: String,
    /// When it began, by the same clock as readings.
    pub began_seconds: f64,
    /// When it ended.
    pub ended_seconds: f64,
    /// Its own time in the kernel.
    pub system_seconds: f64,
}

/// A package during whose build other cores were in the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The package.
    pub package: String,
    /// How much more time in the kernel passed in each second than otherwise, without that of builds.
    pub cores: f64,
    /// How sure that is, up to 1.
    pub confidence: f64,
}

/// The packages whose builds seem to stall a machine with this many cores, the worst first.
pub fn suspects(readings: &[Reading], builds: &[Ran], cores: u32) -> Vec<Suspect> {
    let intervals: Vec<(f64, f64)> =
        readings.windows(2).map(|two| (two[0].at_seconds, two[1].at_seconds)).collect();
    let left: Vec<f64> = readings
        .windows(2)
        .zip(&intervals)
        .map(|(two, (from, to))| {
            let own: f64 = builds.iter().map(|build| build.system_seconds * share(build, *from, *to)).sum();
            (two[1].system_seconds - two[0].system_seconds - own).max(0.0)
                / (to - from).max(f64::MIN_POSITIVE)
        })
        .collect();
    let mut packages: BTreeMap<&str, Vec<&Ran>> = BTreeMap::new();
    for build in builds {
        packages.entry(&build.package).or_default().push(build);
    }
    let trials = packages.len() as f64;
    let others = f64::from(cores.saturating_sub(1));
    let suspect = |(package, ran): (&&str, &Vec<&Ran>)| {
        let is_within = |(from, to): &(f64, f64)| {
            let covered: f64 = ran.iter().map(|build| overlap(build, *from, *to)).sum();
            covered >= (to - from) / 2.0
        };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (interval, left) in intervals.iter().zip(&left) {
            if is_within(interval) { with.push(*left) } else { without.push(*left) }
        }
        if with.len() < INTERVALS_MIN || without.len() < INTERVALS_MIN {
            return None;
        }
        let (cores, t) = difference(&with, &without);
        let confidence = 1.0 - (trials * upper_tail(t)).min(1.0);
        let is_worth = cores >= SHARE_MIN * others && confidence >= CONFIDENCE_MIN;
        is_worth.then(|| Suspect { package: (*package).to_owned(), cores, confidence })
    };
    let mut found: Vec<Suspect> = packages.iter().filter_map(suspect).collect();
    found.sort_by(|one, other| other.cores.total_cmp(&one.cores));
    found
}

/// How long a build ran within an interval.
fn overlap(build: &Ran, from: f64, to: f64) -> f64 {
    (build.ended_seconds.min(to) - build.began_seconds.max(from)).max(0.0)
}

/// The part of a build that fell into an interval.
fn share(build: &Ran, from: f64, to: f64) -> f64 {
    overlap(build, from, to) / (build.ended_seconds - build.began_seconds).max(f64::MIN_POSITIVE)
}

/// The difference of two means, and Welch's t.
fn difference(with: &[f64], without: &[f64]) -> (f64, f64) {
    let facts = |values: &[f64]| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance =
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        (mean, variance.max(DEVIATION_MIN.powi(2)) / count)
    };
    let ((one, one_error), (other, other_error)) = (facts(with), facts(without));
    (one - other, (one - other) / (one_error + other_error).sqrt())
}

/// The probability that a normal variable is larger (Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.2.17; error
/// below 7.5e-8).
fn upper_tail(t: f64) -> f64 {
    if t < 0.0 {
        return 1.0 - upper_tail(-t);
    }
    let k = 1.0 / (1.0 + 0.231_641_9 * t);
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * k);
    (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds one after the other, for 60 s each, which use a tenth of a core in the kernel; `extra` is what the machine uses
    /// during each in addition.
    fn run(extra: &[(&str, f64)]) -> (Vec<Reading>, Vec<Ran>) {
        let (mut readings, mut builds, mut system) = (Vec::new(), Vec::new(), 0.0);
        for (place, (package, cores)) in extra.iter().enumerate() {
            let began = place as f64 * 60.0;
            builds.push(Ran {
                package: (*package).to_owned(),
                began_seconds: began,
                ended_seconds: began + 60.0,
                system_seconds: 6.0,
            });
            for step in 0..12 {
                readings.push(Reading { at_seconds: began + f64::from(step) * 5.0, system_seconds: system });
                // It varies by a third.
                let noise = 1.0 + f64::from(step % 3 - 1) / 3.0;
                system += 5.0 * (0.1 + (cores + 0.05) * noise);
            }
        }
        readings.push(Reading { at_seconds: extra.len() as f64 * 60.0, system_seconds: system });
        (readings, builds)
    }

    #[test]
    fn a_build_with_which_other_cores_are_in_the_kernel_is_suspected() {
        let (readings, builds) = run(&[("calm", 0.0), ("wild", 2.0), ("quiet", 0.02), ("last", 0.0)]);
        let found = suspects(&readings, &builds, 8);
        let names: Vec<&str> = found.iter().map(|suspect| suspect.package.as_str()).collect();
        assert_eq!(names, ["wild"]);
        assert!((1.8..2.2).contains(&found[0].cores) && found[0].confidence > 0.99, "{found:?}");
    }

    #[test]
    fn what_builds_use_themselves_and_what_always_happens_suspects_none() {
        let (mut readings, mut builds) = run(&[("calm", 0.3), ("busy", 0.3), ("last", 0.3)]);
        assert_eq!(suspects(&readings, &builds, 4), []);
        // A build that forks a lot is in the kernel itself.
        builds[1].system_seconds += 120.0;
        for reading in &mut readings {
            reading.system_seconds += 2.0 * (reading.at_seconds - 60.0).clamp(0.0, 60.0);
        }
        assert_eq!(suspects(&readings, &builds, 4), []);
        // Too few readings say nothing.
        let (readings, builds) = run(&[("wild", 2.0), ("calm", 0.0)]);
        let few: Vec<Reading> = readings.iter().step_by(4).copied().collect();
        assert_eq!(suspects(&few, &builds, 4), []);
        assert_eq!(suspects(&[], &builds, 4), []);
    }

    #[test]
    fn tails_are_those_of_tables() {
        for (t, tail) in [(0.0, 0.5), (1.0, 0.158_655_25), (1.959_964, 0.025), (3.0, 0.001_349_898)] {
            assert!((upper_tail(t) - tail).abs() < 1e-6, "{t}: {}", upper_tail(t));
            assert!((upper_tail(-t) - (1.0 - tail)).abs() < 1e-6);
        }
    }
}
