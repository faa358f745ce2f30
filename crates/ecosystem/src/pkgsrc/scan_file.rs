//! Scan files: the concatenated output of `make pbulk-index` for each package, as pbulk keeps it in `meta/pscan`
//! and bob exports it (pkgsrc, `mk/pbulk/pbulk-index.mk`).
//!
//! A stanza begins with `PKGNAME=`; every other line is also `KEY=value`. Most of a file is `SCAN_DEPENDS`, so
//! nothing is copied: a [`Stanza`] points into the text and is written back unchanged.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};

/// Characters of a line that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// A malformed scan file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanFileError {
    /// A line that is not `KEY=value`.
    #[error("line {line} is not KEY=value: `{text}`")]
    NoField {
        /// Line number, from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// A field before the first `PKGNAME`.
    #[error("line {line} belongs to no package: `{text}` comes before the first PKGNAME")]
    NoPackage {
        /// Line number, from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// A required field has no valid value.
    #[error("line {line}: {field} is `{text}`, which is not valid")]
    Value {
        /// Line number, from 1; that of the stanza's first line if the field is missing.
        line: usize,
        /// Name of the field.
        field: &'static str,
        /// Value of the field, shortened.
        text: String,
    },
    /// The text has no stanza at all.
    #[error("it has no packages")]
    Empty,
}

/// The scanned stanza of one package.
#[derive(Clone, Debug, Default)]
pub struct Stanza<'a> {
    /// The whole stanza, including its final newline if it has one.
    text: &'a [u8],
    /// Number of the stanza's first line, from 1.
    pub line: usize,
    /// Name and version of the package (`PKGNAME`).
    pub name: &'a str,
    /// Directory in the tree, such as `mail/mutt`.
    pub location: &'a str,
    /// Dependencies: `pattern:../../category/directory`, separated by blanks.
    pub all_depends: &'a str,
    /// The reason not to build it; empty if there is none.
    pub skip_reason: &'a [u8],
    /// The reason why it cannot be built; empty if there is none.
    pub fail_reason: &'a [u8],
    /// The dependencies that a resolver already chose.
    pub depends: Option<&'a str>,
}

/// A parsed scan file.
#[derive(Clone, Debug, Default)]
pub struct ScanFile<'a> {
    /// The packages in order; only the first of several with one name.
    pub stanzas: Vec<Stanza<'a>>,
    /// Duplicates: the name, and the line of the second occurrence.
    pub duplicates: Vec<(&'a str, usize)>,
}

impl<'a> ScanFile<'a> {
    /// Parses the text of a scan file.
    pub fn parse(text: &'a [u8]) -> Result<ScanFile<'a>, ScanFileError> {
        let mut file = ScanFile::default();
        let mut known: HashSet<&str, foldhash::fast::RandomState> = HashSet::default();
        let mut open: Option<(usize, Stanza)> = None;
        let mut close = |open: Option<(usize, Stanza<'a>)>, end: usize, file: &mut ScanFile<'a>| {
            let Some((start, mut stanza)) = open else { return Ok(()) };
            stanza.text = &text[start..end];
            if stanza.location.is_empty() {
                return Err(ScanFileError::Value {
                    line: stanza.line,
                    field: "PKG_LOCATION",
                    text: String::new(),
                });
            }
            match known.insert(stanza.name) {
                true => file.stanzas.push(stanza),
                false => file.duplicates.push((stanza.name, stanza.line)),
            }
            Ok(())
        };
        let (mut start, mut number) = (0, 0);
        while start < text.len() {
            let end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |length| start + length);
            let (line, next) = (&text[start..end], (end + 1).min(text.len()));
            number += 1;
            if let Some(name) = line.strip_prefix(b"PKGNAME=") {
                close(open.take(), start, &mut file)?;
                let name = package_name(name, number)?;
                open = Some((start, Stanza { line: number, name, ..Stanza::default() }));
            } else if !line.trim_ascii().is_empty() {
                let Some((_, stanza)) = &mut open else {
                    return Err(ScanFileError::NoPackage { line: number, text: shown(line) });
                };
                stanza.take(line, number)?;
            }
            start = next;
        }
        close(open, text.len(), &mut file)?;
        if file.stanzas.is_empty() { Err(ScanFileError::Empty) } else { Ok(file) }
    }
}

impl<'a> Stanza<'a> {
    fn take(&mut self, line: &'a [u8], number: usize) -> Result<(), ScanFileError> {
        // SCAN_DEPENDS is by far the longest field, and is not needed here.
        let equals = memchr::memchr(b'=', &line[..line.len().min(FIELD_BYTES_MAX)]);
        let Some(equals) = equals else {
            return Err(ScanFileError::NoField { line: number, text: shown(line) });
        };
        let value = &line[equals + 1..];
        match &line[..equals] {
            b"PKG_LOCATION" => self.location = location(value, number)?,
            b"ALL_DEPENDS" => self.all_depends = text_of(value, "ALL_DEPENDS", number)?,
            b"DEPENDS" => self.depends = Some(text_of(value, "DEPENDS", number)?),
            b"PKG_SKIP_REASON" => self.skip_reason = value.trim_ascii(),
            b"PKG_FAIL_REASON" => self.fail_reason = value.trim_ascii(),
            _ => {}
        }
        Ok(())
    }

