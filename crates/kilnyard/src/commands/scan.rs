//! `kilnyard scan`: brings the yard's index up to date.

use super::{print, print_json, printed};
use crate::cli::Scan;
use crate::error::{Context, Error, Kind, Result};
use crate::files::write_whole;
use crate::yard::Yard;
use crate::{input, signals};
use kilnyard_family::pkgsrc::Pkgsrc;
use kilnyard_family::pkgsrc::scan::{Index, import};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &Scan) -> Result<ExitCode> {
    signals::install();
    let _lock = yard.lock()?;
    let scanned = match &options.import {
        Some(file) => {
            let shown = file.display();
            let text = input::read(file).context(Kind::Usage, format!("read {shown}"))?;
            import(yard, pkgsrc(yard)?, text)
                .map_err(|error| Error { message: format!("{shown}: {}", error.message), ..error })?
        }
        None => yard.config.family.scan(yard, signals::cancel(), &|text| tell!("{text}"))?,
    };
    if let Some(file) = &options.export {
        export(yard, file)?;
    }
    if options.json {
        return print_json(&json!({ "changed": scanned.changed, "unchanged": scanned.unchanged }));
    }
    for part in &scanned.changed {
        tell!("{part}: a new index");
    }
    for part in &scanned.unchanged {
        tell!("{part}: nothing new");
    }
    print("")
}

fn pkgsrc(yard: &Yard) -> Result<&Pkgsrc> {
    let other = || Error::usage("scan files are of pkgsrc, and this is a yard of Debian");
    yard.config.family.of().ok_or_else(other)
}

/// Writes the index as a scan file.
fn export(yard: &Yard, file: &Path) -> Result<()> {
    pkgsrc(yard)?;
    let scan = Index::open(yard)?.read(yard)?;
    if file.as_os_str() == "-" {
        let mut out = std::io::stdout().lock();
        return printed(out.write_all(&scan.text).and_then(|()| out.flush())).map(|_| ());
    }
    write_whole(file, &scan.text)
}
