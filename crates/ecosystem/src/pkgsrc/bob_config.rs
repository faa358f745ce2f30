//! `config.lua`: the configuration of bob, read for users who migrate (bob 1.0, module `config`; names of earlier
//! versions are also accepted).
//!
//! The file is a Lua program. It is not run: only tables, strings, numbers, earlier values, concatenations of them,
//! and `read_pkgpaths("file")` are evaluated. Everything else (functions, conditions, the environment) is reported
//! with its line, and the settings that it could change become unknown.
//!
//! Known downside: a table is a value here, whereas Lua would share it. A change through another name goes unnoticed.

mod lua;

use super::import::{ConfigKey, ImportRule, Imports, Wanted};
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

/// How bob's settings are imported; a table that maps to a single rule is one entry. `pkgsrc.pkgpaths` is handled
/// separately, because it selects the packages.
const RULES: &[(&str, ImportRule)] = &[
    ("dynamic.jobs", ImportRule::Not(SHARED_OUT)),
    (
        "dynamic.wrkobjdir",
        ImportRule::Not("`build.work-in-memory` decides whether small work folders are in memory"),
    ),
    ("environment", ImportRule::Not(ENVIRONMENT)),
    ("options.build_threads", ImportRule::To(ConfigKey::Slots)),
    ("options.dbdir", ImportRule::Not(IN_THE_YARD)),
    ("options.log_level", ImportRule::Not("kilnyard.toml has no log level")),
    ("options.logdir", ImportRule::Not(IN_THE_YARD)),
    ("options.scan_threads", ImportRule::Not("kilnyard.toml has no number of scan processes")),
    (
        "options.strict_scan",
        ImportRule::Same(&["false"], "packages that cannot be scanned are left out, and the rest is built"),
    ),
    ("options.tui", ImportRule::Not("progress is shown on a terminal")),
    ("options.verbose", ImportRule::Not("kilnyard.toml has no log level")),
    ("pkgsrc.basedir", ImportRule::To(ConfigKey::Tree)),
    ("pkgsrc.bootstrap", ImportRule::To(ConfigKey::BootstrapKit)),
    ("pkgsrc.build_user", ImportRule::Not("every root has its own build user")),
    ("pkgsrc.build_user_home", ImportRule::Not("every root has its own build user")),
    ("pkgsrc.cachevars", ImportRule::Not("make is never run twice for the same answer")),
    ("pkgsrc.env", ImportRule::Not(ENVIRONMENT)),
    ("pkgsrc.logdir", ImportRule::Not(IN_THE_YARD)),
    ("pkgsrc.make", ImportRule::To(ConfigKey::Make)),
    ("pkgsrc.packages", ImportRule::Not(IN_THE_YARD)),
    ("pkgsrc.pkgtools", ImportRule::Not(BY_THE_KIT)),
    ("pkgsrc.prefix", ImportRule::To(ConfigKey::Prefix)),
    ("pkgsrc.report_branch", ImportRule::Not("kilnyard.toml has no branch name")),
    ("pkgsrc.report_dir", ImportRule::Not(IN_THE_YARD)),
    ("pkgsrc.save_wrkdir_patterns", ImportRule::Not("the roots of the last failed builds are kept whole")),
    ("pkgsrc.scanenv", ImportRule::Not(ENVIRONMENT)),
    ("pkgsrc.tar", ImportRule::Not("Kilnyard does not run tar")),
    ("publish.packages", ImportRule::Not(UPLOADS)),
    ("publish.report", ImportRule::Not(UPLOADS)),
    ("publish.rsync", ImportRule::Not(UPLOADS)),
    ("publish.rsync_args", ImportRule::Not(UPLOADS)),
    ("sandboxes.actions", ImportRule::Not(OWN_ROOTS)),
    ("sandboxes.basedir", ImportRule::Not(IN_THE_YARD)),
    ("sandboxes.bindfs", ImportRule::Not(OWN_ROOTS)),
    ("sandboxes.build", ImportRule::Not(OWN_ROOTS)),
    ("sandboxes.environment", ImportRule::Not(ENVIRONMENT)),
    ("sandboxes.hooks", ImportRule::Not(OWN_ROOTS)),
    ("sandboxes.setup", ImportRule::Not(OWN_ROOTS)),
    ("scripts", ImportRule::Not(SCRIPTS)),
    ("summary.compression", ImportRule::Not(SUMMARY)),
    ("summary.file_cksum", ImportRule::Not(SUMMARY)),
    ("summary.include_restricted", ImportRule::Not(SUMMARY)),
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
    pub fn imports(&self) -> Imports {
        let mut imports = Imports::default();
        for (name, line, value) in &self.settings.globals {
            settle(&mut imports, name, *line, value);
        }
        for (name, line, reason) in &self.settings.others {
            imports.refuse(name, *line, reason);
        }
        let says_which = |name: &str| name == "pkgsrc" || name == PKGPATHS;
        if imports.wanted.is_none() && !imports.not_imported.iter().any(|refused| says_which(&refused.name)) {
            imports.wanted = Some(Wanted::All);
        }
        imports.sort();
        imports
    }
}

/// A text, number or boolean in the form that is imported.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Number(text) => Some(text.clone()),
        Value::Boolean(is_true) => Some(is_true.to_string()),
        Value::Table(_) | Value::Locations(_) | Value::Unknown(_) => None,
    }
}

/// Settings are at most this deep; anything deeper belongs to a table with a single rule.
const TABLES_MAX: usize = 2;

fn settle(imports: &mut Imports, path: &str, line: usize, value: &Value) {
    let rule = RULES.iter().find(|(known, _)| *known == path).map(|(_, rule)| *rule);
    match (value, rule) {
        (Value::Unknown(reason), _) => imports.refuse(path, line, reason),
        (_, _) if path == PKGPATHS => want(imports, line, value),
        (_, Some(ImportRule::Not(reason))) => imports.refuse(path, line, reason),
        (Value::Table(items), None) if path.split('.').count() < TABLES_MAX => {
            // If a name occurs several times, the last one counts.
            let last: HashMap<&str, usize> =
                items.iter().enumerate().map(|(at, (name, _, _))| (&name[..], at)).collect();
            let counting = items.iter().enumerate().filter(|(at, (name, _, _))| last[&name[..]] == *at);
            for (_, (name, line, value)) in counting {
                settle(imports, &format!("{path}.{name}"), *line, value);
            }
        }
        (value, Some(rule)) => match shown(value) {
            Some(text) => imports.settle(path, line, &text, rule),
            None => imports.refuse(path, line, "it is neither text nor a number"),
        },
        (_, None) => imports.refuse(path, line, "it is not a setting of bob"),
    }
}

fn want(imports: &mut Imports, line: usize, value: &Value) {
    let items = match value {
        Value::Locations(file) => return imports.want(PKGPATHS, line, Wanted::File(file.clone())),
        Value::Table(items) => items,
        _ => return imports.refuse(PKGPATHS, line, "it is not a list of locations"),
    };
    let location = |value: &Value| shown(value).filter(|text| is_location(text));
    let locations: Option<Vec<String>> = items.iter().map(|(_, _, value)| location(value)).collect();
    match locations {
        // bob scans the whole tree if the list is empty.
        Some(locations) if locations.is_empty() => imports.want(PKGPATHS, line, Wanted::All),
        Some(locations) => imports.want(PKGPATHS, line, Wanted::Some(locations)),
        None => imports.refuse(PKGPATHS, line, "not everything in it is a location"),
    }
}

#[cfg(test)]
mod tests;
