//! Makes foreign text (from an archive, source, package, mirror or log) safe for a terminal.
//!
//! Use [`Foreign`] for a name or path in a message. It becomes one line of bounded length. Characters that a terminal
//! would execute, or that change how the rest is read, are shown as escapes such as `\u{1b}`. A hostile name therefore
//! stays visible, and cannot forge a line of a message.
//!
//! Use [`text()`] for a text of several lines, such as an explanation or a whole screen of output. It escapes the same
//! characters, but line feeds and tabs stay, and the caller must bound the length.
//!
//! Use [`log()`] for a log. Line feeds and tabs stay; colours (SGR) and all other control sequences are removed
//! rather than escaped, since ordinary builds print many of them. Pass whole lines: if a sequence is split between
//! calls, only its beginning is removed.

use crate::text::{is_misleading, strip};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The maximum length of a foreign word: longer than any file name (255 bytes) and most paths, and short enough to
/// keep the message around it readable.
pub const CHARACTERS_MAX: usize = 600;

/// Displays foreign text as one safe line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign<'a>(pub &'a str);

impl fmt::Display for Foreign<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(CHARACTERS_MAX) {
            write(character, f)?;
        }
        if characters.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// Escapes text of several lines like [`Foreign`], except that line feeds and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    let stays = |character: char| matches!(character, '\n' | '\t') || !is_executed(character);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match stays(character) {
            true => shown.push(character),
            false => shown.extend(character.escape_default()),
        }
    }
    Cow::Owned(shown)
}

/// Removes control sequences from lines of a log; line feeds and tabs stay.
pub fn log(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| matches!(character, '\n' | '\t') || !is_executed(character);
    if text.chars().all(is_plain) { Cow::Borrowed(text) } else { Cow::Owned(strip(text)) }
}

fn write(character: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if is_executed(character) { write!(f, "{}", character.escape_default()) } else { f.write_char(character) }
}

/// Whether a terminal executes a character instead of displaying it (the controls C0, DEL and C1), or the character is
/// invisible and changes how others are read.
pub fn is_executed(character: char) -> bool {
    character.is_control() || is_misleading(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "a\0b\u{1b}]0;title\u{7}c\u{9b}2Jd\u{202e}e\nerror: forged\r\tf\u{7f}\u{200b}\u{e0041}";

    #[test]
    fn a_word_is_one_line_with_visible_escapes() {
        assert_eq!(
            Foreign(HOSTILE).to_string(),
            r"a\u{0}b\u{1b}]0;title\u{7}c\u{9b}2Jd\u{202e}e\nerror: forged\r\tf\u{7f}\u{200b}\u{e0041}"
        );
        assert_eq!(Foreign("libstdc++6_12.2_ämd64.deb").to_string(), "libstdc++6_12.2_ämd64.deb");
    }

    #[test]
    fn a_word_has_a_bound() {
        let shown = Foreign(&"\u{1b}".repeat(1_000_000)).to_string();
        assert!(shown.len() < CHARACTERS_MAX * 10, "{}", shown.len());
        assert!(shown.ends_with('…'));
        let fits = "x".repeat(CHARACTERS_MAX);
        assert_eq!(Foreign(&fits).to_string(), fits);
    }

    #[test]
    fn texts_keep_their_lines() {
        assert_eq!(text("one\n\ttwo\u{1b}[1m\n"), "one\n\ttwo\\u{1b}[1m\n");
        assert!(matches!(text("plain\n\ttext"), Cow::Borrowed(_)));
    }

    #[test]
    fn logs_lose_their_colours_and_keep_their_lines() {
        assert_eq!(log("\u{1b}[1;31merror:\u{1b}[0m\tx\n\u{9b}32mok\n"), "error:\tx\nok\n");
        assert!(matches!(log("plain\n\ttext"), Cow::Borrowed(_)));
        for shown in [log(HOSTILE).into_owned(), text(HOSTILE).into_owned()] {
            assert!(shown.chars().all(|c| matches!(c, '\n' | '\t') || !is_executed(c)), "{shown:?}");
        }
    }
}
