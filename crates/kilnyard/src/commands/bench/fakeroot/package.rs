//! A real package: configured, compiled, installed and packed, beside the same without a fakeroot.
//!
//! CPU time of all processes that were waited for counts; daemons of others are not waited for, which is in their favour.

use super::super::child;
use super::super::figures::{Report, Series, Unit, ratios};
use super::super::scratch::Scratch;
use super::contender::{Contender, OURS, PLAIN};
use super::files::judge;
use super::sides;
use crate::error::{Context, Kind, Result};
use std::path::Path;
use std::process::Command;

/// The steps, and what each may cost, to plain.
const STEPS: [(&str, &str, f64); 2] = [
    ("configure", "./configure", 1.03),
    ("build", "make && make install DESTDIR=$PWD/made && tar cf made.tar made", 1.01),
];

/// Whom it is measured with.
const CONTENDERS: [&str; 3] = [PLAIN, OURS, "fakeroot-sysv"];

/// Adds what is found to a report, for a source folder with a `configure`, which is copied.
pub fn measure(
    pairs: u32,
    source: &Path,
    scratch: &Scratch,
    contenders: &[Contender],
    report: &mut Report,
) -> Result<()> {
    let contenders: Vec<&Contender> =
        contenders.iter().filter(|contender| CONTENDERS.contains(&contender.name)).collect();
    let mut values = vec![vec![Vec::new(); contenders.len()]; STEPS.len()];
    for _ in 0..pairs {
        let measured = sides::measure(&contenders, |contender, place, core| {
            steps(source, &scratch.path(&format!("source-{place}")), contender, core)
        })?;
        for (number, seconds) in measured.into_iter().enumerate() {
            for (values, seconds) in values.iter_mut().zip(seconds) {
                values[number].push(seconds);
            }
        }
    }
    let place = |name: &str| contenders.iter().position(|contender| contender.name == name);
    for ((name, command, ratio_max), values) in STEPS.iter().zip(&values) {
        for (contender, values) in contenders.iter().zip(values) {
            let key = format!("{name}_{}_cpu_seconds", contender.name.replace('-', "_"));
            let label = format!("{command}, CPU, {}", contender.name);
            report.series.push(Series::new(key, label, Unit::Seconds, values.clone()));
        }
        if let (Some(ours), Some(plain)) = (place(OURS), place(PLAIN)) {
            let label = format!("{name}, CPU: ours to plain");
            let ratio = Series::new(
                format!("{name}_to_plain"),
                label,
                Unit::Ratio,
                ratios(&values[ours], &values[plain]),
            );
            judge(report, ratio.median() <= *ratio_max, &format!("{name}: at most {ratio_max} x plain"));
            report.series.push(ratio);
        }
    }
    Ok(())
}

/// Configures and builds a copy of the source on one core; CPU seconds of each step.
fn steps(source: &Path, copy: &Path, contender: &Contender, core: usize) -> Result<[f64; STEPS.len()]> {
    if copy.exists() {
        fs_err::remove_dir_all(copy).context(Kind::Machine, "remove the last copy of the source")?;
    }
    let mut copying = Command::new("cp");
    copying.arg("-a").arg(source).arg(copy);
    child::measure(copying, None, &[0])?;
    let mut seconds = [0.0; STEPS.len()];
    for ((_, command, _), seconds) in STEPS.iter().zip(&mut seconds) {
        let mut command = contender.command(&["sh", "-c", command]);
        command.current_dir(copy);
        sides::stay_on(&mut command, core);
        *seconds = child::measure(command, None, &[0])?.cpu_seconds;
    }
    Ok(seconds)
}
