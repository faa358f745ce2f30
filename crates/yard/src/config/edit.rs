//! Writes settings into a table of a configuration and leaves every other byte unchanged.
//!
//! `toml_edit` changes the document and keeps comments and layout, but writes every line ending as a line feed.
//! Its output is therefore compared with the old text line by line, and equal lines are copied from the old
//! text byte for byte.

use similar::{ChangeTag, TextDiff};
use std::fmt;
use std::ops::Range;
use toml_edit::{Decor, Document, Item, Value};

/// Some editors write this before the first line.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Why settings were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The text is not TOML.
    Unreadable {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// The parser's message, on one line.
        problem: String,
    },
    /// The setting already has another value.
    OtherValue {
        /// From 1.
        line: usize,
        /// The whole line, trimmed.
        says: String,
    },
    /// Something else has the name of the table or of a setting.
    Shape {
        /// From 1.
        line: usize,
        /// The table's name, or `table.setting`.
        name: String,
        /// `a table` or `a value`.
        wanted: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unreadable { line, column, problem } => {
                write!(f, "line {line}, column {column}: {problem}")
            }
            Refusal::OtherValue { line, says } => write!(f, "line {line} already says `{says}`"),
            Refusal::Shape { line, name, wanted } => write!(f, "line {line}: `{name}` is not {wanted}"),
        }
    }
}

/// A configuration with the settings written into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole text, with comments and order as they were.
    pub text: String,
    /// Removed lines after `-` and added lines after `+`, in the order of the text.
    pub changes: Vec<String>,
}

/// What to do with a setting that has another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Keep it, and change nothing.
    Refuse,
    /// Replace it.
    Replace,
}

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting<'a> {
    /// A string.
    Text(&'a str),
    /// A whole number.
    Number(u32),
}

impl<'a> From<&'a str> for Setting<'a> {
    fn from(text: &'a str) -> Setting<'a> {
        Setting::Text(text)
    }
}

impl Setting<'_> {
    fn is(self, found: &Value) -> bool {
        match self {
            Setting::Text(text) => found.as_str() == Some(text),
            Setting::Number(number) => found.as_integer() == Some(i64::from(number)),
        }
    }

    fn value(self) -> Value {
        match self {
            Setting::Text(text) => Value::from(text),
            Setting::Number(number) => Value::from(i64::from(number)),
        }
    }
}

/// As a configuration has it.
impl fmt::Display for Setting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

/// Sets these values (key and value) in `table`.
pub fn set<'a, S: Into<Setting<'a>> + Copy>(
    text: &str,
    table: &str,
    settings: &[(&str, S)],
    on_conflict: OnConflict,
) -> Result<Edited, Refusal> {
    let before = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let read = Document::parse(before).map_err(|error| {
        let (line, column) = place(before, error.span().unwrap_or(0..0));
        // Some messages of the library have several lines.
        Refusal::Unreadable { line, column, problem: error.message().replace('\n', ", ") }
    })?;
    let line_of = |span: Option<Range<usize>>| place(before, span.unwrap_or(0..0)).0;
    let known = match read.as_table().get_key_value(table) {
        None => None,
        Some((key, item)) => Some(item.as_table_like().ok_or_else(|| Refusal::Shape {
            line: line_of(key.span()),
            name: table.to_owned(),
            wanted: "a table",
        })?),
    };
    let mut wanted = Vec::new();
    for (key, value) in settings {
        let value: Setting<'_> = (*value).into();
        let Some((at, item)) = known.and_then(|known| known.get_key_value(key)) else {
            wanted.push((*key, value));
            continue;
        };
        let line = line_of(at.span());
        match item.as_value() {
            None => return Err(Refusal::Shape { line, name: format!("{table}.{key}"), wanted: "a value" }),
            Some(found) if value.is(found) => {}
            Some(_) if on_conflict == OnConflict::Replace => wanted.push((*key, value)),
            Some(_) => {
                let says = before.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
                return Err(Refusal::OtherValue { line, says });
            }
        }
    }
    if wanted.is_empty() {
        return Ok(Edited { text: text.to_owned(), changes: Vec::new() });
    }
    let mut document = read.into_mut();
    let is_new = !document.contains_key(table);
    let item = document.entry(table).or_insert_with(toml_edit::table);
    if let (true, Item::Table(new)) = (is_new && !before.is_empty(), &mut *item) {
        new.decor_mut().set_prefix("\n");
    }
    for (key, value) in wanted {
        put(item, key, value);
    }
    Ok(with_lines_of(text, &document.to_string()))
}

