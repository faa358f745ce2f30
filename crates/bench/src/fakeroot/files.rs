//! A tree of many files: changed in ownership, listed, archived and copied, compared with real root.

use super::super::child;
use super::super::figures::{Report, Series, Unit, ratios};
use super::super::scratch::Scratch;
use super::contender::{self, Contender, OURS, PLAIN, key};
use super::sides;
use crate::Trial;
use crate::error::{Context, Kind, Result};
use serde_json::json;
use std::path::Path;

/// Number of files.
const FILES: usize = 50_000;
/// Number of files per folder.
const FOLDER_FILES: usize = 500;
/// Maximum cost of a step, relative to root.
const RATIO_MAX: f64 = 1.1;
/// Maximum size of a file's entry in the session.
const BYTES_MAX: u64 = 128;

/// Number of turns per pair for root and Kilnyard. Other fakeroots need minutes for a turn and have one.
const TURNS: usize = 3;

/// The steps. Each works on the tree as the previous ones left it.
const STEPS: [(&str, &str); 4] = [
    ("chown", "chown -R 5:6 tree"),
    ("find", "find tree -ls >list"),
    ("tar", "tar cf - tree >archive"),
    ("cp", "cp -a tree copy"),
];

/// File in which the steps record how much memory the session uses.
const SESSION_BYTES: &str = "session-bytes";

/// Adds the results to a report. Requires root, for the comparison.
pub fn measure(
    trial: &Trial<'_>,
    scratch: &Scratch,
    contenders: &[Contender],
    report: &mut Report,
) -> Result<()> {
    let pairs = trial.pairs;
    if !rustix::process::geteuid().is_root() {
        report
            .notes
            .push("the benchmark of file trees compares with real root, so it requires root".to_owned());
        return Ok(());
    }
    let place = |name: &str| contenders.iter().position(|contender| contender.name == name);
    let (Some(plain), Some(ours)) = (place(PLAIN), place(OURS)) else { return Ok(()) };
    let mut values: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); STEPS.len()]; contenders.len()];
    let mut bytes_each = Vec::new();
    let two = [plain, ours];
    for pair in 1..=pairs {
        let measured = sides::measure(TURNS, two.map(|number| &contenders[number]), scratch, &Trees)?;
        for (number, seconds) in two.into_iter().zip(measured) {
            values[number].iter_mut().zip(seconds).for_each(|(values, seconds)| values.push(seconds));
        }
        for place in 0..sides::PLACES_MAX {
            let path = sides::folder(scratch, place).join(SESSION_BYTES);
            // Without a fakeroot, there is no such file.
            if path.exists() {
                let size = fs_err::read_to_string(path).or_internal("read the session's size")?;
                bytes_each.push(size.trim().parse::<f64>().unwrap_or(f64::INFINITY) / (2 * FILES) as f64);
            }
        }
        trial.say(format_args!("file trees: pair {pair} of {pairs} measured"));
    }
    for (number, contender) in contenders.iter().enumerate().filter(|(number, _)| !two.contains(number)) {
        super::super::check_interrupt()?;
        let folder = sides::folder(scratch, 0);
        match sides::clear(&folder).and_then(|()| steps_on_a_tree(&folder, contender)) {
            Ok(seconds) => {
                values[number].iter_mut().zip(seconds).for_each(|(values, new)| values.push(new));
            }
            Err(error) if error.kind == Kind::Interrupted => return Err(error),
            Err(error) => {
                report.notes.push(format!("{} failed on the tree: {error}", contender.name));
            }
        }
        trial.say(format_args!("file trees: {} measured", contender.name));
    }
    for (step, (name, command)) in STEPS.iter().enumerate() {
        for (contender, values) in
            contenders.iter().zip(&values).filter(|(_, values)| !values[step].is_empty())
        {
            let key = format!("{name}_{}_cpu_seconds", key(contender.name));
            let label = format!("{command}, CPU, {}", contender.name);
            report.series.push(Series::new(key, label, Unit::Seconds, values[step].clone()));
        }
        let ratio = ratios(&values[ours][step], &values[plain][step]);
        let label = format!("{command}, CPU: ours / root");
        let ratio = Series::new(format!("{name}_to_root"), label, Unit::Ratio, ratio);
        report.judge(ratio.median() <= RATIO_MAX, command);
        report.series.push(ratio);
        for (number, other) in contenders.iter().enumerate() {
            if contender::is_other(other.name) && !values[number][step].is_empty() {
                let key = format!("{name}_{}_to_ours", key(other.name));
                let label = format!("{command}, CPU without daemons: {} / ours", other.name);
                let ratio = ratios(&values[number][step], &values[ours][step]);
                report.series.push(Series::new(key, label, Unit::Ratio, ratio));
            }
        }
    }
    let memory = Series::new("session_bytes_each", "memory per file", Unit::Bytes, bytes_each);
    report.judge(memory.median() < BYTES_MAX as f64, "memory");
    report.aim(&format!("file trees at most {RATIO_MAX} x root, {BYTES_MAX} bytes per file"));
    report.series.push(memory);
    report.facts.insert("files".to_owned(), json!(FILES));
    Ok(())
}

/// The steps on file trees.
struct Trees;

impl sides::Steps<{ STEPS.len() }> for Trees {
    fn prepare(&self, folder: &Path) -> Result<()> {
        make_tree(folder)
    }

    fn run(&self, contender: &Contender, folder: &Path, core: usize) -> Result<[f64; STEPS.len()]> {
        steps(folder, contender, Some(core))
    }
}

fn steps_on_a_tree(folder: &Path, contender: &Contender) -> Result<[f64; STEPS.len()]> {
    make_tree(folder)?;
    steps(folder, contender, None)
}

fn make_tree(within: &Path) -> Result<()> {
    let failed = "make the tree of the benchmark";
    for number in 0..FILES / FOLDER_FILES {
        let folder = within.join(format!("tree/folder-{number}"));
        fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
        for number in 0..FOLDER_FILES {
            fs_err::File::create(folder.join(format!("file-{number}"))).context(Kind::Machine, failed)?;
        }
    }
    Ok(())
}

/// Runs the steps in one session, pinned to a core if one is given. Returns the CPU seconds of each, without
/// daemons, as measured by the shell.
fn steps(within: &Path, contender: &Contender, core: Option<usize>) -> Result<[f64; STEPS.len()]> {
    let times: Vec<String> = STEPS
        .iter()
        .map(|(name, command)| format!("bash -c 'TIMEFORMAT=\"%U %S\"; time {command}' 2>time-{name}"))
        .collect();
    let size = "[ ! -e \"$FAKEROOTKEY\" ] || echo $((512 * $(stat -c %b \"$FAKEROOTKEY\")))";
    let size = format!("{size} >{SESSION_BYTES}");
    let script = format!("set -e; {}; {size}", times.join("; "));
    let mut command = contender.bounded(&["sh", "-c", &script]);
    command.current_dir(within);
    if let Some(core) = core {
        sides::pin_command(&mut command, core);
    }
    child::measure(command, None, &[0])?;
    let mut seconds = [0.0; STEPS.len()];
    for ((name, _), seconds) in STEPS.iter().zip(&mut seconds) {
        let text = fs_err::read_to_string(within.join(format!("time-{name}"))).or_internal("read a time")?;
        *seconds = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).sum();
    }
    Ok(seconds)
}
