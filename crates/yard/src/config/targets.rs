//! `[[target]]`: several targets in one yard.
//!
//! A target is the configuration of the yard with some keys replaced: `packages` and `packages-file`, keys of
//! `[build]` in a table `build`, keys of the family's table, and the family's further tables. Each target has its own
//! folder with everything that a yard has, except the configuration, the signing key and the repository, which all
//! targets share.

use super::Config;
use crate::error::{Error, Result};
use crate::family::{Family, FamilyEntry, Neighbour};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml_edit::{DocumentMut, Item, Table, Value};

/// A target of a yard.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Its name in options and messages, and the name of its folder.
    pub name: String,
    /// The configuration of the yard with the keys of this target.
    pub config: Config,
}

/// The name of the tables.
pub(super) const TABLE: &str = "target";

/// Tables that all targets share.
const SHARED: [&str; 7] = ["farm", "limits", "package", "repository", "retry", "root", TABLE];

/// More than the releases and architectures of any collection.
const TARGETS_MAX: usize = 256;
/// The longest name.
const NAME_BYTES_MAX: usize = 100;

/// Parses the targets of a configuration; none if it has no `[[target]]`. `text` is valid TOML.
///
/// # Errors
/// A target is invalid; the message names it.
pub(super) fn parse(
    text: &str,
    path: &Path,
    families: &[&'static dyn FamilyEntry],
) -> Result<Vec<TargetConfig>> {
    let wrong = |reason: String| Error::usage(format!("{}: {reason}", path.display()));
    let mut document: DocumentMut = text.parse().map_err(|error| wrong(format!("{error}")))?;
    let Some(tables) = document.remove(TABLE) else { return Ok(Vec::new()) };
    let Ok(tables) = tables.into_array_of_tables() else {
        return Err(wrong("target must be an array of tables: write [[target]]".to_owned()));
    };
    if tables.len() > TARGETS_MAX {
        return Err(wrong(format!("there are {} targets; the maximum is {TARGETS_MAX}", tables.len())));
    }
    let family = families.iter().find(|entry| document.contains_key(entry.name()));
    let family = *family.ok_or_else(|| wrong("no family's table".to_owned()))?;
    if !family.has_targets() {
        return Err(wrong(format!("[[target]]: a yard of [{}] has a single target", family.name())));
    }
    let places = places(text);
    let mut targets: Vec<TargetConfig> = Vec::new();
    for (place, table) in tables.into_iter().enumerate() {
        let given = table.get("name").and_then(Item::as_str).map(str::to_owned);
        if let Some(name) = &given {
            check_name(name).map_err(|reason| wrong(format!("target {}: {reason}", place + 1)))?;
        }
        let which = given.clone().unwrap_or_else(|| (place + 1).to_string());
        let wrong = |reason: String| wrong(format!("target {which}: {reason}"));
        let merged = merge(document.clone(), table, families, family).map_err(wrong)?;
        let unreadable = |error: toml::de::Error| {
            let from = places.get(place).copied().unwrap_or(text.len());
            let mut wrong = Error::usage(format!("invalid {}", path.display()));
            wrong.causes = causes(&error, &merged, text, from);
            wrong
        };
        let config = Config::parse_one(&merged, path, families, &unreadable).map_err(|mut error| {
            error.message = format!("{}: in target {which}", error.message);
            error
        })?;
        let target = config.family.target().map_err(|error| wrong(error.to_string()))?;
        let name = given.unwrap_or_else(|| format!("{}-{}", target.release(), target.architecture()));
        check_name(&name).map_err(|reason| wrong(format!("{reason}; give it a `name`")))?;
        if targets.iter().any(|other| other.name == name) {
            return Err(wrong(format!("two targets are named {name}: give one of them another `name`")));
        }
        if let Some(other) = targets.iter().find(|other| other.config.family.target() == Ok(target.clone())) {
            let other = &other.name;
            return Err(wrong(format!(
                "the targets {other} and {name} are both {target}: a repository has one of each"
            )));
        }
        targets.push(TargetConfig { name, config });
    }
    let families: Vec<Arc<dyn Family>> = targets.iter().map(|target| target.config.family.clone()).collect();
    for (place, target) in targets.iter_mut().enumerate() {
        for (other, family) in families.iter().enumerate().filter(|(other, _)| *other != place) {
            let order = if other < place { Neighbour::Earlier } else { Neighbour::Later };
            if let Some(changed) = target.config.family.beside(&**family, order) {
                target.config.family = changed;
            }
        }
    }
    Ok(targets)
}

/// The offsets at which the tables of the targets begin.
fn places(text: &str) -> Vec<usize> {
    let document = toml_edit::Document::parse(text).ok();
    let spans = document.and_then(|document| match document.get(TABLE)? {
        Item::ArrayOfTables(tables) => Some(tables.iter().map(Table::span).collect()),
        Item::Value(value) => Some(value.as_array()?.iter().map(Value::span).collect()),
        _ => None,
    });
    let spans: Vec<Option<Range<usize>>> = spans.unwrap_or_default();
    spans.into_iter().map(|span| span.map_or(text.len(), |span| span.start)).collect()
}

/// The causes of an error in the merged configuration of a target, with the line of the file that contains it. `from`
/// is the offset of the target's table.
fn causes(error: &toml::de::Error, merged: &str, text: &str, from: usize) -> Vec<String> {
    let line = error.span().and_then(|span| {
        let begin = merged.get(..span.start)?.rfind('\n').map_or(0, |place| place + 1);
        merged.get(begin..)?.lines().next().map(str::trim)
    });
    let first = text.bytes().take(from).filter(|byte| *byte == b'\n').count();
    // The merged lines are those of the file, but in another order.
    let mut lines = text.lines().enumerate().skip(first);
    let number = line.and_then(|line| lines.find(|(_, other)| other.trim() == line));
    let place = number.map(|(number, line)| format!("line {}: {}", number + 1, line.trim()));
    place.into_iter().chain(error.message().lines().map(str::to_owned)).collect()
}

/// Replaces keys of the whole configuration by those of a target.
fn merge(
    mut document: DocumentMut,
    table: Table,
    families: &[&'static dyn FamilyEntry],
    family: &dyn FamilyEntry,
) -> std::result::Result<String, String> {
    // A target's own set replaces the common one.
    if ["packages", "packages-file"].iter().any(|key| table.contains_key(key)) {
        document.remove("packages");
        document.remove("packages-file");
    }
    for (key, value) in table {
        let key = key.as_str();
        match key {
            "name" => {
                if value.as_str().is_none() {
                    return Err("name must be a string".to_owned());
                }
            }
            "packages" | "packages-file" => drop(document.insert(key, value)),
            "build" => {
                let build = value.into_table().map_err(|_| "build must be a table")?;
                let common = table_of(&mut document, "build")?;
                for (key, value) in build {
                    common.insert(&key, value);
                }
            }
            _ if family.more_tables().contains(&key) => drop(document.insert(key, value)),
            _ if SHARED.contains(&key) || families.iter().any(|entry| entry.name() == key) => {
                return Err(format!(
                    "a target cannot set {key}, only packages, packages-file, keys of [{0}] and [build]",
                    family.name()
                ));
            }
            _ => drop(table_of(&mut document, family.name())?.insert(key, value)),
        }
    }
    Ok(document.to_string())
}

/// A table of the configuration, which may be written inline. An absent one is added.
fn table_of<'a>(document: &'a mut DocumentMut, name: &str) -> std::result::Result<&'a mut Table, String> {
    let item = document.entry(name).or_insert_with(toml_edit::table);
    if item.is_inline_table() {
        let table = std::mem::take(item).into_table();
        *item = Item::Table(table.unwrap_or_default());
    }
    item.as_table_mut().ok_or_else(|| format!("{name} must be a table"))
}

/// Fails for a name that is not safe as a folder name.
fn check_name(name: &str) -> std::result::Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(&byte);
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with(['.', '-'])
        && name.bytes().all(is_allowed);
    is_name.then_some(()).ok_or_else(|| {
        format!("`{}` is not a valid target name: use letters, digits and ._+~-", name.escape_debug())
    })
}

impl TargetConfig {
    /// Whether a word names this target: by its name, its release, or its architecture.
    pub fn is_meant(&self, word: &str) -> bool {
        let target = self.config.family.target();
        self.name == word
            || target.is_ok_and(|target| target.release() == word || target.architecture() == word)
    }
}
