//! Makes text from builds fit to be shown: no terminal control sequences, no control characters, no characters that
//! reorder what stands around them, no endless lines.

/// Takes out what a terminal would obey instead of show, and what a browser would misread. Line feeds and tabs
/// stay; a carriage return becomes a space, so that the steps of a progress bar do not run together.
pub(crate) fn strip(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_sequence(&mut characters),
            // The one-character form of ESC [.
            '\u{9b}' => skip_parameters(&mut characters),
            '\r' => match characters.peek() {
                Some('\n') | None => {}
                Some(_) => clean.push(' '),
            },
            '\n' | '\t' => clean.push(character),
            _ if character.is_control() || misleads(character) => {}
            _ => clean.push(character),
        }
    }
    clean
}

/// Characters that have no shape of their own and change how others are read, and those that are no characters.
fn misleads(character: char) -> bool {
    matches!(
        character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}'
            | '\u{2029}' | '\u{feff}' | '\u{fdd0}'..='\u{fdef}'
    ) || (character as u32) & 0xfffe == 0xfffe
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips what follows an escape character: a control sequence, a string (title, link), or one other character.
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

/// Skips the parameters of a control sequence and its last character; stops at anything that cannot belong to it,
/// so that a sequence cut short does not take the following text along.
fn skip_parameters(characters: &mut Characters<'_>) {
    while characters.next_if(|next| matches!(next, ' '..='?')).is_some() {}
    characters.next_if(|next| matches!(next, '@'..='~'));
}

/// Skips a string for the terminal up to its end mark, or to the end of the line where there is none.
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

/// One clean line of at most about `characters_max` characters: line feeds become spaces, and what was cut is said.
pub(crate) fn line(text: &str, characters_max: usize) -> String {
    cut(&strip(text).replace('\n', " "), characters_max)
}

/// Clean text of many lines, bounded in both directions. What was cut is said.
pub(crate) fn lines(text: &str, lines_max: usize, characters_max: usize) -> String {
    let clean = strip(text);
    let clean = clean.trim_end();
    let total = clean.split('\n').count();
    let mut shown: Vec<String> =
        clean.split('\n').take(lines_max).map(|line| cut(line, characters_max)).collect();
    if total > lines_max {
        shown.push(format!("… ({} more lines)", crate::words::count((total - lines_max) as u64)));
    }
    shown.join("\n")
}

fn cut(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        None => text.to_owned(),
        Some((end, _)) => {
            let more = text[end..].chars().count() as u64;
            format!("{}… ({} more characters)", &text[..end], crate::words::count(more))
        }
    }
}

/// A name as it is shown in lists and labels, where there is no room to say how much was cut.
pub(crate) fn name(text: &str, characters_max: usize) -> String {
    let clean = strip(text).replace(['\n', '\t'], " ");
    match clean.char_indices().nth(characters_max) {
        None => clean,
        Some((end, _)) => format!("{}…", &clean[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_titles_and_links_of_terminals_go() {
        assert_eq!(strip("\u{1b}[1;31merror:\u{1b}[0m no such file"), "error: no such file");
        assert_eq!(strip("\u{1b}]0;evil title\u{07}text"), "text");
        assert_eq!(strip("\u{1b}]8;;https://x\u{1b}\\link\u{1b}]8;;\u{1b}\\!"), "link!");
        assert_eq!(strip("\u{9b}31mred"), "red");
        assert_eq!(strip("\u{1b}(Bplain"), "plain");
    }

    #[test]
    fn sequences_cut_short_do_not_take_text_along() {
        assert_eq!(strip("end\u{1b}"), "end");
        assert_eq!(strip("end\u{1b}["), "end");
        assert_eq!(strip("\u{1b}[31\nnext"), "\nnext");
        assert_eq!(strip("\u{1b}]0;never ends\nnext"), "\nnext");
    }

    #[test]
    fn controls_and_reordering_characters_go() {
        assert_eq!(strip("a\0b\u{8}c\u{7f}d\u{85}e"), "abcde");
        assert_eq!(strip("if \u{202e}evil\u{2066}"), "if evil");
        assert_eq!(strip("bad \u{fffd} stays, \u{ffff} goes"), "bad \u{fffd} stays,  goes");
        assert_eq!(strip("10%\r20%\r\nnext\ttab"), "10% 20%\nnext\ttab");
    }

    #[test]
    fn long_text_is_cut_and_says_so() {
        assert_eq!(line("äöü\nx", 10), "äöü x");
        assert_eq!(line(&"ä".repeat(1500), 3), "äää… (1,497 more characters)");
        assert_eq!(lines("a\nb\nc\nd\n", 2, 9), "a\nb\n… (2 more lines)");
        assert_eq!(lines("", 2, 9), "");
        assert_eq!(name("abcdef", 4), "abcd…");
    }
}
