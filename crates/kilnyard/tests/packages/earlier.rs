//! Yards made by an earlier version.

use crate::fixtures::{Packages, Shared, Trial, good};
use crate::support::Yard;
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::order::Key;
use kilnyard_store::{Holder, Record, Store};
use kilnyard_store_sqlite::Sqlite;
use serde_json::{Value, json};
use std::fs;

pub const CASES: &[Trial] = &[("packages_of_an_earlier_version_stay_up_to_date", an_earlier_version)];

/// The name of a base root in an earlier version: from its release and a hash of its packages.
const LAYER: &str = "layers/base-bookworm-0123456789ab";

fn base(yard: &Yard) -> Value {
    serde_json::from_slice(&fs::read(yard.path("layers/base.json")).unwrap()).unwrap()
}

/// Converts a key to version 1.
fn former(key: &Key, root: &str) -> Key {
    let is_common = |line: &&String| {
        let kind = line.split(' ').next().unwrap();
        !["format", "target", "rules", "sandbox", "root"].contains(&kind)
    };
    let mut lines: Vec<String> = key.lines.iter().filter(is_common).cloned().collect();
    assert!(lines.len() + 5 == key.lines.len(), "{key:?}");
    lines.extend(["ecosystem debian amd64".to_owned(), format!("root {root}")]);
    lines.sort();
    lines.insert(0, "format kilnyard-key 1".to_owned());
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Key { digest: Sha256Hex::of(text.as_bytes()).as_str().to_owned(), lines }
}

fn an_earlier_version(shared: &Shared) {
    let yard = shared.yard("earlier", &[good("one", ""), good("two", "one")]);
    yard.build().exits(0);
    let made = base(&yard);
    let tree = made["tree"]["sha256"].as_str().unwrap();
    // The earlier base was a folder with another name, and without an archive.
    fs::rename(yard.path(&format!("layers/{tree}")), yard.path(LAYER)).unwrap();
    fs::rename(yard.path(&format!("layers/{tree}.manifest")), yard.path(&format!("{LAYER}.manifest")))
        .unwrap();
    fs::remove_dir_all(yard.path("layers/archives")).unwrap();
    let (asked, digest, packages) = (&made["asked"], &made["digest"], &made["packages"]);
    let record = json!({ "asked": asked, "layer": LAYER, "digest": digest, "packages": packages });
    fs::write(yard.path("layers/base.json"), record.to_string()).unwrap();
    // The earlier keys were different, too.
    let target = "debian/linux/bookworm/amd64".parse().unwrap();
    let mut store = Sqlite::open(&yard.path("state/kilnyard.db"), &target).unwrap();
    let key = |store: &Sqlite, package: &str| store.current(package).unwrap().unwrap().key;
    store.lead(&Holder::named("test")).unwrap();
    for package in ["one", "two"] {
        let key = former(&key(&store, package), digest.as_str().unwrap());
        store.record(&[Record::KeyConfirmed { package: package.to_owned(), key }]).unwrap();
    }
    drop(store);
    // The packages are up to date before the base is packed, and after.
    yard.run(&["plan"]).exits(0).says(&["0 packages to build, 2 up to date"]);
    yard.build().exits(0).says(&["packing the base root", "nothing to do: 2 up-to-date"]);
    // The same files make the same artifact.
    assert_eq!(base(&yard)["tree"], made["tree"]);
    assert!(!yard.path(LAYER).exists());
    yard.build().exits(0).says(&["nothing to do: 2 up-to-date"]);
    // A later change is still detected, and is given as the reason.
    let config = yard.read("kilnyard.toml").replace("# checks = false", "checks = true");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    let planned = yard.json(&["plan", "--json"]).to_string();
    assert!(planned.contains("option checks changed from false to true"), "{planned}");
    assert!(!planned.contains("root changed") && !planned.contains("target changed"), "{planned}");
    yard.build().exits(0);
    let store = Sqlite::open_to_read(&yard.path("state/kilnyard.db"), &target).unwrap();
    assert_eq!(key(&store, "one").lines[0], "format kilnyard-key 2");
}
