//! Models the work of a build, from the times of earlier builds.
//!
//! A build is a sequence of [`Step`]s, each either serial or parallel (Amdahl 1967). A stage that took a wall time of
//! w with j jobs, and used a CPU time of c, had a serial part s and a parallel part p with `s + p / j = w` and `s + p
//! = c`, hence `p = (c - w) / (1 - 1 / j)`. If the CPU time does not exceed the wall time, the stage is serial and
//! takes its wall time, waiting included. If the time t for which the stage could use more than one core is known,
//! the rest of its wall time is its serial part: `s = w - t` and `p = c - s`, however many cores it had.
//!
//! Known downsides: a parallel part is assumed to speed up without limit, and waiting counts as work.

use crate::kept;

/// A part of a build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// This many seconds on one core.
    Serial(f64),
    /// This many core-seconds, on any number of cores.
    Parallel(f64),
}

impl Step {
    /// The work of the step in core-seconds.
    pub fn core_seconds(self) -> f64 {
        match self {
            Step::Serial(seconds) | Step::Parallel(seconds) => seconds,
        }
    }

    fn scaled(self, factor: f64) -> Step {
        match self {
            Step::Serial(seconds) => Step::Serial(seconds * factor),
            Step::Parallel(seconds) => Step::Parallel(seconds * factor),
        }
    }
}

/// The source of an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// Recorded builds of this package.
    #[default]
    Recorded,
    /// Only a prior, which is corrected as other results arrive.
    Prior,
}

/// The time, memory and disk space of a build.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Its steps, in order.
    pub steps: Vec<Step>,
    /// The memory of its processes with one core.
    pub memory_bytes: u64,
    /// The memory that each further core adds.
    pub memory_per_core_bytes: u64,
    /// The size of its work folder, which counts as memory if the folder is in memory.
    pub files_bytes: u64,
    /// What it writes outside its work folder, which is always on disk.
    pub disk_bytes: u64,
    /// Maximum number of cores that it may have; absent if only the machine limits it.
    pub jobs_max: Option<u32>,
    /// The source of this estimate.
    pub basis: Basis,
    /// The share of this work that is left for a build that begins with kept work; absent if none was recorded.
    pub kept_share: Option<f64>,
}

impl Work {
    /// A build with a known time on one core, and nothing else.
    pub fn serial(seconds: f64, basis: Basis) -> Work {
        Work { steps: vec![Step::Serial(seconds)], basis, ..Work::default() }
    }

    /// Its time on one core, in seconds.
    pub fn core_seconds(&self) -> f64 {
        self.steps.iter().map(|step| step.core_seconds()).sum()
    }

    /// The serial and the parallel part in core-seconds. All of it is serial if it may have only one core.
    pub fn parts_seconds(&self) -> (f64, f64) {
        self.steps.iter().fold((0.0, 0.0), |(serial, parallel), step| match step {
            Step::Parallel(seconds) if self.jobs_max != Some(1) => (serial, parallel + seconds),
            Step::Serial(seconds) | Step::Parallel(seconds) => (serial + seconds, parallel),
        })
    }

    /// Its time alone on this many cores of this speed, in seconds.
    pub fn seconds_at(&self, cores: u32, speed: f64) -> f64 {
        let (serial, parallel) = self.parts_seconds();
        (serial + parallel / f64::from(self.cores_of(cores))) / speed
    }

    /// The share of this work that is expected to be left with kept work.
    pub fn share_with_kept(&self) -> f64 {
        self.kept_share.unwrap_or(kept::SHARE)
    }

    /// How many of these cores it may have; at least 1.
    pub fn cores_of(&self, cores: u32) -> u32 {
        cores.min(self.jobs_max.unwrap_or(u32::MAX)).max(1)
    }

    /// This work, taking this many times as long.
    pub fn scaled(&self, factor: f64) -> Work {
        Work { steps: self.steps.iter().map(|step| step.scaled(factor)).collect(), ..self.clone() }
    }
}

/// The times of one stage of a build.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    /// Elapsed time.
    pub wall_seconds: f64,
    /// CPU time of all its processes.
    pub cpu_seconds: f64,
    /// The time for which it could have used more than one core; absent if unknown.
    pub parallel_seconds: Option<f64>,
}

/// The measurements of a build.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The number of jobs it was allowed.
    pub jobs: u32,
    /// Its stages, in order.
    pub stages: Vec<StageTime>,
    /// The peak memory of its processes.
    pub memory_peak_bytes: u64,
    /// The size of its work folder.
    pub files_bytes: u64,
    /// What it wrote to disk outside its work folder.
    pub disk_bytes: u64,
    /// Whether it ran out of memory. Of such a build, only the memory counts.
    pub is_out_of_memory: bool,
    /// Whether it began with kept work.
    pub has_kept: bool,
}

