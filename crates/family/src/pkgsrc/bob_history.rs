//! Reads build times from bob's history (`history.db` of bob 1.0; formats since 20260406, which differ only in data
//! that is not read here).
//!
//! Reading another builder's database leaves nothing behind: nothing is written, not even next to the file. If there
//! is no write-ahead log, the file is opened as immutable. Known downside: if bob begins to write at that moment,
//! reading fails or misses the new data.

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The supported formats. Between the first and the last, only indexes and `build_metadata` changed.
const FORMATS: std::ops::RangeInclusive<i64> = 20_260_406..=20_260_612;
/// No tree has this many packages; the largest has 30,000.
const BUILDS_MAX: usize = 1 << 20;
/// Names of packages and directories are much shorter.
const NAME_BYTES_MAX: usize = 1024;
/// A year: no build takes that long, so a longer time is invalid.
const MILLISECONDS_MAX: i64 = 366 * 24 * 60 * 60 * 1000;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BobHistoryError {
    /// The file is missing, is not a database, or is another database.
    #[error("{path} cannot be read as a history of bob: {source}")]
    Database {
        /// The history file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// A format that is not supported.
    #[error(
        "{path} is a history of bob of format {found}; supported formats are {} to {}",
        FORMATS.start(),
        FORMATS.end()
    )]
    Format {
        /// The history file.
        path: PathBuf,
        /// The file's format; 0 if it names none.
        found: i64,
    },
    /// A build with invalid data.
    #[error("{path}: build {number} has {what}")]
    Build {
        /// The history file.
        path: PathBuf,
        /// The build's number in the file.
        number: i64,
        /// The invalid data; reads after "has".
        what: &'static str,
    },
    /// More packages than any tree has.
    #[error("{path} has more than {BUILDS_MAX} packages")]
    TooMany {
        /// The history file.
        path: PathBuf,
    },
}

/// The last successful build of a package.
#[derive(Clone, Debug, PartialEq)]
pub struct BobBuild {
    /// The package's directory in the tree, such as `mail/mutt`.
    pub location: String,
    /// The package's name without the version.
    pub base: String,
    /// Wall time of the whole build, including the time between stages.
    pub wall_seconds: f64,
    /// CPU time of all stages; the wall time if it was not measured.
    pub cpu_seconds: f64,
}

/// Reads the last successful build of every package, oldest first.
pub fn last_builds(path: &Path) -> Result<Vec<BobBuild>, BobHistoryError> {
    let wrap = |source| BobHistoryError::Database { path: path.to_owned(), source };
    let connection = open(path).map_err(wrap)?;
    let format = connection.query_row("SELECT version FROM schema_version", [], |row| row.get::<_, i64>(0));
    let found = format.optional().map_err(wrap)?.unwrap_or(0);
    if !FORMATS.contains(&found) {
        return Err(BobHistoryError::Format { path: path.to_owned(), found });
    }
    let mut statement = connection.prepare(LAST_BUILDS).map_err(wrap)?;
    let mut rows = statement.query([]).map_err(wrap)?;
    let mut builds = Vec::new();
    while let Some(row) = rows.next().map_err(wrap)? {
        if builds.len() == BUILDS_MAX {
            return Err(BobHistoryError::TooMany { path: path.to_owned() });
        }
        builds.push(build(path, row)?);
    }
    Ok(builds)
}

const LAST_BUILDS: &str = "
    SELECT id, pkgpath, pkgbase, duration, (SELECT sum(duration) FROM cpu_times WHERE history_id = id)
    FROM build_history
    WHERE id IN (SELECT max(id) FROM build_history
                 WHERE outcome = (SELECT id FROM outcome_types WHERE name = 'success')
                 GROUP BY pkgpath, pkgbase)
    ORDER BY id";

fn build(path: &Path, row: &Row) -> Result<BobBuild, BobHistoryError> {
    let wrap = |source| BobHistoryError::Database { path: path.to_owned(), source };
    let number: i64 = row.get(0).map_err(wrap)?;
    let wrong = |what| BobHistoryError::Build { path: path.to_owned(), number, what };
    let name = |column| -> Result<String, BobHistoryError> {
        let text =
            row.get_ref(column).map_err(wrap)?.as_str().map_err(|_| wrong("a name that is not text"))?;
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(wrong("a name that is empty or too long"));
        }
        Ok(text.to_owned())
    };
    let seconds = |milliseconds: i64| match milliseconds {
        0..=MILLISECONDS_MAX => Ok(milliseconds as f64 / 1000.0),
        _ => Err(wrong("a duration that is negative or longer than a year")),
    };
    let wall_seconds = seconds(row.get(3).map_err(wrap)?)?;
    let cpu: Option<i64> = row.get(4).map_err(wrap)?;
    let cpu_seconds = cpu.map_or(Ok(wall_seconds), seconds)?;
    Ok(BobBuild { location: name(1)?, base: name(2)?, wall_seconds, cpu_seconds })
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let is_at_rest = std::fs::metadata(log).map_or(0, |metadata| metadata.len()) == 0;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(address(path.as_os_str(), is_at_rest), flags)
}

/// The SQLite URI of a file (sqlite.org/uri.html).
fn address(path: &OsStr, is_immutable: bool) -> String {
    let mut address = String::from("file:");
    for byte in path.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._".contains(byte) {
            address.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(address, "%{byte:02X}");
        }
    }
    if is_immutable {
        address.push_str("?immutable=1");
    }
    address
}

#[cfg(test)]
mod tests;
