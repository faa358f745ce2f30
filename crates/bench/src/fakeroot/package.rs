//! A real package: configured, compiled, installed and archived, compared with the same without a fakeroot.
//!
//! The figure is the CPU time of all processes that were waited for. This excludes daemons of other fakeroots,
//! which is to their advantage.

use super::super::child;
use super::super::figures::{Report, Series, Unit, ratios};
use super::super::scratch::Scratch;
use super::contender::{self, Contender, OURS, PLAIN, key};
use super::sides;
use crate::Trial;
use crate::error::{Kind, Result};
use std::path::Path;
use std::process::Command;

/// The steps, each with its maximum cost relative to plain.
const STEPS: [(&str, &str, f64); 2] = [
    ("configure", "./configure", 1.03),
    ("build", "make && make install DESTDIR=$PWD/made && tar cf made.tar made", 1.01),
];

/// The contenders compared with plain, and their numbers of turns per pair. Other fakeroots have no target.
const TURNS: [(&str, usize); 2] = [(OURS, 4), ("fakeroot-sysv", 1)];

/// Adds the results to a report. `source` is a folder with a `configure` script; it is copied.
pub fn measure(
    trial: &Trial<'_>,
    source: &Path,
    scratch: &Scratch,
    contenders: &[Contender],
    report: &mut Report,
) -> Result<()> {
    let pairs = trial.pairs;
    let find = |name: &str| contenders.iter().find(|contender| contender.name == name);
    let Some(plain) = find(PLAIN) else { return Ok(()) };
    for (name, turns) in TURNS {
        let Some(contender) = find(name) else { continue };
        let mut values = vec![[Vec::new(), Vec::new()]; STEPS.len()];
        for pair in 1..=pairs {
            let [without, with] = match sides::measure(turns, [plain, contender], scratch, &Package(source)) {
                Err(error) if contender::is_other(name) && error.kind != Kind::Interrupted => {
                    report.notes.push(format!("{name} failed on the package: {error}"));
                    continue;
                }
                measured => measured?,
            };
            for (values, seconds) in values.iter_mut().zip(without.into_iter().zip(with)) {
                values[0].push(seconds.0);
                values[1].push(seconds.1);
            }
            trial.say(format_args!("package with {name}: pair {pair} of {pairs} measured"));
        }
        for ((step, command, ratio_max), [without, with]) in STEPS.iter().zip(values) {
            let whose = if name == OURS { String::new() } else { format!("_{}", key(name)) };
            let ratio = Series::new(
                format!("{step}{whose}_to_plain"),
                format!("{step}, CPU: {} / plain", if name == OURS { "ours" } else { name }),
                Unit::Ratio,
                ratios(&with, &without),
            );
            let mut push = |contender: &Contender, values| {
                let label = format!("{command}, CPU, {}", contender.name);
                let key = format!("{step}_{}_cpu_seconds", key(contender.name));
                report.series.push(Series::new(key, label, Unit::Seconds, values));
            };
            if name == OURS {
                push(plain, without);
            }
            push(contender, with);
            if name == OURS {
                report.judge(ratio.median() <= *ratio_max, &format!("{step}: at most {ratio_max} x plain"));
            }
            report.series.push(ratio);
        }
    }
    report.aim(&STEPS.map(|(step, _, max)| format!("{step} at most {max} x plain")).join(", "));
    Ok(())
}

/// The steps on copies of a source.
struct Package<'a>(&'a Path);

impl sides::Steps<{ STEPS.len() }> for Package<'_> {
    fn prepare(&self, folder: &Path) -> Result<()> {
        let mut copying = Command::new("cp");
        copying.arg("-a").arg(self.0).arg(folder);
        child::measure(copying, None, &[0]).map(|_| ())
    }

    /// CPU seconds of each step.
    fn run(&self, contender: &Contender, folder: &Path, core: usize) -> Result<[f64; STEPS.len()]> {
        let mut seconds = [0.0; STEPS.len()];
        for ((_, command, _), seconds) in STEPS.iter().zip(&mut seconds) {
            let mut command = contender.bounded(&["sh", "-c", command]);
            command.current_dir(folder);
            sides::pin_command(&mut command, core);
            *seconds = child::measure(command, None, &[0])?.cpu_seconds;
        }
        Ok(seconds)
    }
}
