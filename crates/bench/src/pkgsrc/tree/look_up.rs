//! A single look-up in the index of a repository, by a newly started program.

use super::Part;
use crate::Trial;
use crate::child;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Series, Summary, Unit};
use crate::scratch::Scratch;
use crate::synthetic;
use serde_json::{Map, json};
use std::fmt::Write;
use std::path::Path;
use std::process::Stdio;

/// Number of packages, about as many as in pkgsrc.
const PACKAGES: usize = 30_000;
/// Number of look-ups per pair. A single one takes less time than the clock and other load blur.
const LOOK_UPS: usize = 200;
/// Number of lines in a package's description.
const LINES: usize = 15;
/// Maximum CPU time of a look-up in addition to starting the program.
const CPU_SECONDS_MAX: f64 = 1e-4;
/// Exit code of a look-up if the file does not exist.
const NO_FILE: i32 = Kind::Usage as i32;

pub fn measure(scratch: &Scratch, trial: &Trial<'_>) -> Result<Part> {
    let pairs = trial.pairs;
    let (summary, index) = (scratch.path("pkg_summary"), scratch.path("pkg_index"));
    let text: String = (0..PACKAGES).map(|number| stanza(number) + "\n").collect();
    fs_err::write(&summary, &text).context(Kind::Machine, "write a pkg_summary")?;
    let mut command = child::this_program_alone(&["index", "make"]);
    command.arg(&summary).arg(&index).stderr(Stdio::null());
    child::measure(command, None, &[0])?;
    let look_up = |index: &Path, number: usize| {
        let mut command = child::this_program_alone(&["index", "look-up"]);
        command.arg(index).arg(name(number)).stderr(Stdio::null());
        command
    };
    let (answer, last) = (scratch.path("answer"), PACKAGES - 1);
    child::measure(look_up(&index, last), Some(&answer), &[0])?;
    let answer = fs_err::read_to_string(&answer).or_internal("read an answer")?;
    if answer != stanza(last) {
        return Err(Error::new(Kind::Internal, "wrong answer from kilnyard index look-up"));
    }
    let (mut starting, mut more, mut itself) = (Vec::new(), Vec::new(), Vec::new());
    let nothing = scratch.path("nothing");
    for pair in 1..=pairs {
        let (mut with, mut without, mut in_nothing) = (Vec::new(), Vec::new(), Vec::new());
        for number in (0..LOOK_UPS).map(|number| number * (PACKAGES / LOOK_UPS)) {
            without.push(child::measure(child::this_program_alone(&["--version"]), None, &[0])?.cpu_seconds);
            with.push(child::measure(look_up(&index, number), None, &[0])?.cpu_seconds);
            in_nothing.push(child::measure(look_up(&nothing, number), None, &[NO_FILE])?.cpu_seconds);
        }
        let median = |values: &[f64]| Summary::of(values).map_or(0.0, |summary| summary.median);
        starting.push(median(&without));
        more.push(median(&with) - median(&without));
        itself.push(median(&with) - median(&in_nothing));
        trial.say(format_args!("look-up: pair {pair} of {pairs} measured"));
    }
    let more =
        Series::new("look_up_cpu_seconds", "index look-up, CPU in addition to starting", Unit::Seconds, more);
    let is_met = more.median() <= CPU_SECONDS_MAX;
    // Most of the difference is parsing the command line, which is shorter for `--version`.
    let label = "index look-up, CPU in addition to one without a file";
    let itself = Series::new("look_up_itself_cpu_seconds", label, Unit::Seconds, itself);
    let starting = Series::new("starting_cpu_seconds", "starting the program, CPU", Unit::Seconds, starting);
    let bytes = fs_err::metadata(&index).map_or(0, |metadata| metadata.len());
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(PACKAGES));
    facts.insert("index_bytes".to_owned(), json!(bytes));
    facts.insert("look_ups".to_owned(), json!(LOOK_UPS));
    Ok(Part {
        name: "look_up",
        series: vec![more, itself, starting],
        facts,
        notes: vec![format!(
            "an index of {PACKAGES} packages, the median of {LOOK_UPS} look-ups per pair; there is no peer: pkg_add \
             and pkgin read all of pkg_summary"
        )],
        target: format!("at most {} ms of CPU time in addition to starting", CPU_SECONDS_MAX * 1e3),
        is_met: Some(is_met),
    })
}

fn name(number: usize) -> String {
    format!("{}-1.{number}", synthetic::name(number))
}

fn stanza(number: usize) -> String {
    let name = name(number);
    let mut text = format!(
        "PKGNAME={name}\nCOMMENT=A package of a benchmark\nSIZE_PKG=100000\nBUILD_DATE=2026-01-01 00:00:00 +0000\n\
         CATEGORIES=devel\nHOMEPAGE=http://package.invalid/\nLICENSE=modified-bsd\nMACHINE_ARCH=x86_64\n\
         OPSYS=NetBSD\nOS_VERSION=11.0\nPKGPATH=devel/{number}\nPKGTOOLS_VERSION=20091115\n\
         DEPENDS={}>=1\nFILE_NAME={name}.tgz\nFILE_SIZE=10000\n",
        synthetic::name(number / 2)
    );
    for line in 1..=LINES {
        let _ = writeln!(text, "DESCRIPTION=This is line {line} of the description of {name}.");
    }
    text
}
