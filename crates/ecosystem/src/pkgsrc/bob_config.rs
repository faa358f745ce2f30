//! `config.lua`: the configuration of bob, read so that a person can move over (bob 1.0, module `config`; names of
//! earlier versions are known too).
//!
//! The file is a program in Lua. It is not run: tables, texts, numbers, earlier values and texts put together of
//! them are read, and so is `read_pkgpaths("file")`. What else there is (functions, conditions, the environment) is
//! reported with its line, and what it could set is not known then.
//!
//! Known downside: a table is a value here, where Lua would share it, so that a change through another name is not
//! seen.

mod lua;

use super::moving::{Fate, Key, Moved, Wanted};
use super::scan_file::is_location;
use lua::{Settings, Value};
use std::collections::HashMap;

/// No configuration is longer; those that bob comes with have 7 kB.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A file that cannot be read as Lua at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BobConfigError {
    /// A quote or bracket is not closed.
    #[error("line {line}: `{what}` is not closed")]
    Open {
        /// The line that it stands in, from 1.
        line: usize,
        /// What opens.
        what: &'static str,
    },
    /// A backslash in a text with something behind it that has no meaning.
    #[error("line {line}: what follows the backslash is no escape")]
    Escape {
        /// The line that it stands in, from 1.
        line: usize,
    },
    /// Something that cannot be there.
    #[error("line {line}: there is `{found}` where {expected} is expected")]
    Unexpected {
        /// The line that it stands in, from 1.
        line: usize,
        /// What is there.
        found: String,
        /// What could be.
        expected: &'static str,
    },
    /// Tables within each other without end.
    #[error("line {line}: too many tables or brackets are within each other")]
    TooDeep {
        /// The line that it stands in, from 1.
        line: usize,
    },
    /// More assignments than a person writes.
    #[error("line {line}: there are too many assignments")]
    TooMany {
        /// The line of the first one too many, from 1.
        line: usize,
    },
    /// It is too long.
    #[error("it has {bytes} bytes, and {TEXT_BYTES_MAX} is the most")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// A `config.lua`.
#[derive(Clone, Debug, PartialEq)]
pub struct BobConfig {
    settings: Settings,
}

const PKGPATHS: &str = "pkgsrc.pkgpaths";
const IN_THE_YARD: &str = "it is in a folder of the yard";
const OWN_ROOTS: &str =
    "roots are made without a script; what a build needs belongs into the bootstrap kit or mk-conf";
const ENVIRONMENT: &str = "builds have a fixed environment; a variable of make belongs into mk-conf";
const UPLOADS: &str = "nothing is uploaded or mailed by a build; copy what is published";
const SHARED_OUT: &str = "cores are shared out by rank anyway; `build.jobs` is the most of one build";
const BY_THE_KIT: &str = "the bootstrap kit says it";
const SCRIPTS: &str = "no script of bob's is run";
const SUMMARY: &str = "kilnyard.toml has nothing on pkg_summary";

