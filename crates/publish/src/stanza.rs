//! The parts of the control file format that listing packages needs.

use std::collections::HashSet;

use crate::name::shortened;
use crate::{PublishError, Result};

/// The longest real stanzas, with thousands of `Provides` or `Files` lines, have a few hundred KiB.
const STANZA_BYTES_MAX: usize = 4 << 20;

/// The fields of a stanza as name and value. A value includes its continuation lines.
pub(crate) fn fields(stanza: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = stanza;
    std::iter::from_fn(move || {
        loop {
            let end = field_end(rest)?;
            let (field, after) = rest.split_at(end);
            rest = after;
            if let Some((name, value)) = field.split_once(':') {
                return Some((name, value.trim()));
            }
        }
    })
}

/// The end of the first field of `text`: before the next line that is not a continuation.
fn field_end(text: &str) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    let mut end = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index > 0 && !line.starts_with([' ', '\t']) {
            break;
        }
        end += line.len();
    }
    Some(end)
}

/// The value of a field. Field names are case-insensitive.
pub(crate) fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    fields(stanza).find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The value of a field that must be present and a single word.
pub(crate) fn required<'a>(stanza: &'a str, name: &'static str) -> Result<&'a str> {
    let reason = match field(stanza, name) {
        None | Some("") => "a required field is missing",
        Some(value) if value.contains(char::is_whitespace) => {
            "a field that must be a single word has several"
        }
        // Some readers see an empty value, others the next line.
        Some(value) if !begins_on_its_line(stanza, value) => {
            "a field that must be a single word has it on a continuation line"
        }
        Some(value) => return Ok(value),
    };
    Err(PublishError::Input { what: name, value: shortened(stanza), reason })
}

/// Whether a value, which must be a slice of the stanza, is on the line of its field's name.
fn begins_on_its_line(stanza: &str, value: &str) -> bool {
    let offset = value.as_ptr() as usize - stanza.as_ptr() as usize;
    stanza[..offset].lines().next_back().is_some_and(|line| line.contains(':'))
}

/// Checks that `stanza` is one stanza and stays one inside an index. Returns it without trailing line feeds.
pub(crate) fn check<'a>(stanza: &'a str, forbidden: &[&str]) -> Result<&'a str> {
    let text = stanza.trim_end_matches('\n');
    let bad = |reason| Err(PublishError::Input { what: "stanza", value: shortened(text), reason });
    if text.is_empty() || text.len() > STANZA_BYTES_MAX {
        return bad("it is empty or too long");
    }
    let mut names = HashSet::new();
    for line in text.split('\n') {
        if line.trim().is_empty() {
            return bad("an empty line would end it early");
        }
        if line.contains(['\0', '\r']) {
            return bad("it has a control character");
        }
        if line.starts_with([' ', '\t']) {
            if names.is_empty() {
                return bad("it begins with a continuation line");
            }
        } else {
            match line.split_once(':') {
                None => return bad("a line is not a field"),
                Some((name, _)) if !is_field_name(name) => return bad("a line is not a field"),
                Some((name, _)) if forbidden.iter().any(|other| name.eq_ignore_ascii_case(other)) => {
                    return bad("it has a field that only the index may write");
                }
                // Readers disagree about duplicate fields: apt uses the last, others the first.
                Some((name, _)) if !names.insert(name.to_ascii_lowercase()) => {
                    return bad("it has a duplicate field");
                }
                Some(_) => {}
            }
        }
    }
    Ok(text)
}

/// A field name is printable ASCII without blanks, and does not start like a comment or a signature
/// (deb822(5)). Some readers also strip other blanks than a space before the colon, and would take such a name
/// for one that the index writes.
fn is_field_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(['#', '-']) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The stanzas of an index.
pub(crate) fn stanzas(index: &str) -> impl Iterator<Item = &str> {
    index.split("\n\n").filter(|stanza| !stanza.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_include_their_continuation_lines() {
        let stanza = "Package: a\nFiles:\n 1 2 x\n 3 4 y\nversion:1.0";
        assert_eq!(field(stanza, "Files"), Some("1 2 x\n 3 4 y"));
        assert_eq!(field(stanza, "Version"), Some("1.0"));
        assert_eq!(field(stanza, "Pack"), None);
        assert_eq!(fields(stanza).count(), 3);
        assert_eq!(required(stanza, "Package").unwrap(), "a");
        assert!(required(stanza, "Files").is_err());
        assert!(required("Package: a\nVersion:\n 1\n", "Version").is_err());
        assert!(required(stanza, "Architecture").is_err());
    }

    #[test]
    fn stanzas_that_would_break_an_index_are_rejected() {
        check("Package: a\nDescription: b\n c\n .\n d\n", &["Filename"]).unwrap();
        for bad in [
            "",
            "\n",
            "Package: a\n\nPackage: b",
            "Package: a\n \nb: c",
            " x: y",
            "Package",
            ": x",
            "a b: c",
            "Package: a\nfilename: ../../etc/passwd",
            "Package: a\r\nb: c",
            "Package: a\nFilename\u{b}: ../../etc/passwd",
            "Package: a\n\u{c}Filename: ../../etc/passwd",
            "Package: a\n#x: y",
            "Package: a\npackage: b",
            "Package: a\nDirectory: pool/a\nVersion: 1\nDirectory: ../../etc",
        ] {
            assert!(check(bad, &["Filename"]).is_err(), "{bad:?}");
        }
    }
}
