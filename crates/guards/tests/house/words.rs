//! Documentation, help, comments and messages are in plain modern English. A search finds some words to avoid, also in
//! names. `docs/commands.md` contains the program's help.

use crate::source::{SourceFile, expect_none, files};

/// Phrases to avoid, each with a replacement.
const INSTEAD: &[(&str, &str)] = &[
    ("somebody", "a person, a user, or the passive"),
    ("nobody", "no user, no process, or the passive"),
    ("whoever", "the user who"),
    ("so many", "a number, or `this many`"),
    ("goes on", "continues"),
    ("going on", "running, or `in progress`"),
    ("looked at", "checked, inspected, sampled"),
    ("looks at", "checks, inspects, samples"),
    ("is right", "is valid, is correct"),
];

/// Files, and folders with a trailing slash, that still have such words. An entry without them must be removed; no
/// entry is added.
const STILL: &[&str] = &["crates/process/", "docs/commands.md"];

fn complaints(files: &[SourceFile], still: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut needed = vec![false; still.len()];
    for file in files {
        let found = words_to_avoid(file);
        let is_in =
            |entry: &&str| *entry == file.path || entry.ends_with('/') && file.path.starts_with(*entry);
        match still.iter().position(is_in) {
            Some(entry) => needed[entry] |= !found.is_empty(),
            None => complaints.extend(found),
        }
    }
    let unneeded = still.iter().zip(needed).filter(|(_, is_needed)| !is_needed);
    complaints
        .extend(unneeded.map(|(entry, _)| format!("{entry} has no word to avoid: remove it from the list")));
    complaints
}

fn words_to_avoid(file: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let words: Vec<String> = line
            .split(|character: char| !character.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let line = format!(" {} ", words.join(" "));
        for (phrase, instead) in INSTEAD {
            if line.contains(&format!(" {phrase} ")) {
                found.push(format!("{}:{}: `{phrase}`: write {instead}", file.path, number + 1));
            }
        }
    }
    found
}

#[test]
fn words_to_avoid_are_avoided() {
    let mut all = files(&["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs"], &[".md"]);
    all.extend(files(&["crates", "fuzz", "soak"], &[".rs"]));
    // This file lists them.
    all.retain(|file| !file.path.ends_with("house/words.rs"));
    expect_none(complaints(&all, STILL));
}

#[test]
fn a_word_to_avoid_is_found() {
    let text = "A run that is *going\non*.\nNobody, a bodyguard: goes-on.\n".to_owned();
    let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("a.md", &text),
        file("old/one.rs", &text),
        file("old/two.rs", "A run that continues."),
        file("new.md", "A run that continues."),
    ];
    let found = complaints(&files, &["old/", "new.md"]);
    let starts = ["a.md:3: `nobody`", "a.md:3: `goes on`", "new.md has no word to avoid"];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    assert!(found.iter().zip(starts).all(|(one, start)| one.starts_with(start)), "{found:?}");
}
