//! `pkg_summary`: the index of a binary package repository (pkg_summary(5)). It has a stanza of `KEY=value` lines
//! for each package, followed by an empty line. Some keys may occur on several lines.

/// A malformed summary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// A line that is not `KEY=value`.
    #[error("line {line} is not KEY=value: `{text}`")]
    NoField {
        /// Line number, from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// A stanza without a name, or with an invalid one.
    #[error("the stanza at line {line} has no valid PKGNAME")]
    NoName {
        /// Number of the stanza's first line, from 1.
        line: usize,
    },
}

/// The stanza of one package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryEntry<'a> {
    /// `PKGNAME`: name and version.
    pub name: &'a str,
    /// The text of the stanza, without the empty line after it.
    pub text: &'a str,
}

impl<'a> SummaryEntry<'a> {
    /// The fields in order; a key may occur several times.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.text.lines().filter_map(|line| line.trim_end_matches('\r').split_once('='))
    }
}

/// Keys that may occur on several lines (pkg_summary(5)).
pub const REPEATED: [&str; 6] = ["CONFLICTS", "DEPENDS", "DESCRIPTION", "PROVIDES", "REQUIRES", "SUPERSEDES"];

/// Characters of a line that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// Splits a summary into the stanzas of its packages.
pub fn entries(text: &str) -> Result<Vec<SummaryEntry<'_>>, SummaryError> {
    let mut entries = Vec::new();
    let (mut start, mut first_line, mut name) = (0, 1, None);
    let (mut at, mut line_number) = (0, 0);
    for line in text.split_inclusive('\n').chain([""]) {
        line_number += 1;
        let content = line.trim_end_matches(['\n', '\r']);
        if content.is_empty() {
            if at > start {
                let name: Option<&str> = name.take();
                let usable = name.filter(|name| !name.is_empty() && !name.contains(char::is_whitespace));
                let name = usable.ok_or(SummaryError::NoName { line: first_line })?;
                entries.push(SummaryEntry { name, text: &text[start..at] });
            }
            (start, first_line) = (at + line.len(), line_number + 1);
        } else {
            let Some((key, value)) = content.split_once('=') else {
                let text = content.chars().take(SHOWN_CHARACTERS_MAX).collect();
                return Err(SummaryError::NoField { line: line_number, text });
            };
            if key == "PKGNAME" && name.is_none() {
                name = Some(value);
            }
        }
        at += line.len();
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_are_separated() {
        let text = "PKGNAME=a-1\nDEPENDS=b>=1\nDEPENDS=c-[0-9]*\n\n\nCOMMENT=x=y\nPKGNAME=b-2";
        let found = entries(text).unwrap();
        assert_eq!(found.iter().map(|entry| entry.name).collect::<Vec<_>>(), ["a-1", "b-2"]);
        assert_eq!(found[0].fields().filter(|(key, _)| *key == "DEPENDS").count(), 2);
        assert_eq!(found[1].fields().next(), Some(("COMMENT", "x=y")));
        let odd = entries("PKGNAME=a-1\r").unwrap();
        assert_eq!((odd[0].name, odd[0].fields().next()), ("a-1", Some(("PKGNAME", "a-1"))));
        assert_eq!(entries("").unwrap(), []);
        assert_eq!(entries("\n\n").unwrap(), []);
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(
            entries("PKGNAME=a-1\nnonsense\n").unwrap_err().to_string(),
            "line 2 is not KEY=value: `nonsense`"
        );
        assert_eq!(entries("PKGNAME=a-1\n\nCOMMENT=x\n"), Err(SummaryError::NoName { line: 3 }));
        assert_eq!(entries("PKGNAME=\n"), Err(SummaryError::NoName { line: 1 }));
    }
}
