//! A package family is named only in its own folders, so that adding a family does not need changes elsewhere.

use crate::source::{SourceFile, expect_none, program, tokens};
use std::collections::BTreeSet;

/// Words that belong to one family: its name, its tools, its files. `bob` is another builder, and does not count.
const NAMES: [&str; 15] = [
    "debian",
    "deb",
    "debs",
    "dpkg",
    "apt",
    "mmdebstrap",
    "dsc",
    "sbuild",
    "pkgsrc",
    "pbulk",
    "bmake",
    "rpm",
    "rpmbuild",
    "srpm",
    "repomd",
];

/// The folders of the families. The file with the same name and `.rs` also counts.
const HOMES: [&str; 14] = [
    "crates/ecosystem/src/debian",
    "crates/ecosystem/src/pkgsrc",
    "crates/ecosystem/src/rpm",
    "crates/bench/src/debian",
    "crates/bench/src/pkgsrc",
    "crates/bench/src/rpm",
    "crates/family/src/debian",
    "crates/family/src/pkgsrc",
    "crates/family/src/rpm",
    "crates/signer/src/audit/files",
    "crates/signer/src/judge/checksums",
    "crates/signer/src/judge/lists",
    "crates/signer/src/judge/release",
    "crates/signer/src/sources",
];

/// The files that list the families.
const DOORS: [&str; 4] = [
    "crates/bench/src/lib.rs",
    "crates/ecosystem/src/lib.rs",
    "crates/ecosystem/src/rules.rs",
    "crates/family/src/lib.rs",
];

/// Other files that may use these words, and why.
const OTHERS: [(&str, &str); 3] = [
    ("crates/yard/src/host.rs", "the package manager of this machine, whatever is built on it"),
    ("crates/vm/src/emulator.rs", "what unpacks a kernel on this machine, whatever is built in it"),
    ("crates/vm/src/kernel.rs", "the package manager of this machine, whatever is built on its kernels"),
];

/// Finds a word of a family in an identifier or a text: `DebianRoot`, `pkgsrc_tree`, `"apt-get install"`.
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

fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut others = BTreeSet::new();
    for file in files.iter().filter(|file| !is_at_home(&file.path)) {
        let first = tokens(&file.text).into_iter().find_map(|token| Some((token.line, named(&token.text)?)));
        let Some((line, name)) = first else { continue };
        match OTHERS.iter().find(|(path, _)| *path == file.path) {
            Some((path, _)) => drop(others.insert(*path)),
            None => complaints
                .push(format!("{}:{line}: names `{name}`, which only a family's own folder may", file.path)),
        }
    }
    let gone = OTHERS
        .iter()
        .filter(|(path, _)| files.iter().any(|file| file.path == *path) && !others.contains(path));
    complaints.extend(gone.map(|(path, _)| format!("{path} names no family: remove it from the list")));
    complaints
}

#[test]
fn families_are_named_only_in_their_folders() {
    expect_none(complaints(&program()));
}

#[test]
fn a_family_named_elsewhere_is_found() {
    let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("crates/ecosystem/src/debian/a.rs", "struct Debian;"),
        file("crates/ecosystem/src/debian.rs", "struct Debian;"),
        file("crates/ecosystem/src/debianlike.rs", "\nstruct DebianRoot;"),
        file("crates/worker/src/a.rs", "// debian\nfn a() { \"capture the adept's debit\" }"),
        file("crates/worker/src/b.rs", "fn a() { run(\"apt-get install\") }"),
        file("crates/worker/src/c.rs", "fn of_pkgsrc() {}"),
        file("crates/worker/src/d.rs", "fn pure() {}"),
        file(OTHERS[0].0, "fn pure() {}"),
    ];
    let found = complaints(&files);
    let expected = [
        "crates/ecosystem/src/debianlike.rs:2: names `debian`",
        "crates/worker/src/b.rs:1: names `apt`",
        "crates/worker/src/c.rs:1: names `pkgsrc`",
        "crates/yard/src/host.rs names no family",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (complaint, start) in found.iter().zip(expected) {
        assert!(complaint.starts_with(start), "{complaint}");
    }
}
