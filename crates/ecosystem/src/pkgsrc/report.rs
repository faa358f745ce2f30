//! pbulk's reports: `meta/report`, which collectors read, and `report.txt`, which is mailed (pkgsrc,
//! `pkgtools/pbulk/files/pbulk/scripts`: `create-report.awk`, `create-report-txt.awk` 1.9, `pre-build` 1.18).
//!
//! A report is written from a plain list ([`Package`]): each package's stanza as it was resolved, what became of it,
//! and its depth. [`depths`] counts the latter for all of a tree at once; `text` lays out `report.txt`.
//!
//! # Differences from pbulk
//!
//! 1. Times are in UTC; pbulk writes the machine's local time without saying which, and collectors take it for UTC.
//! 2. Packages come in the order of the list. pbulk's order is that of awk's hash table, and says nothing. Of a
//!    location whose failed packages have different maintainers the last one's is shown, where pbulk shows any.
//! 3. A member of a cycle counts all of the cycle; pbulk does not report one at all.
//!
//! Known downside: collectors count what they do not know as built, `open` among it (the status of what was not
//! reached); a report is best written of a run that is finished.

mod depth;
mod text;

pub use depth::depths;
pub use text::{REPORT_FILE, write_text};

use std::io::{self, Write};

/// What became of a package, by pbulk's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It was built, or is up to date.
    Done,
    /// Its build failed.
    Failed,
    /// It was not to be built by its own word, or a dependency of it could not be resolved.
    Prefailed,
    /// It depends on one that failed.
    IndirectFailed,
    /// It depends on one that was not to be built.
    IndirectPrefailed,
    /// It was not reached.
    Open,
}

impl Status {
    /// Its word in a report.
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

/// A package of a report.
#[derive(Clone, Copy, Debug)]
pub struct Package<'a> {
    /// Its stanza as it was scanned; that of one that was left out with the resolver's reason.
    pub stanza: &'a [u8],
    /// What became of it.
    pub status: Status,
    /// How many packages depend on it, directly or through others, itself included ([`depths`]).
    pub depth: u32,
}

/// What a report says of the whole build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The system's name, such as `NetBSD` (`OPSYS`).
    pub platform: String,
    /// Its version (`OS_VERSION`).
    pub version: String,
    /// The machine's architecture (`MACHINE_ARCH`).
    pub architecture: String,
    /// The compiler's family (`PKGSRC_COMPILER`).
    pub compiler: String,
    /// When the build began, in seconds since 1970.
    pub start_seconds: i64,
    /// When it ended, in seconds since 1970.
    pub end_seconds: i64,
    /// Where reports are published; the folder of this one is added to it.
    pub base_url: String,
}

/// Writes one package of `meta/report`: its stanza, `resolved` with its dependencies, with its depth and status behind it.
pub fn write_package(out: &mut impl Write, package: &Package, resolved: &[u8]) -> io::Result<()> {
    out.write_all(resolved)?;
    if !resolved.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    writeln!(out, "PKG_DEPTH={}\nBUILD_STATUS={}", package.depth, package.status.word())
}

impl Header {
    /// The platform as a report and the subject of its mail name it.
    pub fn platform_line(&self) -> String {
        format!("{} {}/{}", self.platform, self.version, self.architecture)
    }

    /// The name of the folder that this build's report is published in.
    pub fn folder(&self) -> String {
        time("%Y%m%d.%H%M", self.start_seconds)
    }

    /// Writes `meta/status`, from which pbulk's own scripts take what a report says of the whole build.
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

/// A moment as reports show it, in UTC.
fn minute(seconds: i64) -> String {
    time("%Y-%m-%d %H:%M", seconds)
}

fn time(format: &str, seconds: i64) -> String {
    // A time that is out of range is invalid, but no reason for a report to fail.
    jiff::Timestamp::from_second(seconds).unwrap_or_default().strftime(format).to_string()
}

/// A fact that cannot add lines to a report.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests;