/// Sets a key. If it had a value, the spaces and the comment around the value stay.
fn put(table: &mut Item, key: &str, value: Setting<'_>) {
    let mut value = value.value();
    if let Some(old) = table.get(key).and_then(Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    } else if let Some(inline) = table.as_inline_table_mut()
        && let Some((_, last)) = inline.iter_mut().last()
        && let Some(space) = last.decor().suffix().and_then(|suffix| suffix.as_str()).map(str::to_owned)
        && space.trim().is_empty()
    {
        // Move the space before the closing brace behind the new value, so that it does not precede a comma.
        last.decor_mut().set_suffix("");
        *value.decor_mut() = Decor::new(" ", space);
    }
    table[key] = Item::Value(value);
}

/// Takes each line that both texts have from the old text, with its line ending, and lists the changes.
fn with_lines_of(old: &str, new: &str) -> Edited {
    let (mark, body) = match old.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (BYTE_ORDER_MARK, body),
        None => ("", old),
    };
    let newline = if body.contains("\r\n") { "\r\n" } else { "\n" };
    let old_lines: Vec<&str> = body.split_inclusive('\n').collect();
    let bare = |text: &'_ str| -> Vec<String> {
        text.split_terminator('\n').map(|line| line.trim_end_matches('\r').to_owned()).collect()
    };
    let (old_bare, new_bare) = (bare(body), bare(new));
    let (old_bare, new_bare): (Vec<&str>, Vec<&str>) =
        (old_bare.iter().map(String::as_str).collect(), new_bare.iter().map(String::as_str).collect());
    let mut text = mark.to_owned();
    let mut changes = Vec::new();
    for change in TextDiff::from_slices(&old_bare, &new_bare).iter_all_changes() {
        let line = change.value();
        if change.tag() == ChangeTag::Delete {
            changes.push(format!("-{line}"));
            continue;
        }
        // The last line of the old text may lack a line ending.
        if text.len() > mark.len() && !text.ends_with('\n') {
            text.push_str(newline);
        }
        match change.old_index() {
            Some(at) => text.push_str(old_lines[at]),
            None => {
                text.push_str(line);
                text.push_str(newline);
                if !line.is_empty() {
                    changes.push(format!("+{line}"));
                }
            }
        }
    }
    Edited { text, changes }
}