/// A stage is serial if its CPU time exceeds its wall time by less than this share, which pipes and the rounding of
/// clocks can cause.
const PARALLEL_EXCESS_MIN: f64 = 0.1;

/// The serial and the parallel part of a stage in core-seconds; see the module documentation.
fn split(stage: StageTime, jobs: u32) -> (f64, f64) {
    let StageTime { wall_seconds: wall, cpu_seconds: cpu, parallel_seconds } = stage;
    if let Some(parallel) = parallel_seconds {
        let serial = (wall - parallel).max(0.0);
        // Without CPU time to confirm it, the apparent demand for cores was waiting.
        return if cpu > serial { (serial, cpu - serial) } else { (wall, 0.0) };
    }
    if jobs < 2 || cpu <= wall * (1.0 + PARALLEL_EXCESS_MIN) {
        return (wall, 0.0);
    }
    let jobs = f64::from(jobs);
    let parallel = ((cpu - wall) / (1.0 - 1.0 / jobs)).min(cpu);
    ((wall - parallel / jobs).max(0.0), parallel)
}

/// The number of most recent builds that estimates use.
pub const MEASURED_MAX: usize = 5;

/// Estimates the next build of a package from earlier ones, the latest last; none without any. Each part of each
/// stage is the median of the last [`MEASURED_MAX`] builds, so a single outlier among three or more has no effect.
/// Builds whose number of stages differs from that of the latest one are ignored. If a build ran out of memory, the
/// next one gets [`MEMORY_MARGIN`] times the memory that it had reached. Builds that began with kept work only count for
/// [`Work::kept_share`], unless there are no others.
pub fn estimate(measured: &[Measured]) -> Option<Work> {
    let mut work = estimate_of(measured, false).or_else(|| {
        let work = estimate_of(measured, true)?;
        Some(Work { kept_share: Some(1.0), ..work })
    })?;
    if work.kept_share.is_none() {
        let with_kept = estimate_of(measured, true).map(|with| with.core_seconds() / work.core_seconds());
        work.kept_share = with_kept.filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0));
    }
    Some(work)
}

/// The estimate from the builds that began with kept work, or from the others.
fn estimate_of(measured: &[Measured], has_kept: bool) -> Option<Work> {
    let good = || measured.iter().rev().filter(|build| !build.is_out_of_memory && build.has_kept == has_kept);
    let latest = good().next()?;
    let alike: Vec<&Measured> =
        good().filter(|build| build.stages.len() == latest.stages.len()).take(MEASURED_MAX).collect();
    let mut steps: Vec<Step> = Vec::new();
    for stage in 0..latest.stages.len() {
        let parts: Vec<(f64, f64)> =
            alike.iter().map(|build| split(build.stages[stage], build.jobs)).collect();
        let serial = median(parts.iter().map(|part| part.0).collect());
        let parallel = median(parts.iter().map(|part| part.1).collect());
        match steps.last_mut() {
            Some(Step::Serial(seconds)) => *seconds += serial,
            _ if serial > 0.0 => steps.push(Step::Serial(serial)),
            _ => {}
        }
        if parallel > 0.0 {
            steps.push(Step::Parallel(parallel));
        }
    }
    let middle = |value: fn(&Measured) -> u64| {
        median(alike.iter().map(|build| value(build) as f64).collect()).round() as u64
    };
    Some(Work {
        steps,
        memory_bytes: middle(|build| build.memory_peak_bytes).max(memory_after_exhaustion_bytes(measured)),
        memory_per_core_bytes: 0,
        files_bytes: middle(|build| build.files_bytes),
        disk_bytes: middle(|build| build.disk_bytes),
        jobs_max: None,
        basis: Basis::Recorded,
        kept_share: None,
    })
}

/// The factor for builds that ran out of memory: they need more than they had reached, but how much more is unknown.
pub const MEMORY_MARGIN: f64 = 1.5;

/// The memory that a build needs if earlier ones ran out of memory; 0 if none did.
pub fn memory_after_exhaustion_bytes(measured: &[Measured]) -> u64 {
    let ended = measured.iter().filter(|build| build.is_out_of_memory);
    let most = ended.map(|build| build.memory_peak_bytes).max().unwrap_or(0);
    (most as f64 * MEMORY_MARGIN) as u64
}

