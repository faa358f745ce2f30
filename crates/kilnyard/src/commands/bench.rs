//! `kilnyard bench`: measures Kilnyard on this machine.
//!
//! What is compared is measured in pairs, in turn and in one run, so that what else the machine does falls
//! on both; the median, the smallest and the largest value are told, and ratios pair by pair. CPU time is
//! user and system time of all processes that were waited for, which other load changes far less than wall
//! time. Every measurement happens in a folder of its own that is removed afterwards; of a yard, what is missing
//! for a build (the base, distfiles) is brought, and nothing else is changed.

mod check;
mod child;
mod convert;
pub mod fakeroot;
pub mod figures;
mod monitor;
mod overhead;
mod publish;
mod queries;
pub mod roots;
mod schedule;
mod scratch;
mod subject;
mod synthetic;
mod tree;

use super::{print, print_json};
use crate::cli::{Bench, BenchName};
use crate::error::{Error, Kind, Result};
use crate::signals;
use crate::yard::Yard;
use figures::Machine;
use std::process::ExitCode;

pub fn run(yard: impl FnOnce() -> Result<Yard>, options: &Bench) -> Result<ExitCode> {
    signals::install();
    let machine = Machine::now();
    let report = match options.name {
        BenchName::Overhead => {
            overhead::measure(&yard()?, &options.package, options.pairs, options.sbuild_chroot.as_deref())?
        }
        BenchName::Check => check::measure(&yard()?, options.pairs)?,
        BenchName::Publish => publish::measure(options.pairs)?,
        BenchName::Fakeroot => fakeroot::measure(options.pairs, options.source.as_deref())?,
        BenchName::Monitor => monitor::measure(options.pairs)?,
        BenchName::Roots => {
            let svg = options.svg.as_deref();
            let found = roots::measure(&yard()?, &options.package, options.pairs, &machine, svg)?;
            if options.json { found.full } else { found.short }
        }
        BenchName::Schedule => schedule::measure(options.pairs)?,
        BenchName::Queries => queries::measure(options.pairs)?,
        BenchName::Tree => match &options.scan {
            Some(scan) => tree::measure(scan, options.pairs)?,
            None => return Err(Error::usage("which scan?").hint("--scan with a scan file of pkgsrc")),
        },
    };
    if options.json {
        return print_json(&report.as_json(&machine, options.pairs));
    }
    print(&report.as_text(&machine, options.pairs))
}

/// An error if somebody wants this to end.
fn go_on() -> Result<()> {
    match signals::count() {
        0 => Ok(()),
        _ => Err(Error::new(Kind::Interrupted, "interrupted; nothing is left")),
    }
}
