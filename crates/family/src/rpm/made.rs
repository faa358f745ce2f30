//! What the packages of the set provide as they were built: `index/made.json`. A spec file does not say which libraries, files and
//! names such as `pkgconfig(zlib)` its packages will have, so that sources that require these are resolved only with what was built.

use kilnyard_ecosystem::rpm::universe::{Entry, Package};
use kilnyard_ecosystem::rpm::version::Range;
use kilnyard_ecosystem::rpm::{SOURCE, described};
use kilnyard_store::Store;
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::yard::{Yard, store_error};
use std::collections::{BTreeMap, HashMap};

const RECORD: &str = "index/made.json";

/// The entries of packages, as a repository has them, by the names of the packages.
type Entries = BTreeMap<String, String>;

fn kept(yard: &Yard) -> Entries {
    let text = fs_err::read(yard.path(RECORD)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// The packages that were made, by name.
pub fn read(yard: &Yard) -> HashMap<String, Package> {
    kept(yard).into_iter().filter_map(|(name, entry)| Some((name, described(&entry)?))).collect()
}

/// Takes note of the current outputs. Returns whether they say more than what is known, or something else.
pub fn learn(yard: &Yard, store: &dyn Store) -> Result<bool> {
    let mut now = Entries::new();
    for row in store.outputs().map_err(store_error)? {
        if row.output.architecture != SOURCE {
            now.insert(row.output.name, row.output.description);
        }
    }
    let before = kept(yard);
    let is_new = |(name, entry): (&String, &String)| match before.get(name) {
        Some(known) if known == entry => false,
        Some(known) => {
            let facts = |entry: &String| described(entry).map(|package| lasting(&package));
            facts(known) != facts(entry)
        }
        None => true,
    };
    let is_changed = now.iter().any(is_new) || before.keys().any(|name| !now.contains_key(name));
    if is_changed {
        fs_err::create_dir_all(yard.path("index")).context(Kind::Machine, "keep what packages provide")?;
        let text = serde_json::to_vec_pretty(&now).or_internal("write what packages provide")?;
        write_whole(&yard.path(RECORD), &text)?;
    }
    Ok(is_changed)
}

/// A text that changes with what is known.
pub fn inputs(yard: &Yard) -> String {
    let text = fs_err::read_to_string(yard.path(RECORD));
    text.map(|text| kilnyard_ecosystem::hash_of(&text)).unwrap_or_default()
}

/// What a package says that a rebuild does not change.
fn lasting(package: &Package) -> [Vec<String>; 5] {
    let range = |range: &Range| match range.evr == package.evr {
        true => "its own".to_owned(),
        false => format!("{} {}", range.sense, range.evr),
    };
    let entries = |entries: &[Entry]| -> Vec<String> {
        let own = package.evr.to_string();
        let text = |entry: &Entry| match entry {
            Ok(relation) => relation.to_string().replace(&own, "its own"),
            Err(error) => error.to_string(),
        };
        entries.iter().map(text).collect()
    };
    let provides = package.provides.iter();
    let provides =
        provides.map(|one| format!("{} {}", one.name, one.range.as_ref().map(range).unwrap_or_default()));
    [
        provides.collect(),
        package.files.iter().map(|file| file.to_string()).collect(),
        entries(&package.requires),
        entries(&package.conflicts),
        package.obsoletes.iter().map(ToString::to_string).collect(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_changes_nothing_that_lasts() {
        let package = |release: &str, more: &str| {
            let entry = format!(
                "<package type=\"rpm\"><name>a</name><arch>noarch</arch><version epoch=\"0\" ver=\"1\" rel=\"{release}\"/>\
                 <checksum type=\"sha256\" pkgid=\"YES\">abc</checksum><location href=\"a.rpm\"/><format>\
                 <rpm:sourcerpm>a-1-{release}.src.rpm</rpm:sourcerpm><rpm:provides>\
                 <rpm:entry name=\"a\" flags=\"EQ\" epoch=\"0\" ver=\"1\" rel=\"{release}\"/>{more}</rpm:provides>\
                 <rpm:requires><rpm:entry name=\"b\" flags=\"EQ\" epoch=\"0\" ver=\"1\" rel=\"{release}\"/></rpm:requires>\
                 <file>/usr/bin/a</file></format></package>\n"
            );
            lasting(&described(&entry).unwrap())
        };
        assert_eq!(package("1.bk1", ""), package("1.bk2", ""));
        assert_ne!(package("1.bk1", ""), package("1.bk1", "<rpm:entry name=\"pkgconfig(a)\"/>"));
    }
}
