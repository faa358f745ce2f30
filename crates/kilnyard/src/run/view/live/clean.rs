//! Makes text of builds fit for a terminal: one line, nothing that a terminal would obey.

use ratatui::text::Span;

/// A line of a build can be megabytes long; no more of it is of use on a screen.
const LINE_CHARACTERS_MAX: usize = 600;

/// One line without control sequences, control characters, and characters that reorder others.
pub fn line(text: &str) -> String {
    let mut clean = String::new();
    let mut characters = text.chars().take(LINE_CHARACTERS_MAX).peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => match characters.next() {
                Some('[') => skip_parameters(&mut characters),
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    while let Some(skipped) = characters.next() {
                        match skipped {
                            '\u{7}' | '\u{9c}' => break,
                            '\u{1b}' => {
                                characters.next_if_eq(&'\\');
                                break;
                            }
                            _ => {}
                        }
                    }
                }
                Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => {
                    characters.next();
                }
                _ => {}
            },
            '\u{9b}' => skip_parameters(&mut characters),
            '\t' | '\n' | '\r' => clean.push(' '),
            _ if character.is_control() || misleads(character) => {}
            _ => clean.push(character),
        }
    }
    clean.truncate(clean.trim_end().len());
    clean
}

fn skip_parameters(characters: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    while characters.next_if(|character| matches!(character, ' '..='?')).is_some() {}
    characters.next_if(|character| matches!(character, '@'..='~'));
}

/// Characters without a shape that change how others are read.
fn misleads(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The beginning of a text that fits; its cut is marked where there is room for the mark.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mark = if columns > 4 { "…" } else { "" };
    let mut kept = first(text, columns.saturating_sub(width(mark))).to_owned();
    kept.push_str(mark);
    kept
}

/// The text in pieces that fit.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut rest = text;
    let mut rows = Vec::new();
    while width(rest) > columns {
        let mut row = first(rest, columns);
        if row.is_empty() {
            // Not one character fits: the rest cannot be shown.
            return rows;
        }
        // A break between words, unless that leaves much of the row empty.
        if let Some(space) = row.rfind(' ').filter(|space| width(&row[..*space]) * 2 > columns) {
            row = &row[..=space];
        }
        rows.push(row.trim_end().to_owned());
        rest = &rest[row.len()..];
    }
    rows.push(rest.to_owned());
    rows
}

fn first(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    for (index, character) in text.char_indices() {
        taken += width(character.encode_utf8(&mut [0; 4]));
        if taken > columns {
            return &text[..index];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
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
    fn cut_and_wrapped_text_fits() {
        for text in
            ["", "word", "several words of some length", "漢字漢字漢字漢字", "aaaaaaaaaaaaaaaaaaaaaaaaa"]
        {
            for columns in 0..30 {
                assert!(width(&cut(text, columns)) <= columns, "{text} {columns}");
                let rows = wrap(text, columns);
                assert!(rows.iter().all(|row| width(row) <= columns), "{text} {columns}");
                if columns >= 2 {
                    let solid = |text: &str| text.replace(' ', "");
                    assert_eq!(solid(&rows.concat()), solid(text));
                }
            }
        }
        assert_eq!(wrap("several words of", 10), ["several", "words of"]);
        assert_eq!(cut("several words", 8), "several…");
    }
}
