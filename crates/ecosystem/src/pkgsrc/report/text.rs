//! `report.txt`, in the layout that programs which read these mails expect.

use super::{Header, Package, Status, minute, one_line};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The announced name of `meta/report`: the publisher compresses the file with xz, and collectors unpack it under
/// this name.
pub const REPORT_FILE: &str = "report.xz";

/// Number of locations listed as breaking the most packages.
const BREAKERS_MAX: usize = 25;

/// The text that pbulk's resolver writes into `PKG_FAIL_REASON`.
const UNRESOLVED: &[u8] = b"could not resolve dependency";

const RULE: &str = "-------------------------------------------------------------------------";
const LONG_RULE: &str =
    "-----------------------------------------------------------------------------------------------";

/// The fields of a stanza that the layout needs.
#[derive(Clone, Copy, Default)]
struct Fields<'a> {
    name: &'a [u8],
    location: &'a [u8],
    maintainer: &'a [u8],
    fail_reason: &'a [u8],
}

impl<'a> Fields<'a> {
    fn of(stanza: &'a [u8]) -> Fields<'a> {
        let mut fields = Fields::default();
        let mut rest = stanza;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let (line, next) = (&rest[..end], &rest[(end + 1).min(rest.len())..]);
            rest = next;
            let Some(equals) = memchr::memchr(b'=', &line[..line.len().min(FIELD_BYTES_MAX)]) else {
                continue;
            };
            let value = &line[equals + 1..];
            match &line[..equals] {
                b"PKGNAME" => fields.name = value,
                b"PKG_LOCATION" => fields.location = value,
                b"MAINTAINER" => fields.maintainer = value,
                b"PKG_FAIL_REASON" => fields.fail_reason = value,
                _ => {}
            }
        }
        fields
    }
}

/// No field name is longer.
const FIELD_BYTES_MAX: usize = 64;

/// A location with failures.
#[derive(Default)]
struct Location<'a> {
    /// Number of packages that its failures break, in total.
    breaks: u64,
    /// Maintainer of the last package that failed.
    maintainer: &'a [u8],
    /// Its failed packages.
    failed: Vec<(Fields<'a>, u32)>,
    /// Whether another of its packages did not fail.
    is_mixed: bool,
}

/// Writes `report.txt`.
pub fn write_text(out: &mut impl Write, header: &Header, packages: &[Package]) -> io::Result<()> {
    let mut locations: BTreeMap<&[u8], Location> = BTreeMap::new();
    let mut unresolved = Vec::new();
    for package in packages {
        let fields = Fields::of(package.stanza);
        let location = locations.entry(fields.location).or_default();
        match package.status {
            Status::Failed => {
                // pbulk reports the number of other packages that break.
                let others = package.depth.saturating_sub(1);
                location.breaks += u64::from(others);
                location.maintainer = fields.maintainer;
                location.failed.push((fields, others));
            }
            Status::Prefailed if memchr::memmem::find(fields.fail_reason, UNRESOLVED).is_some() => {
                location.is_mixed = true;
                unresolved.push(fields);
            }
            _ => location.is_mixed = true,
        }
    }
    locations.retain(|_, location| !location.failed.is_empty());
    write_header(out, header)?;
    write_counts(out, packages, unresolved.len())?;
    write_breakers(out, &locations)?;
    write_unresolved(out, &unresolved)?;
    write_failures(out, &locations)
}

fn write_header(out: &mut impl Write, header: &Header) -> io::Result<()> {
    let url = format!("{}/{}/meta", one_line(&header.base_url), header.folder());
    writeln!(out, "pkgsrc bulk build report\n========================\n")?;
    writeln!(out, "{}\nCompiler: {}\n", one_line(&header.platform_line()), one_line(&header.compiler))?;
    writeln!(out, "Build start: {}", minute(header.start_seconds))?;
    writeln!(out, "Build end:   {}\n", minute(header.end_seconds))?;
    writeln!(out, "Full report: {url}/report.html\nMachine readable version: {url}/{REPORT_FILE}\n")
}

