//! Reads build times as bob 1.0 writes them: a CSV file with a row for each build, with the wall time of each stage
//! and, in a column `cpu:STAGE`, its CPU time, in milliseconds; `-` means absent.

use super::graph::base;
use crate::error::{Error, Result};
use kilnyard_model::graph::Graph;
use kilnyard_schedule::work::StageTime;
use kilnyard_schedule::{Basis, Measured, Work, estimate};
use std::collections::HashMap;
use std::path::Path;

/// The longest plausible stage, in seconds; a longer one results from a broken clock.
const STAGE_SECONDS_MAX: f64 = 30.0 * 86_400.0;

/// Such a history has no memory sizes: a build is assumed to need this much, plus [`MEMORY_PER_CORE_BYTES`] for each
/// further core, which is what compiling a large C++ source takes.
const MEMORY_BYTES: u64 = 512 << 20;
/// See [`MEMORY_BYTES`].
const MEMORY_PER_CORE_BYTES: u64 = 512 << 20;

/// The recorded builds of each package, the latest last.
pub struct History {
    builds: HashMap<String, Vec<Row>>,
}

struct Row {
    timestamp: f64,
    is_success: bool,
    measured: Measured,
}

/// The positions of the columns that are read.
struct Columns {
    timestamp: usize,
    name: usize,
    outcome: usize,
    jobs: usize,
    files: usize,
    /// Wall and CPU time of each stage.
    stages: Vec<(usize, usize)>,
    count: usize,
}

impl Columns {
    fn of(header: &str, path: &Path) -> Result<Columns> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let place = |name: &str| names.iter().position(|other| *other == name);
        let required = |name: &str| {
            place(name).ok_or_else(|| {
                Error::usage(format!("{}, line 1: there is no column {name}", path.display()))
                    .hint("a history as bob 1.0 writes it")
            })
        };
        let cpu = names.iter().enumerate().filter_map(|(at, name)| Some((name.strip_prefix("cpu:")?, at)));
        let mut stages = Vec::new();
        for (stage, cpu) in cpu {
            stages.push((required(stage)?, cpu));
        }
        if stages.is_empty() {
            required("cpu:build")?;
        }
        Ok(Columns {
            timestamp: required("timestamp")?,
            name: required("pkgname")?,
            outcome: required("outcome")?,
            jobs: required("make_jobs")?,
            files: required("disk_usage")?,
            stages,
            count: names.len(),
        })
    }
}

/// Reads a history.
pub fn parse(text: &str, path: &Path) -> Result<History> {
    let mut lines = text.lines().enumerate();
    let columns = Columns::of(lines.next().map_or("", |(_, line)| line), path)?;
    let mut builds: HashMap<String, Vec<Row>> = HashMap::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let wrong = |what: String| Error::usage(format!("{}, line {}: {what}", path.display(), number + 1));
        if fields.len() != columns.count {
            let (found, count) = (fields.len(), columns.count);
            return Err(wrong(format!("{found} fields, but the first line names {count}")));
        }
        let name = fields[columns.name];
        let number_in = |column: usize| match fields[column] {
            "-" | "" => Ok(0.0),
            text => {
                let value: Option<f64> = text.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
                value.ok_or_else(|| wrong(format!("{name}: {text:?} is not a number from 0 up")))
            }
        };
        let seconds_in = |column: usize| {
            let seconds = number_in(column)? / 1000.0;
            match seconds <= STAGE_SECONDS_MAX {
                true => Ok(seconds),
                false => Err(wrong(format!("{name}: a stage of {seconds} seconds is implausible"))),
            }
        };
        let mut measured = Measured {
            jobs: (number_in(columns.jobs)? as u32).max(1),
            stages: Vec::with_capacity(columns.stages.len()),
            memory_peak_bytes: MEMORY_BYTES,
            files_bytes: number_in(columns.files)? as u64,
            disk_bytes: 0,
            is_out_of_memory: false,
            has_kept: false,
        };
        for (wall, cpu) in &columns.stages {
            measured.stages.push(StageTime {
                wall_seconds: seconds_in(*wall)?,
                cpu_seconds: seconds_in(*cpu)?,
                parallel_seconds: None,
            });
        }
        builds.entry(name.to_owned()).or_default().push(Row {
            timestamp: number_in(columns.timestamp)?,
            is_success: fields[columns.outcome] == "success",
            measured,
        });
    }
    for rows in builds.values_mut() {
        rows.sort_by(|a, b| a.timestamp.total_cmp(&b.timestamp));
        // Times of failed builds are used only where there are no better ones.
        if rows.iter().any(|row| row.is_success) {
            rows.retain(|row| row.is_success);
        }
    }
    Ok(History { builds })
}

