//! `kilnyard root requests`: what a build did to its block device.

use super::{print, print_json, unknown};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::words::{count, duration, size};
use crate::yard::{Yard, store_error};
use kilnyard_block::{Counters, Kind as RequestKind, Summary};
use kilnyard_yard::facts::logs::log_of;
use serde_json::json;
use std::fmt::Write;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The builds of a package that are searched for a record, the newest first.
const BUILDS_MAX: usize = 5;

/// What is known of the requests to a device.
enum Known {
    Log(Summary),
    Counters(Counters),
}

pub fn requests(yard: impl FnOnce() -> Result<Yard>, options: &cli::RootRequests) -> Result<ExitCode> {
    let (title, known) = match (&options.file, &options.package) {
        (Some(file), _) => (file.display().to_string(), Known::Log(summary(file)?)),
        (None, Some(package)) => of_package(&yard()?, package)?,
        (None, None) => return Err(Error::usage("name a package, or a log with --file")),
    };
    if options.json {
        return match &known {
            Known::Log(summary) => print_json(&json!(summary)),
            Known::Counters(counters) => print_json(&json!(counters)),
        };
    }
    print(&match known {
        Known::Log(summary) => text_of_log(&title, &summary),
        Known::Counters(counters) => text_of_counters(&title, &counters),
    })
}

/// The record of the newest build that has one.
fn of_package(yard: &Yard, package: &str) -> Result<(String, Known)> {
    let store = yard.store()?;
    let builds = store.builds_of(package, BUILDS_MAX).map_err(store_error)?;
    if builds.is_empty() && store.planned(package).map_err(store_error)?.is_none() {
        return Err(unknown(yard, &*store, package)?);
    }
    for build in &builds {
        let Some(folder) = log_of(yard, build, None)
            .and_then(|found| yard.path(&found.relative).parent().map(Path::to_owned))
        else {
            continue;
        };
        let record = |what: &str| -> Option<PathBuf> {
            let path = folder.join(format!("{}-{what}", build.number));
            path.is_file().then_some(path)
        };
        let title = format!("{package} {} (build {})", build.version, build.number);
        if let Some(log) = record("requests.log") {
            return Ok((title, Known::Log(summary(&log)?)));
        }
        if let Some(path) = record("device.json") {
            let text = fs_err::read(&path).context(Kind::Machine, "read the counters of a device")?;
            let counters =
                serde_json::from_slice(&text).context(Kind::Machine, "read the counters of a device");
            return Ok((title, Known::Counters(counters?)));
        }
    }
    Err(Error::usage(format!("no build of {package} here has a record of a block device")).hint(
        "with backend = \"block\" under [root] in kilnyard.toml, builds count requests; requests = \"log\" logs each",
    ))
}

fn summary(path: &Path) -> Result<Summary> {
    let failed = format!("read {}", path.display());
    let file = fs_err::File::open(path).context(Kind::Usage, &failed)?;
    let read = Summary::read(BufReader::new(file)).context(Kind::Machine, &failed)?;
    read.map_err(|error| {
        Error::usage(format!("{}: {error}", path.display())).hint("logs of nbdkit have another form")
    })
}

fn text_of_log(title: &str, summary: &Summary) -> String {
    let mut text = format!("requests to the device of {title}, in {}\n", duration(summary.seconds));
    for (kind, total) in summary.totals.iter().filter(|(kind, _)| **kind != RequestKind::Spill) {
        let _ = match kind {
            RequestKind::Flush => writeln!(text, "  {:<9} {:>9}", kind, total.requests),
            _ => writeln!(text, "  {:<9} {:>9}  {}", kind, total.requests, size(total.bytes)),
        };
    }
    let spilled = summary.totals.get(&RequestKind::Spill).map_or(0, |total| total.bytes);
    let _ = writeln!(
        text,
        "written: {} of different blocks, and {} of them again",
        size(summary.touched_bytes),
        size(summary.rewritten_bytes)
    );
    let _ = writeln!(
        text,
        "never on the disk: {}, of which {} were discarded first; moved to the disk: {}",
        size(summary.never_on_disk_bytes),
        size(summary.dropped_bytes),
        size(spilled)
    );
    if let Some(flushes) = summary.totals.get(&RequestKind::Flush) {
        let _ = writeln!(
            text,
            "{}, if performed, would have written {} to the disk",
            count(flushes.requests, "request") + " to flush",
            size(summary.flushed_bytes)
        );
    }
    if !summary.hot.is_empty() {
        text.push_str("hottest ranges of 1 MiB\n");
    }
    for hot in &summary.hot {
        let _ = writeln!(
            text,
            "  at {:>10}  read {:>10}  written {:>10}",
            size(hot.offset),
            size(hot.read_bytes),
            size(hot.written_bytes)
        );
    }
    text
}

fn text_of_counters(title: &str, counters: &Counters) -> String {
    let mut text = format!("requests to the device of {title}\n");
    let _ = writeln!(text, "  read      {:>9}  {}", counters.reads, size(counters.read_bytes));
    let _ = writeln!(text, "  write     {:>9}  {}", counters.writes, size(counters.written_bytes));
    let _ = writeln!(text, "  flush     {:>9}", counters.flushes);
    let _ = writeln!(text, "  discard              {}", size(counters.discarded_bytes));
    let _ = writeln!(text, "written again: {}", size(counters.rewritten_bytes));
    let _ = writeln!(
        text,
        "never on the disk: {}; moved to the disk: {}, of which {} were read again",
        size(counters.kept_in_memory_bytes()),
        size(counters.spilled_bytes),
        size(counters.restored_bytes)
    );
    let _ = writeln!(text, "memory: at most {}", size(counters.memory_bytes_max));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_summarised_for_people() {
        let log = "0.1 write 0 8192\n0.2 flush 0 0\n0.3 write 4096 4096\n0.4 spill 0 4096\n2 flush 0 0\n";
        let summary = Summary::read(log.as_bytes()).unwrap().unwrap();
        let text = text_of_log("it", &summary);
        for expected in [
            "requests to the device of it, in 2.0 s",
            "written: 8.0 KiB of different blocks, and 4.0 KiB of them again",
            "never on the disk: 8.0 KiB, of which 0 B were discarded first; moved to the disk: 4.0 KiB",
            "2 requests to flush, if performed, would have written 12.0 KiB to the disk",
            "  at        0 B  read        0 B  written   12.0 KiB",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
