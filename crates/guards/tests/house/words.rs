//! Documentation and help are in plain modern English: some words that the house does without are found by a search.
//! `docs/commands.md` is what the program's help says, so that it is checked here too.

use crate::source::{SourceFile, expect_none, files};

/// Phrases, each with what to write instead.
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

/// Texts that are still in older words. A line leaves the list when its file has none any more; none is added.
const STILL: &[&str] = &["docs/commands.md", "docs/fakeroot.md", "docs/monitor.md", "docs/security.md"];

fn complaints(files: &[SourceFile], still: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let before = complaints.len();
        for (number, line) in file.text.lines().enumerate() {
            let words: Vec<String> = line
                .split(|character: char| !character.is_alphanumeric())
                .filter(|word| !word.is_empty())
                .map(str::to_lowercase)
                .collect();
            let line = format!(" {} ", words.join(" "));
            for (phrase, instead) in INSTEAD {
                if line.contains(&format!(" {phrase} ")) {
                    complaints.push(format!("{}:{}: `{phrase}`: write {instead}", file.path, number + 1));
                }
            }
        }
        match (still.contains(&file.path.as_str()), complaints.len() > before) {
            (true, true) => complaints.truncate(before),
            (true, false) => {
                complaints.push(format!("{} keeps to the words: take it off the list", file.path))
            }
            (false, _) => {}
        }
    }
    complaints
}

#[test]
fn documentation_keeps_to_the_words_of_the_house() {
    expect_none(complaints(&files(&["README.md", "ARCHITECTURE.md", "docs"], &[".md"]), STILL));
}

#[test]
fn a_word_to_avoid_is_found() {
    let text = "A run that is *going\non*.\nNobody, a bodyguard: goes-on.\n".to_owned();
    let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
    let files = [file("a.md", &text), file("old.md", &text), file("new.md", "A run that continues.")];
    let found = complaints(&files, &["old.md", "new.md"]);
    let starts = ["a.md:3: `nobody`", "a.md:3: `goes on`", "new.md keeps to the words"];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    assert!(found.iter().zip(starts).all(|(one, start)| one.starts_with(start)), "{found:?}");
}