/// What becomes of bob's settings, and of tables whose content is one thing here. `pkgsrc.pkgpaths` is not among
/// them: it says which packages.
const FATES: &[(&str, Fate)] = &[
    ("dynamic.jobs", Fate::Not(SHARED_OUT)),
    ("dynamic.wrkobjdir", Fate::Not("`build.work-in-memory` says whether small work folders are in memory")),
    ("environment", Fate::Not(ENVIRONMENT)),
    ("options.build_threads", Fate::To(Key::Slots)),
    ("options.dbdir", Fate::Not(IN_THE_YARD)),
    ("options.log_level", Fate::Not("kilnyard.toml has no level of messages")),
    ("options.logdir", Fate::Not(IN_THE_YARD)),
    ("options.scan_threads", Fate::Not("kilnyard.toml has no number of scanning processes")),
    (
        "options.strict_scan",
        Fate::Same(&["false"], "what cannot be scanned is left out, and the rest is built"),
    ),
    ("options.tui", Fate::Not("progress is shown where there is a terminal")),
    ("options.verbose", Fate::Not("kilnyard.toml has no level of messages")),
    ("pkgsrc.basedir", Fate::To(Key::Tree)),
    ("pkgsrc.bootstrap", Fate::To(Key::BootstrapKit)),
    ("pkgsrc.build_user", Fate::Not("builds have users of their own in their root")),
    ("pkgsrc.build_user_home", Fate::Not("builds have users of their own in their root")),
    ("pkgsrc.cachevars", Fate::Not("nothing is asked of make twice")),
    ("pkgsrc.env", Fate::Not(ENVIRONMENT)),
    ("pkgsrc.logdir", Fate::Not(IN_THE_YARD)),
    ("pkgsrc.make", Fate::To(Key::Make)),
    ("pkgsrc.packages", Fate::Not(IN_THE_YARD)),
    ("pkgsrc.pkgtools", Fate::Not(BY_THE_KIT)),
    ("pkgsrc.prefix", Fate::To(Key::Prefix)),
    ("pkgsrc.report_branch", Fate::Not("kilnyard.toml has no name of a branch")),
    ("pkgsrc.report_dir", Fate::Not(IN_THE_YARD)),
    ("pkgsrc.save_wrkdir_patterns", Fate::Not("the roots of the last failed builds are kept whole")),
    ("pkgsrc.scanenv", Fate::Not(ENVIRONMENT)),
    ("pkgsrc.tar", Fate::Not("no tar is needed")),
    ("publish.packages", Fate::Not(UPLOADS)),
    ("publish.report", Fate::Not(UPLOADS)),
    ("publish.rsync", Fate::Not(UPLOADS)),
    ("publish.rsync_args", Fate::Not(UPLOADS)),
    ("sandboxes.actions", Fate::Not(OWN_ROOTS)),
    ("sandboxes.basedir", Fate::Not(IN_THE_YARD)),
    ("sandboxes.bindfs", Fate::Not(OWN_ROOTS)),
    ("sandboxes.build", Fate::Not(OWN_ROOTS)),
    ("sandboxes.environment", Fate::Not(ENVIRONMENT)),
    ("sandboxes.hooks", Fate::Not(OWN_ROOTS)),
    ("sandboxes.setup", Fate::Not(OWN_ROOTS)),
    ("scripts", Fate::Not(SCRIPTS)),
    ("summary.compression", Fate::Not(SUMMARY)),
    ("summary.file_cksum", Fate::Not(SUMMARY)),
    ("summary.include_restricted", Fate::Not(SUMMARY)),
];

impl BobConfig {
    /// Reads a configuration.
    pub fn parse(text: &str) -> Result<BobConfig, BobConfigError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BobConfigError::TooLong { bytes: text.len() });
        }
        Ok(BobConfig { settings: lua::read(text)? })
    }

    /// The text or number of a setting, such as `pkgsrc.basedir`; none where it is something else, not set or not
    /// known.
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

    /// What becomes of each setting.
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

/// A text or number as it is carried over.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Number(text) => Some(text.clone()),
        Value::Boolean(is_true) => Some(is_true.to_string()),
        Value::Table(_) | Value::Locations(_) | Value::Unknown(_) => None,
    }
}

/// No setting is deeper; what is deeper belongs to a table with one fate.
const TABLES_MAX: usize = 2;

fn settle(moved: &mut Moved, path: &str, line: usize, value: &Value) {
    let fate = FATES.iter().find(|(known, _)| *known == path).map(|(_, fate)| *fate);
    match (value, fate) {
        (Value::Unknown(reason), _) => moved.refuse(path, line, reason),
        (_, _) if path == PKGPATHS => want(moved, line, value),
        (_, Some(Fate::Not(reason))) => moved.refuse(path, line, reason),
        (Value::Table(items), None) if path.split('.').count() < TABLES_MAX => {
            // Of several with one name the last one counts.
            let last: HashMap<&str, usize> =
                items.iter().enumerate().map(|(at, (name, _, _))| (&name[..], at)).collect();
            let counting = items.iter().enumerate().filter(|(at, (name, _, _))| last[&name[..]] == *at);
            for (_, (name, line, value)) in counting {
                settle(moved, &format!("{path}.{name}"), *line, value);
            }
        }
        (value, Some(fate)) => match shown(value) {
            Some(text) => moved.settle(path, line, &text, fate),
            None => moved.refuse(path, line, "it is neither a text nor a number"),
        },
        (_, None) => moved.refuse(path, line, "it is no setting of bob's"),
    }
}

fn want(moved: &mut Moved, line: usize, value: &Value) {
    let items = match value {
        Value::Locations(file) => return moved.want(PKGPATHS, line, Wanted::File(file.clone())),
        Value::Table(items) => items,
        _ => return moved.refuse(PKGPATHS, line, "it is no list of locations"),
    };
    let location = |value: &Value| shown(value).filter(|text| is_location(text));
    let locations: Option<Vec<String>> = items.iter().map(|(_, _, value)| location(value)).collect();
    match locations {
        // bob scans the whole tree where none is named.
        Some(locations) if locations.is_empty() => moved.want(PKGPATHS, line, Wanted::All),
        Some(locations) => moved.want(PKGPATHS, line, Wanted::Some(locations)),
        None => moved.refuse(PKGPATHS, line, "not everything in it is a location"),
    }
}

#[cfg(test)]
mod tests;
