//! `config.lua`: the configuration of bob, read for users who migrate (bob 1.0, module `config`; names of earlier
//! versions are also accepted).
//!
//! The file is a Lua program. It is not run: only tables, strings, numbers, earlier values, concatenations of them,
//! and `read_pkgpaths("file")` are evaluated. Everything else (functions, conditions, the environment) is reported
//! with its line, and the settings that it could change become unknown.
//!
//! Known downside: a table is a value here, whereas Lua would share it. A change through another name goes unnoticed.

mod lua;

use super::moving::{ConfigKey, Migration, Moved, Wanted};
use super::scan_file::is_location;
use lua::{Settings, Value};
use std::collections::HashMap;

/// No real configuration is longer; those that come with bob have 7 kB.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A file that cannot be parsed as Lua.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BobConfigError {
    /// An unclosed quote or bracket.
    #[error("line {line}: `{what}` is not closed")]
    Open {
        /// Line of the opening quote or bracket, from 1.
        line: usize,
        /// The opening quote or bracket.
        what: &'static str,
    },
    /// An invalid escape sequence in a string.
    #[error("line {line}: invalid escape sequence after the backslash")]
    Escape {
        /// Line number, from 1.
        line: usize,
    },
    /// A token that is not allowed in its place.
    #[error("line {line}: expected {expected}, found `{found}`")]
    Unexpected {
        /// Line number, from 1.
        line: usize,
        /// The actual token.
        found: String,
        /// The expected token or construct.
        expected: &'static str,
    },
    /// Tables or brackets nested too deeply.
    #[error("line {line}: tables or brackets are nested too deeply")]
    TooDeep {
        /// Line number, from 1.
        line: usize,
    },
    /// More assignments than a hand-written file has.
    #[error("line {line}: too many assignments")]
    TooMany {
        /// Line of the first assignment over the limit, from 1.
        line: usize,
    },
    /// The file is too long.
    #[error("it has {bytes} bytes, above the limit of {TEXT_BYTES_MAX}")]
    TooLong {
        /// Length of the file.
        bytes: usize,
    },
}

/// A parsed `config.lua`.
#[derive(Clone, Debug, PartialEq)]
pub struct BobConfig {
    settings: Settings,
}

const PKGPATHS: &str = "pkgsrc.pkgpaths";
const IN_THE_YARD: &str = "it is in a folder of the yard";
const OWN_ROOTS: &str =
    "roots are made without scripts; put a build's requirements into the bootstrap kit or mk-conf";
const ENVIRONMENT: &str = "builds have a fixed environment; set make variables in mk-conf";
const UPLOADS: &str = "builds upload and mail nothing; copy the published repository instead";
const SHARED_OUT: &str = "cores are always shared by rank; `build.jobs` limits one build";
const BY_THE_KIT: &str = "the bootstrap kit sets it";
const SCRIPTS: &str = "bob's scripts are not used";
const SUMMARY: &str = "kilnyard.toml has no settings for pkg_summary";

/// How bob's settings are migrated; a table that maps to a single migration is one entry. `pkgsrc.pkgpaths` is handled
/// separately, because it selects the packages.
const MIGRATIONS: &[(&str, Migration)] = &[
    ("dynamic.jobs", Migration::Not(SHARED_OUT)),
    (
        "dynamic.wrkobjdir",
        Migration::Not("`build.work-in-memory` decides whether small work folders are in memory"),
    ),
    ("environment", Migration::Not(ENVIRONMENT)),
    ("options.build_threads", Migration::To(ConfigKey::Slots)),
    ("options.dbdir", Migration::Not(IN_THE_YARD)),
    ("options.log_level", Migration::Not("kilnyard.toml has no log level")),
    ("options.logdir", Migration::Not(IN_THE_YARD)),
    ("options.scan_threads", Migration::Not("kilnyard.toml has no number of scan processes")),
    (
        "options.strict_scan",
        Migration::Same(&["false"], "packages that cannot be scanned are left out, and the rest is built"),
    ),
    ("options.tui", Migration::Not("progress is shown on a terminal")),
    ("options.verbose", Migration::Not("kilnyard.toml has no log level")),
    ("pkgsrc.basedir", Migration::To(ConfigKey::Tree)),
    ("pkgsrc.bootstrap", Migration::To(ConfigKey::BootstrapKit)),
    ("pkgsrc.build_user", Migration::Not("every root has its own build user")),
    ("pkgsrc.build_user_home", Migration::Not("every root has its own build user")),
    ("pkgsrc.cachevars", Migration::Not("make is never run twice for the same answer")),
    ("pkgsrc.env", Migration::Not(ENVIRONMENT)),
    ("pkgsrc.logdir", Migration::Not(IN_THE_YARD)),
    ("pkgsrc.make", Migration::To(ConfigKey::Make)),
    ("pkgsrc.packages", Migration::Not(IN_THE_YARD)),
    ("pkgsrc.pkgtools", Migration::Not(BY_THE_KIT)),
    ("pkgsrc.prefix", Migration::To(ConfigKey::Prefix)),
    ("pkgsrc.report_branch", Migration::Not("kilnyard.toml has no branch name")),
    ("pkgsrc.report_dir", Migration::Not(IN_THE_YARD)),
    ("pkgsrc.save_wrkdir_patterns", Migration::Not("the roots of the last failed builds are kept whole")),
    ("pkgsrc.scanenv", Migration::Not(ENVIRONMENT)),
    ("pkgsrc.tar", Migration::Not("Kilnyard does not run tar")),
    ("publish.packages", Migration::Not(UPLOADS)),
    ("publish.report", Migration::Not(UPLOADS)),
    ("publish.rsync", Migration::Not(UPLOADS)),
    ("publish.rsync_args", Migration::Not(UPLOADS)),
    ("sandboxes.actions", Migration::Not(OWN_ROOTS)),
    ("sandboxes.basedir", Migration::Not(IN_THE_YARD)),
    ("sandboxes.bindfs", Migration::Not(OWN_ROOTS)),
    ("sandboxes.build", Migration::Not(OWN_ROOTS)),
    ("sandboxes.environment", Migration::Not(ENVIRONMENT)),
    ("sandboxes.hooks", Migration::Not(OWN_ROOTS)),
    ("sandboxes.setup", Migration::Not(OWN_ROOTS)),
    ("scripts", Migration::Not(SCRIPTS)),
    ("summary.compression", Migration::Not(SUMMARY)),
    ("summary.file_cksum", Migration::Not(SUMMARY)),
    ("summary.include_restricted", Migration::Not(SUMMARY)),
];