impl History {
    /// The work of each package of a graph: by builds of this version, or else of another one.
    pub fn works(&self, graph: &Graph, unknown_seconds: f64) -> Vec<Work> {
        let mut by_base: HashMap<&str, &str> = HashMap::new();
        for name in self.builds.keys() {
            let known = by_base.entry(base(name)).or_insert(name);
            *known = (*known).max(name);
        }
        let work = |name: &str| {
            let rows = self.builds.get(name).or_else(|| self.builds.get(*by_base.get(base(name))?))?;
            estimate(&rows.iter().map(|row| row.measured.clone()).collect::<Vec<_>>())
        };
        graph
            .packages()
            .map(|package| {
                let work = work(graph.name(package)).unwrap_or_else(|| Work {
                    memory_bytes: MEMORY_BYTES,
                    ..Work::serial(unknown_seconds, Basis::Prior)
                });
                Work { memory_per_core_bytes: MEMORY_PER_CORE_BYTES, ..work }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_schedule::Step;

    const HEADER: &str = "timestamp,pkgpath,pkgname,outcome,stage,make_jobs,duration,disk_usage,configure,build,cpu:configure,cpu:build";

    fn works(rows: &str) -> Vec<Work> {
        let mut graph = Graph::new();
        graph.add("a-2");
        graph.add("b-1");
        parse(&format!("{HEADER}\n{rows}"), Path::new("h")).unwrap().works(&graph, 9.0)
    }

    fn message(text: &str) -> String {
        parse(text, Path::new("h")).err().unwrap().message
    }

    #[test]
    fn rows_become_work() {
        let works = works(
            "1,x/a,a-2,success,-,4,40000,700,10000,30000,9000,90000\n\
             2,x/a,a-2,failed,build,4,1,1,1,1,1,1\n1,x/b,b-7,success,-,-,40000,7,-,2000,-,2000\n",
        );
        assert_eq!(works[0].steps, [Step::Serial(20.0), Step::Parallel(80.0)]);
        assert_eq!((works[0].files_bytes, works[0].basis), (700, Basis::Recorded));
        // Another version is better than nothing.
        assert_eq!(works[1].steps, [Step::Serial(2.0)]);
        let unknown = self::works("");
        assert_eq!((unknown[0].core_seconds(), unknown[0].basis), (9.0, Basis::Prior));
    }

    #[test]
    fn bad_rows_are_named_by_their_line() {
        let row = |text: &str| message(&format!("{HEADER}\n{text}\n"));
        assert_eq!(message("pkgname,build\n"), "h, line 1: there is no column cpu:build");
        assert_eq!(row("1,x/a,a-2"), "h, line 2: 3 fields, but the first line names 12");
        assert_eq!(
            row("1,x/a,a-2,success,-,4,40000,700,-5,30000,9000,90000"),
            "h, line 2: a-2: \"-5\" is not a number from 0 up"
        );
        assert!(row("1,x/a,a-2,success,-,4,4,700,5,9e15,9,9").contains("a-2: a stage of"));
        assert!(row("1,x/a,a-2,success,-,4,4,700,5,NaN,9,9").contains("\"NaN\" is not a number"));
    }
}
