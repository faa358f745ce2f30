//! Measured figures, and their presentation.

use crate::words;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Median, minimum and maximum of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle value, or the mean of the two middle ones.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Summary {
    /// The summary of these values. Absent if there are none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Summary { median, min, max })
    }
}

/// Divides each value of `first` by the value at the same position in `second`, if both were measured.
pub fn ratios(first: &[f64], second: &[f64]) -> Vec<f64> {
    first.iter().zip(second).filter(|(a, b)| a.is_finite() && **b > 0.0).map(|(a, b)| a / b).collect()
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Wall or CPU time.
    Seconds,
    /// Size of memory or files.
    Bytes,
    /// Quotient of two values of a pair.
    Ratio,
    /// A fraction from 0 to 1, shown as a percentage.
    Percent,
    /// How many in a second.
    PerSecond,
}

impl Unit {
    /// Formats a value for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Seconds if value.abs() < 1e-6 => format!("{:.0} ns", value * 1e9),
            Unit::Seconds if value.abs() < 1e-3 => format!("{:.1} µs", value * 1e6),
            Unit::Seconds if value.abs() < 1.0 => format!("{:.1} ms", value * 1e3),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Bytes => words::size(value as u64),
            Unit::Ratio => format!("{value:.3}"),
            Unit::Percent => format!("{:.2} %", value * 100.0),
            Unit::PerSecond => format!("{value:.0}/s"),
        }
    }
}

/// A quantity that was measured in each pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in JSON, including the unit.
    pub key: String,
    /// Its name in the table.
    pub label: String,
    /// The unit of the values.
    pub unit: Unit,
    /// One value per pair, in order.
    pub values: Vec<f64>,
}

impl Series {
    /// A series with its name in JSON and its name in the table.
    pub fn new(key: impl Into<String>, label: impl Into<String>, unit: Unit, values: Vec<f64>) -> Series {
        Series { key: key.into(), label: label.into(), unit, values }
    }

    /// The median. Infinite if there are no values, so that it misses any target.
    pub fn median(&self) -> f64 {
        Summary::of(&self.values).map_or(f64::INFINITY, |summary| summary.median)
    }
}

/// The result of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The benchmark's name in JSON.
    pub name: &'static str,
    /// The figures, in table order.
    pub series: Vec<Series>,
    /// Additional facts, for JSON.
    pub facts: Map<String, Value>,
    /// Additional notes for people, one line each.
    pub notes: Vec<String>,
    /// The target, in words.
    pub target: String,
    /// Whether the target was met. Absent if that could not be determined.
    pub is_met: Option<bool>,
}

impl Report {
    /// Includes one more target in the verdict, and adds a note if it was missed.
    pub fn judge(&mut self, is_met: bool, what: &str) {
        self.is_met = self.is_met.map(|before| before && is_met);
        if !is_met {
            self.notes.push(format!("missed: {what}"));
        }
    }

    /// Adds to the text of the target.
    pub fn aim(&mut self, what: &str) {
        self.target = format!("{}; {what}", self.target);
    }

    /// The report as JSON.
    pub fn as_json(&self, machine: &Machine, pairs: u32) -> Value {
        let figures: Map<String, Value> = self
            .series
            .iter()
            .map(|series| {
                let summary = Summary::of(&series.values);
                let value = json!({
                    "median": summary.map(|s| s.median),
                    "min": summary.map(|s| s.min),
                    "max": summary.map(|s| s.max),
                    "values": series.values,
                });
                (series.key.clone(), value)
            })
            .collect();
        json!({
            "bench": self.name,
            "version": env!("CARGO_PKG_VERSION"),
            "machine": machine.as_json(),
            "pairs": pairs,
            "figures": figures,
            "facts": self.facts,
            "notes": self.notes,
            "target": self.target,
            "is_met": self.is_met,
        })
    }