impl BobConfig {
    /// Parses a configuration.
    pub fn parse(text: &str) -> Result<BobConfig, BobConfigError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BobConfigError::TooLong { bytes: text.len() });
        }
        Ok(BobConfig { settings: lua::read(text)? })
    }

    /// The text or number of a setting such as `pkgsrc.basedir`; `None` if it is unset, unknown or another kind of
    /// value.
    pub fn get(&self, path: &str) -> Option<String> {
        let mut parts = path.split('.');
        let first = parts.next()?;
        let mut value = &self.settings.globals.iter().find(|(name, _, _)| name == first)?.2;
        for part in parts {
            let Value::Table(items) = value else { return None };
            value = items.iter().rev().find(|(name, _, _)| name == part).map(|(_, _, value)| value)?;
        }
        shown(value)
    }

    /// Migrates every setting.
    pub fn moved(&self) -> Moved {
        let mut moved = Moved::default();
        for (name, line, value) in &self.settings.globals {
            settle(&mut moved, name, *line, value);
        }
        for (name, line, reason) in &self.settings.others {
            moved.refuse(name, *line, reason);
        }
        let says_which = |name: &str| name == "pkgsrc" || name == PKGPATHS;
        if moved.wanted.is_none() && !moved.not_carried.iter().any(|refused| says_which(&refused.name)) {
            moved.wanted = Some(Wanted::All);
        }
        moved.sort();
        moved
    }
}

/// A text, number or boolean in the form that is carried over.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Number(text) => Some(text.clone()),
        Value::Boolean(is_true) => Some(is_true.to_string()),
        Value::Table(_) | Value::Locations(_) | Value::Unknown(_) => None,
    }
}

/// Settings are at most this deep; anything deeper belongs to a table with a single migration.
const TABLES_MAX: usize = 2;

fn settle(moved: &mut Moved, path: &str, line: usize, value: &Value) {
    let migration = MIGRATIONS.iter().find(|(known, _)| *known == path).map(|(_, migration)| *migration);
    match (value, migration) {
        (Value::Unknown(reason), _) => moved.refuse(path, line, reason),
        (_, _) if path == PKGPATHS => want(moved, line, value),
        (_, Some(Migration::Not(reason))) => moved.refuse(path, line, reason),
        (Value::Table(items), None) if path.split('.').count() < TABLES_MAX => {
            // If a name occurs several times, the last one counts.
            let last: HashMap<&str, usize> =
                items.iter().enumerate().map(|(at, (name, _, _))| (&name[..], at)).collect();
            let counting = items.iter().enumerate().filter(|(at, (name, _, _))| last[&name[..]] == *at);
            for (_, (name, line, value)) in counting {
                settle(moved, &format!("{path}.{name}"), *line, value);
            }
        }
        (value, Some(migration)) => match shown(value) {
            Some(text) => moved.settle(path, line, &text, migration),
            None => moved.refuse(path, line, "it is neither text nor a number"),
        },
        (_, None) => moved.refuse(path, line, "it is not a setting of bob"),
    }
}

fn want(moved: &mut Moved, line: usize, value: &Value) {
    let items = match value {
        Value::Locations(file) => return moved.want(PKGPATHS, line, Wanted::File(file.clone())),
        Value::Table(items) => items,
        _ => return moved.refuse(PKGPATHS, line, "it is not a list of locations"),
    };
    let location = |value: &Value| shown(value).filter(|text| is_location(text));
    let locations: Option<Vec<String>> = items.iter().map(|(_, _, value)| location(value)).collect();
    match locations {
        // bob scans the whole tree if the list is empty.
        Some(locations) if locations.is_empty() => moved.want(PKGPATHS, line, Wanted::All),
        Some(locations) => moved.want(PKGPATHS, line, Wanted::Some(locations)),
        None => moved.refuse(PKGPATHS, line, "not everything in it is a location"),
    }
}

#[cfg(test)]
mod tests;