    /// The whole stanza, unchanged.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Byte offset of the stanza in the text that it was read from.
    pub fn offset(&self, text: &[u8]) -> usize {
        self.text.as_ptr().addr() - text.as_ptr().addr()
    }

    /// The value of any field; the first one if it occurs several times.
    pub fn get(&self, field: &str) -> Option<Cow<'a, str>> {
        let lines = self.text.split(|byte| *byte == b'\n');
        let mut values = lines.filter_map(|line| line.strip_prefix(field.as_bytes())?.strip_prefix(b"="));
        // The values of a tree have 140 MB: the check for valid text alone is the fastest.
        values.next().map(|value| match std::str::from_utf8(value) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(value),
        })
    }

    /// Writes the stanza with a resolver's result: the chosen dependencies on a line of their own, omitted if there
    /// are none or if it could not be resolved. In the latter case, the reason becomes its `PKG_FAIL_REASON`, as in
    /// pbulk.
    pub fn write_resolved<'d>(
        &self,
        out: &mut impl Write,
        depends: impl Iterator<Item = &'d str>,
        fail_reason: Option<&str>,
    ) -> io::Result<()> {
        let mut unwritten = fail_reason;
        match fail_reason {
            None if self.depends.is_none() => out.write_all(self.text)?,
            _ => {
                for line in self.text.split_inclusive(|byte| *byte == b'\n') {
                    match fail_reason {
                        _ if line.starts_with(b"DEPENDS=") => {}
                        Some(reason) if line.starts_with(b"PKG_FAIL_REASON=") => {
                            writeln!(out, "PKG_FAIL_REASON={reason}")?;
                            unwritten = None;
                        }
                        _ => out.write_all(line)?,
                    }
                }
            }
        }
        if !self.text.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
        // A hand-written stanza may lack the field.
        if let Some(reason) = unwritten {
            writeln!(out, "PKG_FAIL_REASON={reason}")?;
        }
        let mut lead = "DEPENDS=";
        for name in depends {
            out.write_all(lead.as_bytes())?;
            out.write_all(name.as_bytes())?;
            lead = " ";
        }
        if lead == " " { out.write_all(b"\n") } else { Ok(()) }
    }
}

/// No field name is longer.
const FIELD_BYTES_MAX: usize = 64;

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(SHOWN_CHARACTERS_MAX).collect()
}

fn text_of<'a>(value: &'a [u8], field: &'static str, line: usize) -> Result<&'a str, ScanFileError> {
    std::str::from_utf8(value).map_err(|_| ScanFileError::Value { line, field, text: shown(value) })
}

/// Parses a value that is one word.
fn word<'a>(value: &'a [u8], field: &'static str, line: usize) -> Result<&'a str, ScanFileError> {
    let text = text_of(value, field, line)?.trim();
    let is_word =
        !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/');
    if is_word { Ok(text) } else { Err(ScanFileError::Value { line, field, text: shown(value) }) }
}

/// Parses the name of a package with its version after the last `-`: no pattern matches a name without one.
fn package_name(value: &[u8], line: usize) -> Result<&str, ScanFileError> {
    let field = "PKGNAME";
    let text = word(value, field, line)?;
    let is_whole =
        text.rsplit_once('-').is_some_and(|(base, version)| !base.is_empty() && !version.is_empty());
    if is_whole { Ok(text) } else { Err(ScanFileError::Value { line, field, text: shown(value) }) }
}

/// Parses a directory of the tree: `category/directory`, which cannot point outside it.
fn location(value: &[u8], line: usize) -> Result<&str, ScanFileError> {
    let field = "PKG_LOCATION";
    let text = text_of(value, field, line)?.trim();
    if is_location(text) { Ok(text) } else { Err(ScanFileError::Value { line, field, text: shown(value) }) }
}