/// The median, or 0 without values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn build(jobs: u32, stages: &[(f64, f64)]) -> Measured {
        let stages = stages.iter().map(|(wall_seconds, cpu_seconds)| StageTime {
            wall_seconds: *wall_seconds,
            cpu_seconds: *cpu_seconds,
            parallel_seconds: None,
        });
        Measured { jobs, stages: stages.collect(), ..Measured::default() }
    }

    #[test]
    fn stages_split_into_serial_and_parallel_parts() {
        // 10 s serial and 80 core-seconds parallel on 4 jobs.
        let work = estimate(&[build(4, &[(5.0, 4.0), (30.0, 90.0), (2.0, 2.1)])]).unwrap();
        assert_eq!(work.steps, [Step::Serial(15.0), Step::Parallel(80.0), Step::Serial(2.0)]);
        assert_eq!(work.core_seconds(), 97.0);
        assert_eq!(work.seconds_at(8, 1.0), 27.0);
        assert_eq!(work.seconds_at(8, 2.0), 13.5);
        let two = Work { jobs_max: Some(2), ..work.clone() };
        assert_eq!((two.seconds_at(8, 1.0), two.seconds_at(1, 1.0)), (57.0, 97.0));
        let one = Work { jobs_max: Some(1), ..work };
        assert_eq!((one.seconds_at(8, 1.0), one.parts_seconds()), (97.0, (97.0, 0.0)));
        let one_job = estimate(&[build(1, &[(30.0, 90.0)])]).unwrap();
        assert_eq!(one_job.steps, [Step::Serial(30.0)]);
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn the_parallel_time_splits_a_stage_whatever_its_cores() {
        let stage = |wall_seconds, cpu_seconds, parallel| StageTime {
            wall_seconds,
            cpu_seconds,
            parallel_seconds: Some(parallel),
        };
        let work =
            |stage| estimate(&[Measured { jobs: 8, stages: vec![stage], ..Measured::default() }]).unwrap();
        let expected = [Step::Serial(10.0), Step::Parallel(80.0)];
        assert_eq!(work(stage(20.0, 90.0, 10.0)).steps, expected, "8 cores");
        assert_eq!(work(stage(90.0, 90.0, 80.0)).steps, expected, "one core");
        assert_eq!(work(stage(90.0, 8.0, 80.0)).steps, [Step::Serial(90.0)], "it waited");
    }

    #[test]
    fn a_build_that_ran_out_of_memory_does_not_count_for_time() {
        let usual = Measured { memory_peak_bytes: 100, ..build(4, &[(5.0, 4.0)]) };
        let ended = Measured { memory_peak_bytes: 1000, is_out_of_memory: true, ..build(4, &[(900.0, 4.0)]) };
        let work = estimate(&[usual.clone(), ended.clone()]).unwrap();
        assert_eq!((work.core_seconds(), work.memory_bytes), (5.0, 1500));
        assert_eq!(estimate(std::slice::from_ref(&ended)), None);
        assert_eq!(memory_after_exhaustion_bytes(&[ended, usual]), 1500);
    }

    #[test]
    fn builds_with_kept_work_count_for_its_share_alone() {
        let whole = build(1, &[(100.0, 100.0)]);
        let with = |seconds| Measured { has_kept: true, ..build(1, &[(seconds, seconds)]) };
        let estimated = |builds: &[Measured]| {
            let work = estimate(builds).unwrap();
            (work.core_seconds(), work.kept_share)
        };
        assert_eq!(estimated(std::slice::from_ref(&whole)), (100.0, None));
        assert_eq!(estimated(&[whole.clone(), with(10.0), with(30.0), with(20.0)]), (100.0, Some(0.2)));
        assert_eq!(estimated(&[with(900.0), whole]), (100.0, Some(1.0)), "no more than without");
        assert_eq!(estimated(&[with(10.0)]), (10.0, Some(1.0)), "there is nothing to compare with");
    }

    #[test]
    fn one_outlier_has_no_effect() {
        let usual = build(4, &[(5.0, 4.0), (30.0, 90.0)]);
        let odd = build(4, &[(5000.0, 4.0), (9000.0, 9100.0)]);
        let expected = estimate(std::slice::from_ref(&usual));
        assert_eq!(estimate(&[usual.clone(), odd.clone(), usual.clone()]), expected);
        assert_eq!(estimate(&[usual.clone(), usual.clone(), odd]), expected);
        // A different recipe has different stages.
        assert_eq!(estimate(&[build(4, &[(1.0, 1.0)]), usual]), expected);
    }

    proptest! {
        /// With the number of jobs of the measurement, the model gives the measured time again.
        #[test]
        fn the_model_returns_what_was_measured(
            serial in 0.0f64..1000.0, parallel in 0.0f64..100_000.0, jobs in 2u32..64,
        ) {
            let (wall, cpu) = (serial + parallel / f64::from(jobs), serial + parallel);
            let work = estimate(&[build(jobs, &[(wall, cpu)])]).unwrap();
            prop_assert!((work.seconds_at(jobs, 1.0) - wall).abs() <= 1e-6 * wall.max(1.0));
        }
    }
}
