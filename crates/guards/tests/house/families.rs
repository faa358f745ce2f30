//! A family of packages is named in its own folders, so that a new one is a folder and no hunt through the house.

use crate::source::{SourceFile, expect_none, program, tokens};
use std::collections::BTreeSet;

/// What belongs to one family alone: its name, its tools, its files. `bob` is another builder, of no family alone.
const NAMES: [&str; 11] =
    ["debian", "deb", "debs", "dpkg", "apt", "mmdebstrap", "dsc", "sbuild", "pkgsrc", "pbulk", "bmake"];

/// Where families are at home: these folders, and the file beside each.
const HOMES: [&str; 4] = [
    "crates/ecosystem/src/debian",
    "crates/ecosystem/src/pkgsrc",
    "crates/family/src/debian",
    "crates/family/src/pkgsrc",
];

/// The doors of the families, which list them.
const DOORS: [&str; 3] =
    ["crates/ecosystem/src/lib.rs", "crates/ecosystem/src/rules.rs", "crates/family/src/lib.rs"];

/// Files that still name a family. A line leaves the list when its file does not any more; none is added.
const STILL: &[&str] = &[
    "crates/bench/src/check.rs",
    "crates/bench/src/convert.rs",
    "crates/bench/src/overhead.rs",
    "crates/bench/src/overhead/sbuild.rs",
    "crates/bench/src/publish.rs",
    "crates/bench/src/scratch.rs",
    "crates/bench/src/synthetic.rs",
    "crates/bench/src/tree.rs",
    "crates/bench/src/tree/first_build.rs",
    "crates/bench/src/tree/rescan.rs",
    "crates/bench/src/tree/resolving.rs",
    "crates/bench/src/tree/sham.rs",
    "crates/ecosystem/src/telling.rs",
    "crates/kilnyard/src/cli.rs",
    "crates/kilnyard/src/commands.rs",
    "crates/kilnyard/src/commands/bench.rs",
    "crates/kilnyard/src/commands/check.rs",
    "crates/kilnyard/src/commands/demo.rs",
    "crates/kilnyard/src/commands/doctor.rs",
    "crates/kilnyard/src/commands/history.rs",
    "crates/kilnyard/src/commands/index.rs",
    "crates/kilnyard/src/commands/init.rs",
    "crates/kilnyard/src/commands/init/other.rs",
    "crates/kilnyard/src/commands/plan.rs",
    "crates/kilnyard/src/commands/plan_pbulk.rs",
    "crates/kilnyard/src/commands/resolve.rs",
    "crates/kilnyard/src/commands/scan.rs",
    "crates/kilnyard/src/commands/scan_tree.rs",
    "crates/kilnyard/src/commands/simulate/graph.rs",
    "crates/publish/src/index.rs",
    "crates/root/src/block/needs.rs",
    "crates/yard/src/causes.rs",
];

/// The name of a family in an identifier or a text: `DebianRoot`, `pkgsrc_tree`, `"apt-get install"`.
fn named(text: &str) -> Option<&'static str> {
    let mut start = 0;
    let mut before = ' ';
    let ends = text.char_indices().chain([(text.len(), ' ')]);
    for (at, character) in ends {
        let is_part = character.is_ascii_alphabetic()
            && !(character.is_ascii_uppercase() && before.is_ascii_lowercase());
        if !is_part {
            let word = text[start..at].to_ascii_lowercase();
            if let Some(name) = NAMES.iter().find(|name| **name == word) {
                return Some(name);
            }
            start = if character.is_ascii_alphabetic() { at } else { at + character.len_utf8() };
        }
        before = character;
    }
    None
}

fn is_at_home(path: &str) -> bool {
    let is_of =
        |home: &str| path.strip_prefix(home).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'));
    DOORS.contains(&path) || HOMES.iter().any(|home| is_of(home))
}

fn complaints(files: &[SourceFile], still: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut naming = BTreeSet::new();
    for file in files.iter().filter(|file| !is_at_home(&file.path)) {
        let first = tokens(&file.text).into_iter().find_map(|token| Some((token.line, named(&token.text)?)));
        let Some((line, name)) = first else { continue };
        naming.insert(file.path.as_str());
        if !still.contains(&file.path.as_str()) {
            complaints.push(format!("{}:{line}: names `{name}`: only a family's own folder does", file.path));
        }
    }
    let gone = still.iter().filter(|path| !naming.contains(**path));
    complaints.extend(gone.map(|path| format!("{path} names no family any more: take it off the list")));
    complaints
}

#[test]
fn families_are_named_at_home() {
    expect_none(complaints(&program(), STILL));
}

#[test]
fn the_list_has_each_file_once_and_in_order() {
    assert!(STILL.is_sorted_by(|left, right| left < right));
}

#[test]
fn a_family_abroad_is_found() {
    let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("crates/ecosystem/src/debian/a.rs", "struct Debian;"),
        file("crates/ecosystem/src/debian.rs", "struct Debian;"),
        file("crates/ecosystem/src/debianlike.rs", "\nstruct DebianRoot;"),
        file("crates/worker/src/a.rs", "// debian\nfn a() { \"capture the adept's debit\" }"),
        file("crates/worker/src/b.rs", "fn a() { run(\"apt-get install\") }"),
        file("crates/worker/src/c.rs", "fn of_pkgsrc() {}"),
        file("crates/worker/src/d.rs", "fn pure() {}"),
    ];
    let found = complaints(&files, &["crates/worker/src/c.rs", "crates/worker/src/d.rs"]);
    let expected = [
        "crates/ecosystem/src/debianlike.rs:2: names `debian`",
        "crates/worker/src/b.rs:1: names `apt`",
        "crates/worker/src/d.rs names no family any more",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (complaint, start) in found.iter().zip(expected) {
        assert!(complaint.starts_with(start), "{complaint}");
    }
}
