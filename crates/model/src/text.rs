//! Text that a build wrote, made fit to be shown.

/// A line of a build can be megabytes long; no more of it is of use on a screen.
const LINE_CHARACTERS_MAX: usize = 600;

/// The longest explanation; a longer one is nothing that somebody reads.
const LINES_MAX: usize = 200;

/// One line without control sequences, control characters (ECMA-48), and characters that reorder others: nothing
/// that a terminal would obey, or that would make a reader see something else than what is there.
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

/// Several lines, each as [`line()`] makes it; longer texts are cut.
pub fn lines(text: &str) -> String {
    text.lines().take(LINES_MAX).map(line).collect::<Vec<_>>().join("\n")
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
    fn lines_stay_apart() {
        assert_eq!(lines("one\u{1b}[1m\r\ntwo\u{7}\n"), "one\ntwo");
        assert_eq!(lines(&"x\n".repeat(10_000)).lines().count(), LINES_MAX);
    }
}
