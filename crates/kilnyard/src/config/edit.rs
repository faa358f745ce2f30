//! Writes settings of a table into a configuration, and leaves every other byte as it is.
//!
//! Lines are looked at, not a parsed document: what a person wrote stays as it was written. Whether that came to what was
//! meant is then seen by reading both texts: they must differ in these settings alone. So a text of a shape that is
//! not known here, such as a table written in one line, is refused and never spoilt.

use std::fmt;
use toml::{Table, Value};

/// Why settings were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The configuration says something else already.
    SaysOtherwise {
        /// The line, from 1.
        line: usize,
        /// What it says.
        says: String,
    },
    /// The text has a shape that is not known here.
    Shape(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::SaysOtherwise { line, says } => write!(f, "line {line} says `{says}` already"),
            Refusal::Shape(table) => {
                write!(f, "the table [{table}] is written in a way that cannot be changed line by line")
            }
        }
    }
}

/// A text with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// All of it.
    pub text: String,
    /// The lines that went, after `-`, and those that came, after `+`.
    pub changes: Vec<String>,
}

/// What becomes of what a person set otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It is refused.
    Refuse,
    /// It is replaced.
    Replace,
}

/// The text with these settings in this table: keys, and values as TOML has them.
pub fn set(
    text: &str,
    table: &str,
    settings: &[(&str, &str)],
    otherwise: Otherwise,
) -> Result<Edited, Refusal> {
    let shape = || Refusal::Shape(table.to_owned());
    let before: Table = text.parse().map_err(|_| shape())?;
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut changes = Vec::new();
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let head = match lines.iter().position(|line| is_head(line, table)) {
        Some(head) => head,
        None => {
            if let Some(last) = lines.last_mut() {
                if !last.ends_with('\n') {
                    last.push_str(newline);
                }
                lines.push(newline.to_owned());
            }
            lines.push(format!("[{table}]{newline}"));
            changes.push(format!("+[{table}]"));
            lines.len() - 1
        }
    };
    if !lines[head].ends_with('\n') {
        lines[head].push_str(newline);
    }
    let end = lines[head + 1..].iter().position(|line| line.trim_start().starts_with('['));
    let end = end.map_or(lines.len(), |end| head + 1 + end);
    let mut added = Vec::new();
    for (key, value) in settings {
        let known = (head + 1..end).find(|at| key_of(&lines[*at]).is_some_and(|known| known == *key));
        let Some(at) = known else {
            added.push(format!("{key} = {value}{newline}"));
            changes.push(format!("+{key} = {value}"));
            continue;
        };
        let is_same = before.get(table).and_then(|table| table.get(*key)) == Some(&value_of(value)?);
        if is_same {
            continue;
        }
        match otherwise {
            Otherwise::Refuse => {
                let says = lines[at].trim().to_owned();
                return Err(Refusal::SaysOtherwise { line: at + 1, says });
            }
            Otherwise::Replace => {
                let new = replaced(&lines[at], value).ok_or_else(shape)?;
                let shown = |mark: char, line: &str| format!("{mark}{}", line.trim_end());
                changes.extend([shown('-', &lines[at]), shown('+', &new)]);
                lines[at] = new;
            }
        }
    }
    lines.splice(head + 1..head + 1, added);
    let text = lines.concat();
    let is_meant = text.parse::<Table>().is_ok_and(|after| after == with(before, table, settings));
    if is_meant { Ok(Edited { text, changes }) } else { Err(shape()) }
}

/// A configuration with settings, as it is read.
fn with(mut all: Table, table: &str, settings: &[(&str, &str)]) -> Table {
    let part = all.entry(table).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(part) = part {
        let values = settings.iter().filter_map(|(key, value)| Some((key, value_of(value).ok()?)));
        part.extend(values.map(|(key, value)| ((*key).to_owned(), value)));
    }
    all
}

fn value_of(text: &str) -> Result<Value, Refusal> {
    let table = format!("value = {text}").parse::<Table>();
    let value = table.ok().and_then(|mut table| table.remove("value"));
    value.ok_or_else(|| Refusal::Shape(text.to_owned()))
}

/// Whether a line begins this table.
fn is_head(line: &str, table: &str) -> bool {
    let inner = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']'));
    inner.is_some_and(|(name, _)| name.trim() == table)
}

/// The key that a line sets.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    Some(key.trim()).filter(|key| !key.starts_with('#'))
}