/// Whether a text can be a directory of a tree.
pub fn is_location(text: &str) -> bool {
    text.split_once('/').is_some_and(|(category, directory)| is_category(category) && is_category(directory))
}

/// Whether a text can be a category of a tree.
pub fn is_category(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && !text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "PKGNAME=one-1.0\nPKG_LOCATION=a/one\nALL_DEPENDS=two-[0-9]*:../../b/two\nPKG_SKIP_REASON=\n\
                       PKG_FAIL_REASON=\nSCAN_DEPENDS=../../mk/x.mk Makefile\nPKGNAME=two-2\nPKG_LOCATION=b/two\nALL_DEPENDS=\n";

    fn written(stanza: &Stanza, depends: &[&str], reason: Option<&str>) -> String {
        let mut out = Vec::new();
        stanza.write_resolved(&mut out, depends.iter().copied(), reason).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn stanzas_are_parsed_and_written_unchanged() {
        let file = ScanFile::parse(TWO.as_bytes()).unwrap();
        let [one, two] = &file.stanzas[..] else { panic!("{file:?}") };
        assert_eq!((one.name, one.location, one.line, two.line), ("one-1.0", "a/one", 1, 7));
        assert_eq!(one.all_depends, "two-[0-9]*:../../b/two");
        assert_eq!(one.get("SCAN_DEPENDS").as_deref(), Some("../../mk/x.mk Makefile"));
        assert_eq!(one.get("MULTI_VERSION"), None);
        let all = written(one, &["two-2"], None) + &written(two, &[], None);
        assert_eq!(all, TWO.replace("Makefile\n", "Makefile\nDEPENDS=two-2\n"));
    }

    #[test]
    fn a_resolved_file_can_be_resolved_again() {
        let text = TWO.replace("Makefile\n", "Makefile\nDEPENDS=other-1\n");
        let file = ScanFile::parse(text.as_bytes()).unwrap();
        assert_eq!(file.stanzas[0].depends, Some("other-1"));
        assert_eq!(written(&file.stanzas[0], &["two-2"], None).matches("DEPENDS=two-2").count(), 1);
        assert!(!written(&file.stanzas[0], &["two-2"], None).contains("other"));
    }

    #[test]
    fn unresolved_packages_have_the_reason_in_their_stanza() {
        let file = ScanFile::parse(TWO.as_bytes()).unwrap();
        let text = written(&file.stanzas[0], &[], Some("\"no\""));
        assert!(text.contains("\nPKG_FAIL_REASON=\"no\"\n") && !text.contains("\nDEPENDS"), "{text}");
        // The same in a stanza without the field.
        let text = written(&file.stanzas[1], &[], Some("\"no\""));
        assert_eq!(text, "PKGNAME=two-2\nPKG_LOCATION=b/two\nALL_DEPENDS=\nPKG_FAIL_REASON=\"no\"\n");
    }

    #[test]
    fn the_first_of_two_with_one_name_is_kept() {
        let text = format!("{TWO}PKGNAME=two-2\nPKG_LOCATION=c/two\n");
        let file = ScanFile::parse(text.as_bytes()).unwrap();
        assert_eq!((file.stanzas.len(), &file.duplicates[..]), (2, &[("two-2", 10)][..]));
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &[u8]| ScanFile::parse(text).unwrap_err().to_string();
        assert_eq!(error(b""), "it has no packages");
        assert!(error(b"PKG_LOCATION=a/b\n").starts_with("line 1 belongs to no package"));
        assert!(error(b"PKGNAME=a-1\nPKG_LOCATION=a/b\nnonsense\n").starts_with("line 3 is not KEY=value"));
        assert!(error(b"PKGNAME=a 1\n").starts_with("line 1: PKGNAME is `a 1`"));
        for bad in ["a", "-1", "a-"] {
            let text = format!("PKGNAME={bad}\nPKG_LOCATION=a/b\n");
            assert!(error(text.as_bytes()).starts_with("line 1: PKGNAME is"), "{bad}");
        }
        assert!(error(b"\nPKGNAME=a-1\n").starts_with("line 2: PKG_LOCATION is ``"));
        for bad in ["../etc", "a/../b", "/a/b", "a", "a/b/c", "a/"] {
            assert!(error(format!("PKGNAME=a-1\nPKG_LOCATION={bad}\n").as_bytes()).contains(bad), "{bad}");
        }
        assert!(
            error(b"PKGNAME=a-1\nPKG_LOCATION=a/b\nALL_DEPENDS=\xff\n").starts_with("line 3: ALL_DEPENDS")
        );
    }
}