/// Line and column of the start of a span, both from 1.
fn place(text: &str, span: Range<usize>) -> (usize, usize) {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::COMMON_TEMPLATE;

    const MEMORY: [(&str, &str); 2] = [("backend", "overlay"), ("scratch", "memory")];

    fn refused(text: &str) -> Result<String, Refusal> {
        set(text, "root", &MEMORY, OnConflict::Refuse).map(|edited| edited.text)
    }

    #[test]
    fn a_new_configuration_gets_two_lines_below_its_table() {
        let text = format!("packages = []\n\n{COMMON_TEMPLATE}");
        let after = refused(&text).unwrap();
        assert_eq!(after.replacen("backend = \"overlay\"\nscratch = \"memory\"\n", "", 1), text);
        assert!(after.contains("\n[root]\nbackend = \"overlay\"\nscratch = \"memory\"\n# backend"));
        // A second time, there is nothing to do.
        assert_eq!(refused(&after).unwrap(), after);
    }

    #[test]
    fn numbers_are_written_as_numbers() {
        let machine = [("machine", Setting::Text("vm")), ("cores", Setting::Number(2))];
        let text = "[root] # here\ncores = 1 # few\n";
        let refused = set(text, "root", &machine, OnConflict::Refuse);
        assert_eq!(refused, Err(Refusal::OtherValue { line: 2, says: "cores = 1 # few".to_owned() }));
        let edited = set(text, "root", &machine, OnConflict::Replace).unwrap();
        assert_eq!(edited.text, "[root] # here\ncores = 2 # few\nmachine = \"vm\"\n");
        assert_eq!(set(&edited.text, "root", &machine, OnConflict::Refuse).unwrap().changes, [""; 0]);
        assert_eq!(machine.map(|(_, value)| value.to_string()), ["\"vm\"", "2"]);
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
            ("[root]\nflushes = \"keep\"\n".into(), format!("[root]\nflushes = \"keep\"\n{lines}")),
            (
                "[root]\nscratch = 'memory' # fast\n".into(),
                "[root]\nscratch = 'memory' # fast\nbackend = \"overlay\"\n".into(),
            ),
            // Comments below the last line of a table belong to the next table.
            (
                "# top\n[root]\n  flushes = \"keep\" # \t\n\n# of b\n[b]\n".into(),
                format!("# top\n[root]\n  flushes = \"keep\" # \t\n{lines}\n# of b\n[b]\n"),
            ),
            // A multi-line array with comments and odd spacing, and strings that contain table headers.
            (
                "[root]\nlist = [ # a\n  1,\t2, # b\n  # c\n  ]\n[b]\na = \"\"\"\n[root]\nx = 1 \n\"\"\"\n#end".into(),
                format!(
                    "[root]\nlist = [ # a\n  1,\t2, # b\n  # c\n  ]\n{lines}[b]\na = \"\"\"\n[root]\nx = 1 \n\"\"\"\n#end"
                ),
            ),
            ("[\"root\"]\n".into(), format!("[\"root\"]\n{lines}")),
            ("[root.sub]\na = 1\n".into(), format!("[root]\n{lines}[root.sub]\na = 1\n")),
            ("[root]\n[root.sub]\na = 1\n".into(), format!("[root]\n{lines}[root.sub]\na = 1\n")),
            (
                "root.flushes = \"keep\"\na = 1\n".into(),
                "root.flushes = \"keep\"\nroot.backend = \"overlay\"\nroot.scratch = \"memory\"\na = 1\n".into(),
            ),
            (
                "root = { flushes = \"keep\" } # one\n".into(),
                "root = { flushes = \"keep\", backend = \"overlay\", scratch = \"memory\" } # one\n".into(),
            ),
            (
                "root = {}\n".into(),
                "root = { backend = \"overlay\", scratch = \"memory\" }\n".into(),
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
    fn a_different_value_is_replaced_only_by_force() {
        let text = "[root]\n  backend = \"copy\"  # no overlays \"here\"\nflushes = \"keep\"\n";
        let says = "backend = \"copy\"  # no overlays \"here\"".to_owned();
        assert_eq!(refused(text), Err(Refusal::OtherValue { line: 2, says }));
        // A line that would be inserted above it does not count.
        let says = "scratch = \"disk\"".to_owned();
        let other = Err(Refusal::OtherValue { line: 2, says });
        assert_eq!(refused("[root]\nscratch = \"disk\"\n"), other);
        let forced = set(text, "root", &MEMORY, OnConflict::Replace).unwrap();
        let expected = "[root]\n  backend = \"overlay\"  # no overlays \"here\"\nflushes = \"keep\"\nscratch = \"memory\"\n";
        assert_eq!(forced.text, expected);
        let changes = [
            "-  backend = \"copy\"  # no overlays \"here\"",
            "+  backend = \"overlay\"  # no overlays \"here\"",
            "+scratch = \"memory\"",
        ];
        assert_eq!(forced.changes, changes);
    }

    #[test]
    fn every_way_to_write_a_value_can_be_replaced() {
        for (before, expected) in [
            ("root = { backend = \"copy\" }\n", "root = { backend = \"overlay\", scratch = \"memory\" }\n"),
            ("root.backend = \"copy\"\n", "root.backend = \"overlay\"\nroot.scratch = \"memory\"\n"),
            (
                "[\"root\"]\n\"backend\"=\"copy\"\n",
                "[\"root\"]\n\"backend\"=\"overlay\"\nscratch = \"memory\"\n",
            ),
            (
                "[root]\nbackend = \"\"\"\ncopy\"\"\" # why\nx = 1\n",
                "[root]\nbackend = \"overlay\" # why\nx = 1\nscratch = \"memory\"\n",
            ),
            ("[root]\nbackend = [ # a\n1 ] # b", "[root]\nbackend = \"overlay\" # b\nscratch = \"memory\"\n"),
        ] {
            let edited = set(before, "root", &MEMORY, OnConflict::Replace).unwrap();
            assert_eq!(edited.text, expected, "{before}");
        }
    }

    #[test]
    fn line_ends_and_a_byte_order_mark_stay_as_they_are() {
        // Both kinds of line endings, one inside a string, and none at the end.
        let text = "\u{feff}a = 1\r\n[root] # x\nbackend = 'copy'\r\nb = \"\"\"1\r\n2\n3\"\"\"\n# end";
        let edited = set(text, "root", &MEMORY, OnConflict::Replace).unwrap();
        let expected = "\u{feff}a = 1\r\n[root] # x\nbackend = \"overlay\"\r\nb = \"\"\"1\r\n2\n3\"\"\"\nscratch = \"memory\"\r\n# end";
        assert_eq!(edited.text, expected);
        let changes = ["-backend = 'copy'", "+backend = \"overlay\"", "+scratch = \"memory\""];
        assert_eq!(edited.changes, changes);
        // Nothing to do, nothing touched.
        assert_eq!(refused(&edited.text).as_deref(), Ok(&*edited.text));
    }

    #[test]
    fn invalid_toml_is_rejected_with_its_position() {
        for (text, at, part) in [
            ("no toml", (1, 4), "key with no value"),
            ("[root]\na = 1\n\n[root]\nb = 2\n", (4, 2), "duplicate key"),
            ("[root]\nbackend = \"a\"\nbackend = \"b\"\n", (3, 1), "duplicate key"),
            ("[root]\r\n\u{e4} = 1\r\n", (2, 1), "invalid unquoted key"),
            ("a = [1,\n  2\n", (2, 4), "unclosed array"),
            ("a = \"\"\"\n[root]\n", (3, 1), "invalid multi-line basic string"),
            ("root.a = 1\n[root]\nb = 1\n", (2, 2), "duplicate key"),
        ] {
            match set(text, "root", &MEMORY, OnConflict::Replace) {
                Err(Refusal::Unreadable { line, column, problem }) => {
                    assert_eq!((line, column), at, "{text:?}: {problem}");
                    assert!(problem.contains(part) && !problem.contains('\n'), "{text:?}: {problem}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_name_clash_with_a_table_or_setting_is_rejected_with_its_line() {
        for (text, line, name, wanted) in [
            ("a = 1\nroot = 1\n", 2, "root", "a table"),
            ("\n[[root]]\nbackend = \"copy\"\n", 2, "root", "a table"),
            ("[root]\n[root.backend]\nx = 1\n", 2, "root.backend", "a value"),
            ("[root]\n\nscratch.x = 1\n", 3, "root.scratch", "a value"),
        ] {
            let refusal = Refusal::Shape { line, name: name.to_owned(), wanted };
            assert_eq!(set(text, "root", &MEMORY, OnConflict::Replace), Err(refusal), "{text}");
        }
    }
}