fn write_counts(out: &mut impl Write, packages: &[Package], unresolved: usize) -> io::Result<()> {
    let count = |status| packages.iter().filter(|package| package.status == status).count();
    let open = count(Status::Open);
    let lines = [
        ("Total number of packages:", packages.len() - open),
        ("  Successfully built:", count(Status::Done)),
        ("  Failed to build:", count(Status::Failed)),
        ("  Depending on failed package:", count(Status::IndirectFailed)),
        ("  Explicitly broken or masked:", count(Status::Prefailed)),
        ("    of which invalid dependencies:", unresolved),
        ("  Depending on masked package:", count(Status::IndirectPrefailed)),
    ];
    for (label, number) in lines {
        writeln!(out, "{label:<34} {number:>5}")?;
    }
    writeln!(out)
}

fn write_heading(out: &mut impl Write, heading: &str) -> io::Result<()> {
    writeln!(out, "{heading}\n\nPackage                               Breaks Maintainer\n{RULE}")
}

fn write_breakers(out: &mut impl Write, locations: &BTreeMap<&[u8], Location>) -> io::Result<()> {
    let mut breakers: Vec<(&[u8], &Location)> = locations
        .iter()
        .filter(|(_, location)| location.breaks > 0)
        .map(|(name, found)| (*name, found))
        .collect();
    // In the order of `sort -rn`: among equal numbers, the last name comes first.
    breakers.sort_by(|(one, left), (other, right)| (right.breaks, other).cmp(&(left.breaks, one)));
    if breakers.is_empty() {
        return Ok(());
    }
    write_heading(out, "Packages breaking the most other packages")?;
    for (name, location) in breakers.into_iter().take(BREAKERS_MAX) {
        write_line(out, 0, name, location.breaks, location.maintainer)?;
    }
    writeln!(out)
}

fn write_unresolved(out: &mut impl Write, unresolved: &[Fields]) -> io::Result<()> {
    if unresolved.is_empty() {
        return Ok(());
    }
    writeln!(out, "Packages with invalid dependencies\n")?;
    writeln!(out, "{:<44} {:<29} Maintainer\n{LONG_RULE}", "Package", "Location")?;
    for fields in unresolved {
        write_padded(out, fields.name, 44)?;
        out.write_all(b" ")?;
        write_padded(out, fields.location, 29)?;
        write_rest(out, fields.maintainer)?;
    }
    writeln!(out)
}

fn write_failures(out: &mut impl Write, locations: &BTreeMap<&[u8], Location>) -> io::Result<()> {
    write_heading(out, "Build failures")?;
    for (name, location) in locations {
        write_line(out, 0, name, location.breaks, location.maintainer)?;
        if location.is_mixed {
            for (fields, breaks) in &location.failed {
                write_line(out, 4, fields.name, u64::from(*breaks), fields.maintainer)?;
            }
        }
    }
    Ok(())
}

/// A line of a list, indented by this many columns; the number is omitted if nothing breaks.
fn write_line(
    out: &mut impl Write,
    indent: usize,
    name: &[u8],
    breaks: u64,
    maintainer: &[u8],
) -> io::Result<()> {
    write!(out, "{:indent$}", "")?;
    if breaks == 0 {
        write_padded(out, name, 44 - indent)?;
    } else {
        write_padded(out, name, 37 - indent)?;
        // There is always a blank before the number.
        write!(out, " {:>6}", format!(" {breaks}"))?;
    }
    write_rest(out, maintainer)
}

/// Writes a name that may not be UTF-8, padded with blanks to a width in bytes.
fn write_padded(out: &mut impl Write, name: &[u8], width: usize) -> io::Result<()> {
    out.write_all(name)?;
    write!(out, "{:width$}", "", width = width.saturating_sub(name.len()))
}

fn write_rest(out: &mut impl Write, maintainer: &[u8]) -> io::Result<()> {
    out.write_all(b" ")?;
    out.write_all(maintainer)?;
    out.write_all(b"\n")
}