    /// The report as a table.
    pub fn as_text(&self, machine: &Machine, pairs: u32) -> String {
        let mut text =
            format!("{} on {}, {}\n", self.name, machine.as_text(), words::count(pairs.into(), "pair"));
        let header = ["", "median", "min", "max"].map(str::to_owned);
        let rows = self.series.iter().filter_map(|series| {
            let summary = Summary::of(&series.values)?;
            let show = |value| series.unit.show(value);
            Some([series.label.clone(), show(summary.median), show(summary.min), show(summary.max)])
        });
        let rows: Vec<[String; 4]> = std::iter::once(header).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3)];
        for row in &rows {
            let [label, median, min, max] = row;
            let [w0, w1, w2, w3] = widths;
            let _ = writeln!(text, "  {label:<w0$}  {median:>w1$}  {min:>w2$}  {max:>w3$}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        let verdict = match self.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "unknown",
        };
        let _ = writeln!(text, "target: {}: {verdict}", self.target);
        text
    }
}

/// The machine on which the figures were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    /// Load averages over 1, 5 and 15 minutes before the first measurement.
    load_before: Vec<f64>,
}

impl Machine {
    /// Reads the facts about this machine, including its current load.
    pub fn now() -> Machine {
        let read = |path: &str| fs_err::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo");
        let processor = processor
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split_once(':'))
            .map_or("unknown processor", |(_, name)| name.trim());
        let load = read("/proc/loadavg");
        Machine {
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            processor: processor.to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: load.split_whitespace().take(3).filter_map(|word| word.parse().ok()).collect(),
        }
    }

    fn as_json(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "kernel": self.kernel,
            "load_before": self.load_before,
        })
    }

    /// Describes the machine on one line.
    pub fn as_text(&self) -> String {
        let cores = words::count(self.cores as u64, "core");
        let load: Vec<String> = self.load_before.iter().map(|load| format!("{load:.2}")).collect();
        format!("{cores} ({}), Linux {}, load before {}", self.processor, self.kernel, load.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_median_min_and_max() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[2.0]), Some(Summary { median: 2.0, min: 2.0, max: 2.0 }));
        assert_eq!(Summary::of(&[9.0, 1.0, 4.0]), Some(Summary { median: 4.0, min: 1.0, max: 9.0 }));
        assert_eq!(Summary::of(&[8.0, -1.0, 4.0, 5.0]), Some(Summary { median: 4.5, min: -1.0, max: 8.0 }));
    }

    #[test]
    fn ratios_are_pair_by_pair_and_never_infinite() {
        assert_eq!(ratios(&[1.0, 9.0, 5.0], &[2.0, 3.0, 0.0]), [0.5, 3.0]);
        // The median of ratios is not the ratio of medians: a pair measured under load must stay together.
        let (first, second) = ([1.0, 10.0, 3.0], [1.0, 20.0, 3.0]);
        assert_eq!(Summary::of(&ratios(&first, &second)).map(|s| s.median), Some(1.0));
    }

    #[test]
    fn a_report_has_the_same_figures_as_table_and_json() {
        let machine =
            Machine { cores: 2, processor: "P".into(), kernel: "6".into(), load_before: vec![0.5, 1.0] };
        let report = Report {
            name: "publish",
            series: vec![
                Series::new("a_cpu_seconds", "a", Unit::Seconds, vec![0.25, 2.0, 0.5]),
                Series::new("a_bytes", "memory", Unit::Bytes, vec![2048.0]),
                Series::new("ratio", "the ratio", Unit::Ratio, vec![]),
            ],
            facts: Map::new(),
            notes: vec!["a note".into()],
            target: "at most 1 s".into(),
            is_met: Some(true),
        };
        let text = report.as_text(&machine, 3);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "publish on 2 cores (P), Linux 6, load before 0.50 1.00, 3 pairs");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[2]), "a 500.0 ms 250.0 ms 2.00 s");
        assert_eq!(words(lines[3]), "memory 2.0 KiB 2.0 KiB 2.0 KiB");
        assert_eq!(lines[4..], ["a note", "target: at most 1 s: met"]);
        let value = report.as_json(&machine, 3);
        assert_eq!(value["figures"]["a_cpu_seconds"]["median"], 0.5);
        assert_eq!(value["figures"]["ratio"]["median"], Value::Null);
        assert_eq!(value["machine"]["cores"], 2);
    }
}
