//! Dependencies between crates: ARCHITECTURE.md's table matches the manifests, and no crate uses a higher floor.

use crate::source::{SourceFile, expect_none, files};
use std::collections::{BTreeMap, BTreeSet};

/// This crate is not part of a program, and not on a floor.
const GUARDS: &str = "guards";
/// The name of a package is this prefix and the name of its folder.
const PREFIX: &str = "kilnyard-";

/// Pure crates, which only decide. `PURE_USES` are the external crates that they may use: data, errors and a hash,
/// which only compute.
pub const PURE: [&str; 5] = ["model", "schedule", "protocol", "coordinator", "agent"];
const PURE_USES: [&str; 4] = ["serde", "serde_json", "sha2", "thiserror"];

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub floor: u32,
    uses: BTreeSet<String>,
}

/// Parses the table of floors, by crate. Its columns are floor, crate, purpose, and the used crates.
pub fn table(architecture: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for line in architecture.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, floor, name, _, uses, _] = cells[..] else { continue };
        let Ok(floor) = floor.parse() else { continue };
        let names = uses.split(',').map(|name| name.trim().trim_matches('`').to_owned());
        let uses = names.filter(|name| !name.is_empty()).collect();
        rows.insert(name.trim_matches('`').to_owned(), Row { floor, uses });
    }
    rows
}

/// The table of the repository.
pub fn table_of_the_repository() -> BTreeMap<String, Row> {
    let architecture = files(&["ARCHITECTURE.md"], &[]).remove(0);
    table(&architecture.text)
}

/// The dependencies and build dependencies in a manifest: crates of this repository, and external crates.
fn uses_of(manifest: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let manifest: toml::Table = manifest.parse().expect("a manifest is TOML");
    let mut tables = vec![&manifest];
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    tables.extend(targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table));
    let mut names = BTreeSet::new();
    for table in tables {
        for key in ["dependencies", "build-dependencies"] {
            let uses = table.get(key).and_then(toml::Value::as_table);
            names.extend(uses.into_iter().flat_map(|uses| uses.keys().cloned()));
        }
    }
    let (own, others) = names.into_iter().partition(|name| name.starts_with(PREFIX));
    let short = |names: BTreeSet<String>| names.iter().map(|name| name[PREFIX.len()..].to_owned()).collect();
    (short(own), others)
}

/// Compares the table with the manifests of the folders in `crates`.
fn complaints(table: &BTreeMap<String, Row>, manifests: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for manifest in manifests {
        let name = crate::source::crate_of(&manifest.path);
        if name == GUARDS {
            continue;
        }
        seen.insert(name.to_owned());
        let (uses, others) = uses_of(&manifest.text);
        let Some(row) = table.get(name) else {
            complaints.push(format!("{name} is missing from ARCHITECTURE.md's table of floors"));
            continue;
        };
        if uses != row.uses {
            let list = |names: &BTreeSet<String>| {
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            };
            complaints.push(format!(
                "{name}: ARCHITECTURE.md's table says that it uses {}; its manifest says {}",
                list(&row.uses),
                list(&uses)
            ));
        }
        for used in &uses {
            if table.get(used).is_some_and(|used| used.floor > row.floor) {
                complaints.push(format!("{name} uses {used}, which is on a higher floor"));
            }
        }
        let is_pure = PURE.contains(&name);
        for other in others.iter().filter(|other| is_pure && !PURE_USES.contains(&other.as_str())) {
            complaints
                .push(format!("{name} is pure and uses {other}: only {} are allowed", PURE_USES.join(", ")));
        }
    }
    let gone = table.keys().filter(|name| !seen.contains(*name));
    complaints.extend(
        gone.map(|name| format!("ARCHITECTURE.md's table of floors has {name}, which is not a crate")),
    );
    complaints
}

#[test]
fn crates_use_what_the_table_of_floors_allows() {
    let mut manifests = files(&["crates"], &["Cargo.toml"]);
    manifests.retain(|manifest| manifest.path.split('/').count() == 3);
    expect_none(complaints(&table_of_the_repository(), &manifests));
}

#[test]
fn a_crate_that_uses_a_higher_floor_is_found() {
    let table = table(
        "| floor | crate | what it is for | uses |\n|---|---|---|---|\n| 0 | `model` | names | |\n\
         | 1 | `root` | roots | `model` |\n| 2 | `store` | rows | `model`, `root` |\n| 3 | `gone` | | |\n",
    );
    assert_eq!(table["store"].uses.len(), 2);
    let manifest = |name: &str, text: &str| SourceFile {
        path: format!("crates/{name}/Cargo.toml"),
        text: text.to_owned(),
    };
    let found = complaints(
        &table,
        &[
            manifest(
                "model",
                "[dependencies]\nlibc.workspace = true\nserde.workspace = true\n[dev-dependencies]\ntempfile = \"3\"",
            ),
            manifest(
                "root",
                "[target.'cfg(unix)'.dependencies]\nkilnyard-model = \"1\"\nkilnyard-store = \"1\"",
            ),
            manifest(
                "store",
                "[dependencies]\nkilnyard-model = \"1\"\n[build-dependencies]\nkilnyard-root = \"1\"",
            ),
            manifest("new", ""),
        ],
    );
    let expected = [
        "model is pure and uses libc",
        "root: ARCHITECTURE.md's table says that it uses `model`; its manifest says `model`, `store`",
        "root uses store, which is on a higher floor",
        "new is missing from ARCHITECTURE.md's table",
        "ARCHITECTURE.md's table of floors has gone",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (complaint, start) in found.iter().zip(expected) {
        assert!(complaint.starts_with(start), "{complaint}");
    }
}