/// A line with another value; what follows the old one stays.
fn replaced(line: &str, value: &str) -> Option<String> {
    let (key, rest) = line.split_once('=')?;
    let old = rest.trim_start();
    let space = &rest[..rest.len() - old.len()];
    // Values that are written here are strings in one line.
    let quote = old.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    let end = old[1..].find(quote)? + 2;
    Some(format!("{key}={space}{value}{}", &old[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, debian_template};
    use std::path::Path;

    const MEMORY: [(&str, &str); 2] = [("backend", "\"overlay\""), ("scratch", "\"memory\"")];

    fn refused(text: &str) -> Result<String, Refusal> {
        set(text, "root", &MEMORY, Otherwise::Refuse).map(|edited| edited.text)
    }

    #[test]
    fn a_new_configuration_gets_two_lines_below_its_table_and_is_read() {
        let text = debian_template("bookworm", "http://deb.example/debian", &["zlib".into()]);
        let after = refused(&text).unwrap();
        assert_eq!(after.replacen("backend = \"overlay\"\nscratch = \"memory\"\n", "", 1), text);
        assert!(after.contains("\n[root]\nbackend = \"overlay\"\nscratch = \"memory\"\n# backend"));
        let config = Config::parse(&after, Path::new("kilnyard.toml")).unwrap();
        assert!(config.roots.is_in_memory());
        // Once more there is nothing to do.
        assert_eq!(refused(&after).unwrap(), after);
    }

    #[test]
    fn each_shape_of_a_file_keeps_its_bytes() {
        let lines = "backend = \"overlay\"\nscratch = \"memory\"\n";
        for (before, expected) in [
            (String::new(), format!("[root]\n{lines}")),
            ("a = 1".into(), format!("a = 1\n\n[root]\n{lines}")),
            ("a = 1\n[root]".into(), format!("a = 1\n[root]\n{lines}")),
            (
                "[ root ] # mine\n\n[b]\nbackend = 2\n".into(),
                format!("[ root ] # mine\n{lines}\n[b]\nbackend = 2\n"),
            ),
            ("[root]\nflushes = \"keep\"\n".into(), format!("[root]\n{lines}flushes = \"keep\"\n")),
            (
                "[root]\nscratch = 'memory' # fast\n".into(),
                "[root]\nbackend = \"overlay\"\nscratch = 'memory' # fast\n".into(),
            ),
        ] {
            assert_eq!(refused(&before).as_deref(), Ok(&*expected), "{before}");
            let crlf = |text: &str| text.replace('\n', "\r\n");
            if before.contains('\n') {
                let mixed = crlf(&before);
                assert_eq!(refused(&mixed).as_deref(), Ok(&*crlf(&expected)), "{mixed:?}");
            }
        }
    }

    #[test]
    fn what_a_person_set_otherwise_is_replaced_only_by_force() {
        let text = "[root]\n  backend = \"copy\"  # no overlays \"here\"\nflushes = \"keep\"\n";
        let says = "backend = \"copy\"  # no overlays \"here\"".to_owned();
        assert_eq!(refused(text), Err(Refusal::SaysOtherwise { line: 2, says }));
        // A line that would come before does not count.
        let says = "scratch = \"disk\"".to_owned();
        let other = Err(Refusal::SaysOtherwise { line: 2, says });
        assert_eq!(refused("[root]\nscratch = \"disk\"\n"), other);
        let forced = set(text, "root", &MEMORY, Otherwise::Replace).unwrap();
        let expected = "[root]\nscratch = \"memory\"\n  backend = \"overlay\"  # no overlays \"here\"\nflushes = \"keep\"\n";
        assert_eq!(forced.text, expected);
        let changes = [
            "-  backend = \"copy\"  # no overlays \"here\"",
            "+  backend = \"overlay\"  # no overlays \"here\"",
            "+scratch = \"memory\"",
        ];
        assert_eq!(forced.changes, changes);
    }

    #[test]
    fn what_cannot_be_changed_line_by_line_is_refused() {
        for text in [
            "root = { backend = \"copy\" }\n",
            "root.backend = \"copy\"\n",
            "[\"root\"]\nbackend = \"copy\"\n",
            // The first one is a part of a text.
            "a = \"\"\"\n[root]\n\"\"\"\n",
            "[root]\nbackend = \"\"\"copy\"\"\"\n",
            "no toml",
        ] {
            let outcome = set(text, "root", &MEMORY, Otherwise::Replace);
            assert_eq!(outcome, Err(Refusal::Shape("root".to_owned())), "{text}");
        }
    }
}
