//! Annotations of GitHub's workflows: commands on standard output
//! (<https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>).

use super::failed;
use crate::facts::picture::Picture;
use crate::yard::Yard;
use std::fmt::Write;

/// GitHub shows ten annotations of a step; the last one counts the others.
const ANNOTATIONS_MAX: usize = 10;
/// The telling lines of an annotation.
const LINES_MAX: usize = 10;

/// The failures of a run, one command on each line.
pub fn github(yard: &Yard, picture: &Picture) -> String {
    let all: Vec<_> = failed(&yard.config, picture).collect();
    let shown = if all.len() > ANNOTATIONS_MAX { ANNOTATIONS_MAX - 1 } else { all.len() };
    let mut text = String::new();
    for failed in &all[..shown] {
        let skipped = failed.lines().len().saturating_sub(LINES_MAX);
        let lines = failed.lines()[skipped..].join("\n");
        let message = format!("{}\n{lines}", failed.message());
        let title = format!("{} failed", failed.row.name);
        let _ = writeln!(text, "::error title={}::{}", property(&title), data(message.trim_end()));
    }
    if all.len() > shown {
        let title = format!("{} more packages failed", all.len() - shown);
        let names: Vec<&str> = all[shown..].iter().map(|failed| failed.row.name.as_str()).take(100).collect();
        let _ = writeln!(text, "::error title={}::{}", property(&title), data(&names.join(", ")));
    }
    text
}

/// The text of a command, in which nothing can end the command.
fn data(text: &str) -> String {
    let text = kilnyard_model::text::strip(text);
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_end_its_command() {
        assert_eq!(data("a\n::set-output name=x::y%"), "a%0A::set-output name=x::y%25");
        assert_eq!(property("a:b,c\r\n"), "a%3Ab%2Cc%0D%0A".replace("%0D", ""));
    }
}
