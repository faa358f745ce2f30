//! Makes output of builds safe to display.

/// A line of a build can be megabytes long; more than this is useless on a screen.
const LINE_CHARACTERS_MAX: usize = 600;

/// The maximum number of lines of a readable explanation.
const LINES_MAX: usize = 200;

/// Removes control sequences that a terminal would execute, and characters that mislead readers. Line feeds and tabs
/// stay; a carriage return becomes a space, so that the steps of a progress bar do not run together.
pub fn strip(text: &str) -> String {
    // Most texts need no change, and a page has hundreds of thousands of them.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
        return text.to_owned();
    }
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_sequence(&mut characters),
            // The one-character form of `ESC [`.
            '\u{9b}' => skip_parameters(&mut characters),
            '\r' => match characters.peek() {
                Some('\n') | None => {}
                Some(_) => clean.push(' '),
            },
            '\n' | '\t' => clean.push(character),
            _ if character.is_control() || is_misleading(character) => {}
            _ => clean.push(character),
        }
    }
    clean
}

/// Whether a character is invisible and changes how others are read, or is a Unicode noncharacter.
pub fn is_misleading(character: char) -> bool {
    matches!(
        character,
        '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fdd0}'..='\u{fdef}' | '\u{e0000}'..='\u{e007f}'
    ) || (character as u32) & 0xfffe == 0xfffe
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips the rest of an escape sequence: a control sequence, a string (title, link), or one other character.
fn skip_sequence(characters: &mut Characters<'_>) {
    match characters.peek() {
        Some('[') => {
            characters.next();
            skip_parameters(characters);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            characters.next();
            skip_string(characters);
        }
        Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => {
            characters.next();
            characters.next_if(char::is_ascii_graphic);
        }
        Some(next) if next.is_ascii_graphic() => {
            characters.next();
        }
        _ => {}
    }
}

/// Skips the parameters and the final character of a control sequence. Stops at any character that cannot be part of
/// it, so that a truncated sequence does not swallow the following text.
fn skip_parameters(characters: &mut Characters<'_>) {
    while characters.next_if(|next| matches!(next, ' '..='?')).is_some() {}
    characters.next_if(|next| matches!(next, '@'..='~'));
}

/// Skips a string for the terminal up to its terminator, or to the end of the line if there is none.
fn skip_string(characters: &mut Characters<'_>) {
    while let Some(next) = characters.peek().copied() {
        match next {
            '\n' => return,
            '\u{07}' | '\u{9c}' => {
                characters.next();
                return;
            }
            '\u{1b}' => {
                characters.next();
                characters.next_if_eq(&'\\');
                return;
            }
            _ => {
                characters.next();
            }
        }
    }
}

/// Makes one line of bounded length, without everything that [`strip`] removes.
pub fn line(text: &str) -> String {
    let end = text.char_indices().nth(LINE_CHARACTERS_MAX).map_or(text.len(), |(end, _)| end);
    strip(&text[..end]).replace(['\n', '\t'], " ").trim_end().to_owned()
}

/// Applies [`line()`] to each line, and cuts the text after a maximum number of lines.
pub fn lines(text: &str) -> String {
    text.lines().take(LINES_MAX).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_control_sequences() {
        assert_eq!(line("\u{1b}[31mred\u{1b}[0m\u{7}"), "red");
        assert_eq!(line("a\u{1b}]0;title\u{7}b\u{1b}]8;;http://x\u{1b}\\c"), "abc");
        assert_eq!(line("a\u{9b}2Jb\u{1b}cd\u{1b}(0e"), "abde");
        assert_eq!(line("one\ntwo\rthree\tfour  "), "one two three four");
        assert_eq!(line("x\u{202e}y\u{200b}z"), "xyz");
        assert_eq!(line("\u{1b}"), "");
        assert_eq!(line("\u{1b}[1;2"), "");
        assert!(line(&"long ".repeat(100_000)).len() <= LINE_CHARACTERS_MAX);
    }

    #[test]
    fn line_breaks_stay() {
        assert_eq!(lines("one\u{1b}[1m\r\ntwo\u{7}\n"), "one\ntwo");
        assert_eq!(lines(&"x\n".repeat(10_000)).lines().count(), LINES_MAX);
    }

    #[test]
    fn colours_titles_and_links_are_removed() {
        assert_eq!(strip("\u{1b}[1;31merror:\u{1b}[0m no such file"), "error: no such file");
        assert_eq!(strip("\u{1b}]0;evil title\u{07}text"), "text");
        assert_eq!(strip("\u{1b}]8;;https://x\u{1b}\\link\u{1b}]8;;\u{1b}\\!"), "link!");
        assert_eq!(strip("\u{9b}31mred"), "red");
        assert_eq!(strip("\u{1b}(Bplain"), "plain");
    }

    #[test]
    fn truncated_sequences_do_not_swallow_text() {
        assert_eq!(strip("end\u{1b}"), "end");
        assert_eq!(strip("end\u{1b}["), "end");
        assert_eq!(strip("\u{1b}[31\nnext"), "\nnext");
        assert_eq!(strip("\u{1b}]0;never ends\nnext"), "\nnext");
    }

    #[test]
    fn controls_and_reordering_characters_are_removed() {
        assert_eq!(strip("a\0b\u{8}c\u{7f}d\u{85}e"), "abcde");
        assert_eq!(strip("if \u{202e}evil\u{2066}"), "if evil");
        assert_eq!(strip("bad \u{fffd} stays, \u{ffff} goes"), "bad \u{fffd} stays,  goes");
        assert_eq!(strip("10%\r20%\r\nnext\ttab"), "10% 20%\nnext\ttab");
    }
}
