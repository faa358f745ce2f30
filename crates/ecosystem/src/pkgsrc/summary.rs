//! `pkg_summary`: the index of a binary package repository (pkg_summary(5)): a stanza of `KEY=value` lines for each
//! package, with an empty line behind it. Some keys stand in several lines.

/// A summary that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// A line that is none of a stanza.
    #[error("line {line} is not KEY=value: `{text}`")]
    NoField {
        /// Its number, from 1.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// A stanza without a name, or with one that is none.
    #[error("the stanza that begins in line {line} has no usable PKGNAME")]
    NoName {
        /// The number of its first line, from 1.
        line: usize,
    },
}

/// A package of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name with its version.
    pub name: &'a str,
    /// Its stanza, without the empty line.
    pub text: &'a str,
}

impl<'a> Entry<'a> {
    /// Its fields in their order; a key may come several times.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.text.lines().filter_map(|line| line.trim_end_matches('\r').split_once('='))
    }
}

/// Keys that may stand in several lines (pkg_summary(5)).
pub const REPEATED: [&str; 6] = ["CONFLICTS", "DEPENDS", "DESCRIPTION", "PROVIDES", "REQUIRES", "SUPERSEDES"];

/// How much of a line an error shows.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// The packages of a summary.
pub fn entries(text: &str) -> Result<Vec<Entry<'_>>, SummaryError> {
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
                entries.push(Entry { name, text: &text[start..at] });
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
    fn stanzas_are_told_apart() {
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
    fn what_is_wrong_is_named_with_its_line() {
        assert_eq!(
            entries("PKGNAME=a-1\nnonsense\n").unwrap_err().to_string(),
            "line 2 is not KEY=value: `nonsense`"
        );
        assert_eq!(entries("PKGNAME=a-1\n\nCOMMENT=x\n"), Err(SummaryError::NoName { line: 3 }));
        assert_eq!(entries("PKGNAME=\n"), Err(SummaryError::NoName { line: 1 }));
    }
}
