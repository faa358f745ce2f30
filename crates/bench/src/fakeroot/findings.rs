//! Collects the figures of calls and starts by contender, and judges them.

use super::super::figures::{Report, Series, Unit, ratios};
use super::contender::{self, Contender, OURS, PLAIN, key};
use crate::error::Result;
use serde_json::{Map, json};

/// Maximum cost of a call, relative to plain.
const CALL_RATIO_MAX: f64 = 1.04;
/// Maximum additional time of an exec, compared with plain.
const EXEC_SECONDS_MAX: f64 = 30e-6;
/// Maximum additional time of a session's start, compared with none.
const START_SECONDS_MAX: f64 = 3e-3;

/// Debian's fakeroot, in which every call is a message to a daemon.
const WITH_DAEMON: &str = "fakeroot-sysv";
/// Minimum ratio of its time per call to ours on an idle machine.
const IDLE_RATIO_MIN: f64 = 10.0;
/// Minimum ratio with at least this many parallel processes.
const BUSY_RATIO_MIN: f64 = 50.0;
const BUSY_PROCESSES_MIN: u32 = 16;

/// How Kilnyard's figure is judged.
#[derive(Clone, Copy, PartialEq)]
pub enum Judged {
    /// By its ratios to plain and to Debian's fakeroot, which both have a target.
    Call,
    /// By its ratio to plain.
    CallToPlain,
    /// By how many times faster it is than Debian's fakeroot.
    Faster(f64),
    /// By its additional time over plain, with an optional maximum in seconds.
    More(Option<f64>),
}

impl Judged {
    pub const EXEC: Judged = Judged::More(Some(EXEC_SECONDS_MAX));
    pub const START: Judged = Judged::More(Some(START_SECONDS_MAX));

    /// Calls by this many parallel processes, compared with Debian's fakeroot.
    pub fn faster(processes: u32) -> Judged {
        Judged::Faster(if processes < BUSY_PROCESSES_MIN { IDLE_RATIO_MIN } else { BUSY_RATIO_MIN })
    }
}

/// A figure of one contender in seconds, with one value per pair.
struct Row {
    name: String,
    label: String,
    judged: Judged,
    contender: &'static str,
    values: Vec<f64>,
}

/// All figures so far.
#[derive(Default)]
pub struct Findings {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Findings {
    /// Adds the value of one more pair. If another fakeroot failed, adds a note, and the benchmark continues.
    pub fn take(
        &mut self,
        name: &str,
        label: &str,
        judged: Judged,
        contender: &Contender,
        seconds: Result<f64>,
    ) -> Result<()> {
        let seconds = match seconds {
            Err(error) if contender::is_other(contender.name) => {
                self.notes.push(format!("{label}: {error}"));
                // Keeps the position of the pair, but is left out of all figures.
                f64::NAN
            }
            seconds => seconds?,
        };
        match self.rows.iter_mut().find(|row| row.name == name && row.contender == contender.name) {
            Some(row) => row.values.push(seconds),
            None => self.rows.push(Row {
                name: name.to_owned(),
                label: label.to_owned(),
                judged,
                contender: contender.name,
                values: vec![seconds],
            }),
        }
        Ok(())
    }

    fn values(&self, name: &str, contender: &str) -> &[f64] {
        let row = self.rows.iter().find(|row| row.name == name && row.contender == contender);
        row.map_or(&[], |row| &row.values)
    }

    pub fn report(&self) -> Report {
        let mut report = self.without_figures();
        for row in &self.rows {
            let key = format!("{}_{}_seconds", row.name, key(row.contender));
            let label = format!("{}, {}", row.label, row.contender);
            let values = row.values.iter().copied().filter(|seconds| seconds.is_finite()).collect();
            report.series.push(Series::new(key, label, Unit::Seconds, values));
        }
        for Row { name, label, judged, values: plain, .. } in
            self.rows.iter().filter(|row| row.contender == PLAIN)
        {
            let ours = self.values(name, OURS);
            match judged {
                Judged::Call | Judged::CallToPlain => {
                    let label = format!("{label}: ours / plain");
                    let ratio =
                        Series::new(format!("{name}_to_plain"), label, Unit::Ratio, ratios(ours, plain));
                    report.judge(ratio.median() <= CALL_RATIO_MAX, &ratio.label);
                    report.series.push(ratio);
                }
                Judged::More(seconds_max) => {
                    let more = ours.iter().zip(plain).map(|(ours, plain)| ours - plain).collect();
                    let label = format!("{label}: ours - plain");
                    let more = Series::new(format!("{name}_more_seconds"), label, Unit::Seconds, more);
                    report.judge(seconds_max.is_none_or(|max| more.median() <= max), &more.label);
                    report.series.push(more);
                }
                Judged::Faster(_) => {}
            }
            for row in self.rows.iter().filter(|row| row.name == *name && contender::is_other(row.contender))
            {
                let ratio = Series::new(
                    format!("{name}_{}_to_ours", key(row.contender)),
                    format!("{label}: {} / ours", row.contender),
                    Unit::Ratio,
                    ratios(&row.values, ours),
                );
                let ratio_min = match judged {
                    Judged::Call => Some(IDLE_RATIO_MIN),
                    Judged::Faster(ratio_min) => Some(*ratio_min),
                    _ => None,
                };
                let is_judged = row.contender == WITH_DAEMON;
                report.judge(!is_judged || ratio_min.is_none_or(|min| ratio.median() >= min), &ratio.label);
                report.series.push(ratio);
            }
        }
        report
    }

