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
    ("besides", "also, as well"),
    ("beside it", "with it, next to it"),
    ("told", "reported, printed, given"),
    ("at the least", "at least"),
    ("such a one", "one"),
];

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
    expect_none(all.iter().flat_map(words_to_avoid).collect());
}

#[test]
fn a_word_to_avoid_is_found() {
    let text = "A run that is *going\non*.\nNobody, a bodyguard: goes-on.\n".to_owned();
    let found = words_to_avoid(&SourceFile { path: "a.md".to_owned(), text });
    let starts = ["a.md:3: `nobody`", "a.md:3: `goes on`"];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    assert!(found.iter().zip(starts).all(|(one, start)| one.starts_with(start)), "{found:?}");
}
