//! Reports in pbulk's format: `meta/report`, which collectors read, and `report.txt`, which is mailed (pkgsrc,
//! `pkgtools/pbulk/files/pbulk/scripts`: `create-report.awk`, `create-report-txt.awk` 1.9, `pre-build` 1.18).
//!
//! A report is written from a plain list ([`Package`]): each package's resolved stanza, its status and its depth.
//! [`depths`] computes the depths for a whole tree at once; `text` formats `report.txt`.
//!
//! # Differences from pbulk
//!
//! 1. Times are in UTC; pbulk writes the machine's local time without a zone, and collectors take it for UTC.
//! 2. Packages come in the order of the list; pbulk's order is that of awk's hash table and has no meaning. If the
//!    failed packages of a location have different maintainers, the last one's is shown; pbulk shows an arbitrary
//!    one.
//! 3. The depth of a package in a cycle counts the whole cycle; pbulk does not report such packages at all.
//!
//! Known downside: collectors count any status that they do not know as built, including `open` (the status of
//! packages that were not reached). It is best to report on finished runs only.

mod depth;
mod text;

pub use depth::depths;
pub use text::{REPORT_FILE, write_text};

use std::io::{self, Write};

/// The status of a package, in pbulk's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It was built or is up to date.
    Done,
    /// Its build failed.
    Failed,
    /// It marks itself as not to be built, or one of its dependencies could not be resolved.
    Prefailed,
    /// It depends on a package that failed.
    IndirectFailed,
    /// It depends on a package that is not to be built.
    IndirectPrefailed,
    /// It was not reached.
    Open,
}

impl Status {
    /// The value of `BUILD_STATUS` in a report.
    pub fn word(self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Prefailed => "prefailed",
            Status::IndirectFailed => "indirect-failed",
            Status::IndirectPrefailed => "indirect-prefailed",
            Status::Open => "open",
        }
    }
}

/// A package in a report.
#[derive(Clone, Copy, Debug)]
pub struct Package<'a> {
    /// Its stanza as scanned; for a package that was left out, with the resolver's reason.
    pub stanza: &'a [u8],
    /// Its outcome in the run.
    pub status: Status,
    /// Number of packages that depend on it, directly or indirectly, itself included ([`depths`]).
    pub depth: u32,
}

/// What a report says about the whole build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name of the operating system, such as `NetBSD` (`OPSYS`).
    pub platform: String,
    /// Version of the operating system (`OS_VERSION`).
    pub version: String,
    /// The machine's architecture (`MACHINE_ARCH`).
    pub architecture: String,
    /// The compiler's family (`PKGSRC_COMPILER`).
    pub compiler: String,
    /// Start of the build, in seconds since 1970.
    pub start_seconds: i64,
    /// End of the build, in seconds since 1970.
    pub end_seconds: i64,
    /// URL below which reports are published; the folder of this report is appended.
    pub base_url: String,
}

/// Writes one package of `meta/report`: its stanza, `resolved` with its dependencies, followed by its depth and
/// status.
pub fn write_package(out: &mut impl Write, package: &Package, resolved: &[u8]) -> io::Result<()> {
    out.write_all(resolved)?;
    if !resolved.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    writeln!(out, "PKG_DEPTH={}\nBUILD_STATUS={}", package.depth, package.status.word())
}

impl Header {
    /// The platform, as it appears in a report and in the subject of its mail.
    pub fn platform_line(&self) -> String {
        format!("{} {}/{}", self.platform, self.version, self.architecture)
    }

    /// The name of the folder in which this report is published: the start in UTC, as `YYYYMMDD.HHMM`.
    pub fn folder(&self) -> String {
        time("%Y%m%d.%H%M", self.start_seconds)
    }

    /// Writes `meta/status`, from which pbulk's own scripts read the facts about the whole build.
    pub fn write_status(&self, out: &mut impl Write) -> io::Result<()> {
        let Header { platform, version, architecture, compiler, start_seconds, end_seconds, base_url } = self;
        writeln!(out, "PLATFORM={}", one_line(&self.platform_line()))?;
        writeln!(out, "OPSYS={}\nOS_VERSION={}", one_line(platform), one_line(version))?;
        writeln!(out, "MACHINE_ARCH={}\nCOMPILER={}", one_line(architecture), one_line(compiler))?;
        writeln!(out, "BUILD_START_ISO={}\nBUILD_START_DIR={}", minute(*start_seconds), self.folder())?;
        writeln!(out, "BUILD_START_EPOCHE={start_seconds}\nBASE_URL={}", one_line(base_url))?;
        writeln!(out, "BUILD_END_ISO={}", minute(*end_seconds))
    }
}

/// A time in the format of reports, in UTC.
fn minute(seconds: i64) -> String {
    time("%Y-%m-%d %H:%M", seconds)
}

fn time(format: &str, seconds: i64) -> String {
    // An out-of-range time is invalid, but must not make the report fail.
    jiff::Timestamp::from_second(seconds).unwrap_or_default().strftime(format).to_string()
}

/// Replaces control characters, so that a value cannot add lines to a report.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests;
