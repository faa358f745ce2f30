//! The cleartext signature framework: a text with its signature in one message, such as an `InRelease` file.
//!
//! The reader is strict because attacks hide unsigned text here: a message that is not exactly one block, from
//! the first byte to the last, is refused. Pure functions on bytes.
//!
//! A text is a list of lines. The signature covers the lines without their trailing blanks, joined by CR LF,
//! without a line ending after the last; that is GnuPG's interpretation of the standard and the one in use.

use crate::SignError;

const MESSAGE_BEGIN: &[u8] = b"-----BEGIN PGP SIGNED MESSAGE-----";
const SIGNATURE_BEGIN: &[u8] = b"-----BEGIN PGP SIGNATURE-----";
const SIGNATURE_END: &[u8] = b"-----END PGP SIGNATURE-----";

/// The parts of a clearsigned message, not verified.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Clearsigned<'a> {
    /// The signed lines, dash-unescaped, without trailing blanks.
    pub(crate) lines: Vec<&'a [u8]>,
    /// The armored signature block.
    pub(crate) signature: &'a [u8],
}

impl Clearsigned<'_> {
    /// The bytes that the signature covers.
    pub(crate) fn hashed(&self) -> Vec<u8> {
        self.lines.join(&b"\r\n"[..])
    }

    /// The text for the caller: the signed lines, each ended by a line feed.
    pub(crate) fn text(&self) -> Vec<u8> {
        // One empty line and an empty text have the same signature, so they must give the same result.
        if self.lines.iter().all(|line| line.is_empty()) && self.lines.len() <= 1 {
            return Vec::new();
        }
        let mut text = self.lines.join(&b'\n');
        text.push(b'\n');
        text
    }
}

/// Splits a message into its parts.
pub(crate) fn split(message: &[u8]) -> Result<Clearsigned<'_>, SignError> {
    let mut numbered = Lines::new(message);

    match numbered.next() {
        Some(line) if line.content == MESSAGE_BEGIN => {}
        Some(_) | None => {
            return refuse(1, "it does not begin with -----BEGIN PGP SIGNED MESSAGE-----");
        }
    }
    loop {
        let Some(line) = numbered.next() else {
            return refuse(numbered.number, "it is truncated in the armor headers");
        };
        if line.content.is_empty() {
            break;
        }
        // The headers are not signed. Only the one header with a meaning is accepted, so that a reader cannot
        // mistake a header for a field of the text.
        if !line.content.starts_with(b"Hash: ") {
            return refuse(line.number, "an armor header other than 'Hash' is not allowed");
        }
    }

    let mut lines = Vec::new();
    let begin = loop {
        let Some(line) = numbered.next() else {
            return refuse(numbered.number, "it is truncated before its signature");
        };
        if line.content == SIGNATURE_BEGIN {
            break line;
        }
        match line.content {
            [b'-', b' ', rest @ ..] => lines.push(trim_blanks(rest)),
            [b'-', ..] => {
                return refuse(line.number, "a line begins with a dash that is not escaped");
            }
            content => lines.push(content),
        }
    };
    let end = loop {
        let Some(line) = numbered.next() else {
            return refuse(numbered.number, "it is truncated in its signature");
        };
        if line.content == SIGNATURE_END {
            break line;
        }
        if line.content.starts_with(b"-") {
            return refuse(line.number, "a line in the signature begins with a dash");
        }
    };
    for line in numbered {
        if !line.content.is_empty() {
            return refuse(line.number, "there is text after the signature");
        }
    }

    Ok(Clearsigned { lines, signature: &message[begin.start..end.end] })
}

/// The lines of a text to sign, without trailing blanks.
pub(crate) fn lines_of(text: &str) -> Vec<&[u8]> {
    let text = text.as_bytes();
    if text.is_empty() {
        return Vec::new();
    }
    text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n').map(trim_blanks).collect()
}

/// Assembles a message from the lines of [`lines_of`] and an armored signature over them.
pub(crate) fn join(lines: &[&[u8]], hash: &str, signature: &str) -> Vec<u8> {
    let mut message = MESSAGE_BEGIN.to_vec();
    message.extend_from_slice(b"\nHash: ");
    message.extend_from_slice(hash.as_bytes());
    message.extend_from_slice(b"\n\n");
    for line in lines {
        if line.starts_with(b"-") {
            message.extend_from_slice(b"- ");
        }
        message.extend_from_slice(line);
        message.push(b'\n');
    }
    if lines.is_empty() {
        // GnuPG rejects a message without lines; one empty line has the same signature.
        message.push(b'\n');
    }
    message.extend_from_slice(signature.as_bytes());
    message
}

