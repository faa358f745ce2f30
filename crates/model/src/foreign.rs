//! Text of others (an archive, a source, a package, a mirror, a log), made fit for a terminal.
//!
//! A name or path within a message goes through [`Foreign`]: it becomes one line of bounded length, and what a terminal
//! would obey, or what changes how the rest is read, is shown as an escape such as `\u{1b}`. So a hostile name stays
//! visible, and cannot forge a line of a message.
//!
//! A text of several lines, such as an explanation or a whole screen of output, goes through [`text()`]: the same
//! escapes, but line feeds and tabs stay, and its length is the caller's to bound.
//!
//! A log goes through [`log()`]: line feeds and tabs stay, and colours (SGR) and all other control sequences are removed
//! rather than escaped, since honest builds are full of them. Give it whole lines: a sequence that is cut in two between
//! calls loses its beginning only.

use crate::text::{misleads, strip};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// Characters of one foreign word that are shown: longer than any file name (255 bytes) and most paths, and short enough
/// that the message around it stays readable.
pub const CHARACTERS_MAX: usize = 600;

/// Shows foreign text as one harmless line.
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

/// Foreign text of several lines: line feeds and tabs stay, everything else is escaped as by [`Foreign`].
pub fn text(text: &str) -> Cow<'_, str> {
    let stays = |character: char| matches!(character, '\n' | '\t') || !is_obeyed(character);
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

/// Lines of a log: line feeds and tabs stay, control sequences are removed.
pub fn log(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| matches!(character, '\n' | '\t') || !is_obeyed(character);
    if text.chars().all(is_plain) { Cow::Borrowed(text) } else { Cow::Owned(strip(text)) }
}

fn write(character: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if is_obeyed(character) { write!(f, "{}", character.escape_default()) } else { f.write_char(character) }
}

/// Whether a terminal obeys a character rather than shows it, or it changes how others are read: controls (C0, DEL, C1),
/// and characters without a shape of their own.
pub fn is_obeyed(character: char) -> bool {
    character.is_control() || misleads(character)
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
            assert!(shown.chars().all(|c| matches!(c, '\n' | '\t') || !is_obeyed(c)), "{shown:?}");
        }
    }
}
