//! `kilnyard scan --import` and `--export`: the index as a scan file.

use super::options::ScanOptions;
use super::scan::{Index, import};
use super::{Pkgsrc, TITLE};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::interrupt;
use kilnyard_yard::program::Program;
use kilnyard_yard::yard::Yard;
use std::path::Path;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &ScanOptions, as_json: bool, program: &dyn Program) -> Result<ExitCode> {
    program.catch_signals();
    let _lock = yard.lock()?;
    let scanned = match &options.import {
        Some(file) => {
            let shown = file.display();
            let text = program.read(file).context(Kind::Usage, format!("read {shown}"))?;
            import(yard, pkgsrc(yard)?, text)
                .map_err(|error| Error { message: format!("{shown}: {}", error.message), ..error })?
        }
        None => yard.config.family.scan(yard, interrupt::cancel(), &|text| program.say(text))?,
    };
    if let Some(file) = &options.export {
        export(yard, file, program)?;
    }
    scanned.report(program, as_json)
}

fn pkgsrc(yard: &Yard) -> Result<&Pkgsrc> {
    let title = yard.config.family.title();
    let other = || Error::usage(format!("scan files are for {TITLE}, but this is a yard of {title}"));
    yard.config.family.of().ok_or_else(other)
}

/// Writes the index as a scan file.
fn export(yard: &Yard, file: &Path, program: &dyn Program) -> Result<()> {
    let scan = Index::open(yard)?.read(yard, pkgsrc(yard)?)?;
    if file.as_os_str() == "-" {
        return program.write(&mut |out| out.write_all(&scan.text)).map(|_| ());
    }
    write_whole(file, &scan.text)
}
