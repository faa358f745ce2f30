//! `[[target]]`: several targets in one yard.
//!
//! A target is the configuration of the yard with some keys replaced: `packages` and `packages-file`, keys of `[build]`
//! in a table `build`, keys of the family's table, and the family's further tables. Each target has a folder of its own with everything that a yard
//! has, except the configuration, the signing key and the repository, which all of them share.

use super::Config;
use crate::error::{Error, Result};
use crate::family::{Family, FamilyEntry, Neighbour};
use std::path::Path;
use std::sync::Arc;
use toml_edit::{DocumentMut, Item, Table};

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

/// More targets than any collection has releases and architectures.
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
        return Err(wrong(format!(
            "there are {} targets, but at most {TARGETS_MAX} are possible",
            tables.len()
        )));
    }
    let family = families.iter().find(|entry| document.contains_key(entry.name()));
    let family = *family.ok_or_else(|| wrong("no family's table".to_owned()))?;
    let mut targets: Vec<TargetConfig> = Vec::new();
    for (place, table) in tables.into_iter().enumerate() {
        let given = table.get("name").and_then(Item::as_str).map(str::to_owned);
        let merged = merge(document.clone(), table, family)
            .map_err(|reason| wrong(format!("target {}: {reason}", place + 1)))?;
        let config = Config::parse_one(&merged, path, families).map_err(|mut error| {
            let which = given.clone().unwrap_or_else(|| (place + 1).to_string());
            error.message = format!("{}: in target {which}", error.message);
            error
        })?;
        let target = config.family.target().map_err(|error| wrong(error.to_string()))?;
        let name = given.unwrap_or_else(|| format!("{}-{}", target.release(), target.architecture()));
        check_name(&name).map_err(wrong)?;
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

/// Replaces keys of the whole configuration by those of a target.
fn merge(
    mut document: DocumentMut,
    table: Table,
    family: &dyn FamilyEntry,
) -> std::result::Result<String, String> {
    for (key, value) in table {
        let key = key.as_str();
        match key {
            "name" => {
                if value.as_str().is_none() {
                    return Err("name must be a string".to_owned());
                }
            }
            "packages" | "packages-file" => {
                // A target's own set replaces the common one.
                document.remove("packages");
                document.remove("packages-file");
                document.insert(key, value);
            }
            "build" => {
                let Item::Table(build) = value else { return Err("build must be a table".to_owned()) };
                let common = document.entry("build").or_insert_with(toml_edit::table);
                let common = common.as_table_mut().ok_or("build must be a table")?;
                for (key, value) in build {
                    common.insert(&key, value);
                }
            }
            _ if family.more_tables().contains(&key) => drop(document.insert(key, value)),
            _ => {
                let name = family.name();
                let common = document.get_mut(name).and_then(Item::as_table_mut);
                common.ok_or_else(|| format!("[{name}] must be a table"))?.insert(key, value);
            }
        }
    }
    Ok(document.to_string())
}

/// Fails for a name that is no safe name of a folder.
fn check_name(name: &str) -> std::result::Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(&byte);
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with(['.', '-'])
        && name.bytes().all(is_allowed);
    is_name.then_some(()).ok_or_else(|| {
        format!("`{}` is not a name of a target: letters, digits and ._+~- are", name.escape_debug())
    })
}

impl TargetConfig {
    /// Whether a user means this target by a word: its name, its release, or its architecture.
    pub fn is_meant(&self, word: &str) -> bool {
        let target = self.config.family.target();
        self.name == word
            || target.is_ok_and(|target| target.release() == word || target.architecture() == word)
    }
}
