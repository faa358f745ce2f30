//! As much of the control file format as listing packages needs.

use std::collections::HashSet;

use crate::name::shortened;
use crate::{PublishError, Result};

/// The longest real stanzas, with thousands of `Provides` or `Files` lines, are a few hundred KiB.
const STANZA_BYTES_MAX: usize = 4 << 20;

/// The fields of a stanza: name and value, where a value keeps its continuation lines.
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

/// Where the first field of `text` ends: before the next line that is no continuation.
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

/// The value of a field, by its name in any case.
pub(crate) fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    fields(stanza).find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The value of a field that must be there, and be one word.
pub(crate) fn required<'a>(stanza: &'a str, name: &'static str) -> Result<&'a str> {
    let reason = match field(stanza, name) {
        None | Some("") => "a field that every package has is missing",
        Some(value) if value.contains(char::is_whitespace) => "a field that must be one word is more",
        // Some readers see nothing in it, others the next line.
        Some(value) if !begins_on_its_line(stanza, value) => {
            "a field that must be one word begins a line too late"
        }
        Some(value) => return Ok(value),
    };
    Err(PublishError::Input { what: name, value: shortened(stanza), reason })
}

/// Whether a value, a piece of the stanza, stands on the line of its field's name.
fn begins_on_its_line(stanza: &str, value: &str) -> bool {
    let offset = value.as_ptr() as usize - stanza.as_ptr() as usize;
    stanza[..offset].lines().next_back().is_some_and(|line| line.contains(':'))
}

/// Checks that `stanza` is one stanza that stays one inside an index, and returns it without its final line ends.
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
                None => return bad("a line is no field"),
                Some((name, _)) if !is_field_name(name) => return bad("a line is no field"),
                Some((name, _)) if forbidden.iter().any(|other| name.eq_ignore_ascii_case(other)) => {
                    return bad("it has a field that the index itself writes");
                }
                // Readers disagree on which of two counts: apt takes the last, others the first.
                Some((name, _)) if !names.insert(name.to_ascii_lowercase()) => {
                    return bad("it has a field twice");
                }
                Some(_) => {}
            }
        }
    }
    Ok(text)
}

/// Printable, without a blank, and not what begins a comment or a signature (deb822(5)). Some readers cut other blanks
/// than a space before the colon, and would take such a name for one that the index writes.
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
    fn fields_are_found_with_their_continuations() {
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
    fn what_would_break_an_index_is_refused() {
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
