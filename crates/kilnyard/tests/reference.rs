//! The reference of the command line: `docs/commands.md` is the program's own help.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Appends the `--help` of a command and its subcommands.
fn describe(words: &[&str], text: &mut String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
    command.args(words).arg("--help").env_remove("KILNYARD_YARD").env("NO_COLOR", "1").env("COLUMNS", "100");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let name = std::iter::once("kilnyard").chain(words.iter().copied()).collect::<Vec<_>>().join(" ");
    let _ = write!(text, "\n## {name}\n\n```text\n");
    for line in help.trim_end().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str("```\n");
    let below =
        help.split_once("Commands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap_or(""));
    // Names are indented by two spaces; continuation lines are indented further.
    let names = below.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        describe(&[words, &[name]].concat(), text);
    }
}

#[test]
fn the_reference_matches_the_help() {
    let mut text =
        "# Commands\n\nThe output of `kilnyard --help` and of each command's `--help`.\n".to_owned();
    describe(&[], &mut text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("KILNYARD_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = text.lines().zip(kept.lines()).find(|(now, then)| now != then);
    let advice = "if the change is intended: KILNYARD_UPDATE=1 cargo test -p kilnyard --test reference";
    assert!(text == kept, "first different line: {first:?}; {advice}");
}