    /// A report with facts, notes and targets, but without figures.
    fn without_figures(&self) -> Report {
        let mut facts = Map::new();
        facts.insert("contenders".to_owned(), json!(self.others()));
        Report {
            name: "fakeroot",
            series: Vec::new(),
            facts,
            notes: self.notes.clone(),
            target: format!(
                "calls at most {CALL_RATIO_MAX} x plain with 1 to 64 processes{}, an exec at most {:.0} µs and a start at \
                 most {:.0} ms more than plain",
                if self.others().contains(&WITH_DAEMON) {
                    format!(
                        " and {IDLE_RATIO_MIN} times faster than {WITH_DAEMON}, {BUSY_RATIO_MIN} times with \
                         {BUSY_PROCESSES_MIN} processes"
                    )
                } else {
                    String::new()
                },
                EXEC_SECONDS_MAX * 1e6,
                START_SECONDS_MAX * 1e3,
            ),
            is_met: Some(true),
        }
    }

    /// The other fakeroots in the figures.
    fn others(&self) -> Vec<&'static str> {
        let mut others: Vec<&'static str> = self.rows.iter().map(|row| row.contender).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|name| contender::is_other(name));
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(judged: Judged, ours: [f64; 3]) -> Report {
        let mut findings = Findings::default();
        for (pair, ours) in ours.into_iter().enumerate() {
            for (name, seconds) in [(PLAIN, 1e-3), (OURS, ours), (WITH_DAEMON, 1.0 + pair as f64)] {
                let contender = Contender { name, words: Vec::new() };
                findings.take("call", "a call", judged, &contender, Ok(seconds)).unwrap();
            }
        }
        findings.report()
    }

    fn median(report: &Report, key: &str) -> Option<f64> {
        Some(report.series.iter().find(|series| series.key == key)?.median())
    }

    #[test]
    fn the_median_of_the_pairs_is_judged() {
        let report = found(Judged::Call, [1.03e-3, 2e-3, 1.02e-3]);
        assert_eq!((report.is_met, report.notes.len()), (Some(true), 0), "{report:?}");
        assert!(
            median(&report, "call_to_plain").is_some_and(|ratio| (ratio - 1.03).abs() < 1e-9),
            "{report:?}"
        );
        assert!(
            median(&report, "call_fakeroot_sysv_to_ours").is_some_and(|ratio| ratio > 900.0),
            "{report:?}"
        );
        let report = found(Judged::Call, [1.03e-3, 1.05e-3, 1.06e-3]);
        assert_eq!(report.is_met, Some(false));
        assert_eq!(report.notes, ["missed: a call: ours / plain"]);
    }

    #[test]
    fn starts_are_judged_by_additional_time_and_some_figures_not_at_all() {
        let slow = [1.031e-3; 3];
        assert_eq!(found(Judged::EXEC, slow).is_met, Some(false));
        assert_eq!(found(Judged::START, slow).is_met, Some(true));
        let report = found(Judged::More(None), slow);
        assert_eq!(report.is_met, Some(true));
        assert!(median(&report, "call_more_seconds").is_some_and(|more| (more - 31e-6).abs() < 1e-9));
    }

    #[test]
    fn the_ratio_to_debians_fakeroot_is_judged() {
        // Debian's takes 1, 2 and 3 seconds.
        let report = found(Judged::faster(16), [0.1, 0.039, 0.1]);
        assert_eq!((report.is_met, median(&report, "call_to_plain")), (Some(false), None));
        assert_eq!(report.notes, ["missed: a call: fakeroot-sysv / ours"]);
        assert_eq!(found(Judged::faster(16), [0.001, 0.039, 0.1]).is_met, Some(true));
        assert_eq!(found(Judged::faster(1), [0.1, 0.039, 0.1]).is_met, Some(true));
    }

    #[test]
    fn a_failing_other_fakeroot_is_noted_and_left_out() {
        let mut findings = Findings::default();
        let mut take = |name, seconds: Option<f64>| {
            let seconds =
                seconds.ok_or_else(|| contender::failure(name, "exit status: 1", b"a\nno semaphores\n"));
            findings.take("call", "a call", Judged::Call, &Contender { name, words: Vec::new() }, seconds)
        };
        for theirs in [None, Some(8.0)] {
            take(PLAIN, Some(1.0)).unwrap();
            take(OURS, Some(if theirs.is_none() { 1.0 } else { 2.0 })).unwrap();
            take("fakeroot-tcp", theirs).unwrap();
        }
        assert!(take(OURS, None).is_err());
        let report = findings.report();
        assert_eq!(report.notes[0], "a call: error: fakeroot-tcp failed: exit status: 1: no semaphores");
        let values = |key| &report.series.iter().find(|series| series.key == key).unwrap().values;
        assert_eq!(values("call_fakeroot_tcp_seconds"), &[8.0]);
        assert_eq!(values("call_fakeroot_tcp_to_ours"), &[4.0]);
    }
}
