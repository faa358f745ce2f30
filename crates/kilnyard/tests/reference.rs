//! The documents agree with the program: `docs/commands.md` is its help, and it accepts their commands and tables.

use std::fmt::Write;
use std::path::{Path, PathBuf};
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

#[test]
fn the_requests_of_workers_are_described_without_a_yard() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
    command.args(["serve", "--openapi"]).current_dir(&folder).env_remove("KILNYARD_YARD");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../farm/tests/golden/openapi.json");
    let golden = std::fs::read(golden).unwrap();
    let parsed = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
    assert_eq!(parsed(&output.stdout), parsed(&golden));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

/// Path and text of README.md and of each file in docs.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let markdown = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let read = |path: PathBuf| (path.display().to_string(), std::fs::read_to_string(&path).unwrap());
    std::iter::once(root.join("README.md")).chain(markdown).map(read).collect()
}

/// The blocks of code in this language, without their indentation.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim_start);
    while lines.by_ref().any(|line| line == format!("```{language}")) {
        blocks
            .push(lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect());
    }
    blocks
}

/// `--help` makes the program check the arguments before it, and do nothing else.
#[test]
fn the_commands_in_the_documents_are_accepted() {
    let mut count = 0;
    for (path, text) in documents() {
        let blocks = blocks(&text, "sh").concat();
        for line in blocks.lines().filter(|line| line.starts_with("kilnyard ")) {
            let words = line.split_whitespace().skip(1).take_while(|word| !word.starts_with(['#', '>']));
            let mut command = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
            let output = command.args(words).arg("--help").env_remove("KILNYARD_YARD").output().unwrap();
            assert!(output.status.success(), "{path}: {line}: {}", String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert!(count >= 15, "{count} commands");
}

#[test]
fn the_tables_in_the_documents_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        // A block shows only the keys that its section describes.
        let mut config = String::new();
        if !text.lines().any(|line| line.starts_with("packages =")) {
            config.push_str("packages = [\"hello\"]\n");
        }
        config.push_str(text);
        if text.contains("mk-conf") {
            config.push_str("[pkgsrc]\ntree = \"/usr/pkgsrc\"\nbootstrap-kit = \"kit.tar.gz\"\n");
            config.push_str("[pkgsrc.root]\nrelease = \"bookworm\"\nmirror = \"http://mirror\"\n");
        } else if !text.contains("release =") {
            let (table, debian) =
                ("[debian]\n", "[debian]\nrelease = \"bookworm\"\nmirror = \"http://mirror\"\n");
            match config.contains(table) {
                true => config = config.replace(table, debian),
                false => config.push_str(debian),
            }
        }
        std::fs::write(folder.path().join("kilnyard.toml"), &config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
        let output = command.arg("--yard").arg(folder.path()).arg("status").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        if error.contains("invalid ") { Err(format!("{config}\n{error}")) } else { Ok(()) }
    };
    let mut count = 0;
    for (path, text) in documents() {
        for block in blocks(&text, "toml") {
            // A signer's policy is a file of its own.
            if block.contains("[repository.yard]") {
                kilnyard_signer::policy::Policy::parse(&block.replace("5f…", &"5f".repeat(32))).unwrap();
                continue;
            }
            check(&block).unwrap_or_else(|error| panic!("{path}: {error}"));
            count += 1;
        }
    }
    assert!(count >= 8, "{count} tables");
    assert!(check("[root]\nno-such-key = 1\n").is_err());
}
