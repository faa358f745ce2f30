//! A file is about one thing; past 800 lines, it is about two.

use crate::source::{SourceFile, expect_none, files};

const LINES_MAX: usize = 800;

fn complaints(files: &[SourceFile]) -> Vec<String> {
    let sizes = files.iter().map(|file| (&file.path, file.text.lines().count()));
    sizes
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path} has {lines} lines; the limit is {LINES_MAX}: split it by topic"))
        .collect()
}

#[test]
fn no_source_file_is_too_long() {
    expect_none(complaints(&files(
        &["crates", "fuzz", "soak", ".ci"],
        &[".rs", ".sh", ".py", ".js", ".css", ".html", ".c", ".lua", "run", "unchanged"],
    )));
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let file = |lines: usize| SourceFile { path: format!("{lines}.rs"), text: "\n".repeat(lines) };
    let found = complaints(&[file(LINES_MAX), file(LINES_MAX + 1)]);
    assert!(found.len() == 1 && found[0].starts_with("801.rs has 801 lines"), "{found:?}");
}