fn trim_blanks(line: &[u8]) -> &[u8] {
    let blanks = line.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    &line[..line.len() - blanks]
}

fn refuse<T>(line: usize, reason: &str) -> Result<T, SignError> {
    Err(SignError::Clearsigned { line, reason: reason.to_owned() })
}

struct Line<'a> {
    number: usize,
    start: usize,
    end: usize,
    content: &'a [u8],
}

/// Iterates over the lines of a message, with their positions and without trailing blanks.
struct Lines<'a> {
    bytes: &'a [u8],
    offset: usize,
    number: usize,
}

impl<'a> Lines<'a> {
    fn new(bytes: &'a [u8]) -> Lines<'a> {
        Lines { bytes, offset: 0, number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |position| position + 1);
        let start = self.offset;
        self.offset += length;
        self.number += 1;
        let line = &rest[..length];
        Some(Line {
            number: self.number,
            start,
            end: self.offset,
            content: trim_blanks(line.strip_suffix(b"\n").unwrap_or(line)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n";
    const TAIL: &str = "-----BEGIN PGP SIGNATURE-----\n\nabcd\n-----END PGP SIGNATURE-----\n";

    fn message(body: &str) -> String {
        format!("{HEAD}{body}{TAIL}")
    }

    #[track_caller]
    fn refused(message: &str, line: usize, words: &str) {
        match split(message.as_bytes()) {
            Err(SignError::Clearsigned { line: at, reason }) => {
                assert_eq!(at, line, "{reason}");
                assert!(reason.contains(words), "{reason}");
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_message_is_split() {
        let whole = message("a \t\n\n- - b\n- From c\nd\r\n");
        let parts = split(whole.as_bytes()).unwrap();
        assert_eq!(parts.text(), b"a\n\n- b\nFrom c\nd\n");
        assert_eq!(parts.hashed(), b"a\r\n\r\n- b\r\nFrom c\r\nd");
        assert_eq!(parts.signature, TAIL.as_bytes());
    }

    #[test]
    fn carriage_returns_do_not_matter() {
        let unix = message("a\nb\n");
        let windows = unix.replace('\n', "\r\n");
        let windows = split(windows.as_bytes()).unwrap();
        assert_eq!(windows.lines, split(unix.as_bytes()).unwrap().lines);
    }

    #[test]
    fn a_carriage_return_within_a_line_stays() {
        let whole = message("a\rb\n");
        assert_eq!(split(whole.as_bytes()).unwrap().hashed(), b"a\rb");
    }

    #[test]
    fn text_around_the_block_is_refused() {
        refused(&format!("Origin: Evil\n{}", message("a\n")), 1, "does not begin");
        refused(&format!("\n{}", message("a\n")), 1, "does not begin");
        refused(&format!("{}Origin: Evil\n", message("a\n")), 9, "after the signature");
        refused(&format!("{0}{0}", message("a\n")), 9, "after the signature");
        assert!(split(format!("{}\n \r\n", message("a\n")).as_bytes()).is_ok());
    }

    #[test]
    fn a_block_within_the_block_is_refused() {
        refused(&message(&message("a\n")), 4, "not escaped");
        refused(&message("-----END PGP SIGNATURE-----\n"), 4, "not escaped");
    }

    #[test]
    fn an_unknown_header_is_refused() {
        let whole = "-----BEGIN PGP SIGNED MESSAGE-----\nOrigin: Evil\n\na\n";
        refused(&format!("{whole}{TAIL}"), 2, "armor header");
    }

    #[test]
    fn every_truncation_is_refused() {
        let whole = message("a\nb\n");
        for length in 0..whole.len() - 1 {
            assert!(split(&whole.as_bytes()[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_joined_message_can_be_split() {
        for text in ["", "a\n", "a\n\n", "\n\n", "-\n--- a\n- b\n", "From x\n", "\u{e4}\n"] {
            let whole = join(&lines_of(text), "SHA512", TAIL);
            assert_eq!(split(&whole).unwrap().text(), text.as_bytes(), "{text:?}");
        }
        let whole = join(&lines_of("a \r\nb"), "SHA512", TAIL);
        assert_eq!(split(&whole).unwrap().text(), b"a\nb\n");
    }
}
