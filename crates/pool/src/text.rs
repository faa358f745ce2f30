//! Foreign text in messages: bounded, on one line, without control characters.

/// The longest reason that is kept, in bytes.
pub(crate) const REASON_BYTES_MAX: usize = 600;

/// The text as one line that a terminal and a log can show. Of a longer one, the beginning and the end are kept: programs say
/// what failed first, and why last.
pub(crate) fn excerpt(text: &[u8], bytes_max: usize) -> String {
    let text = String::from_utf8_lossy(text);
    let mut line = String::new();
    for character in text.trim().chars() {
        let is_space = character.is_whitespace();
        match is_space || character.is_control() || is_invisible(character) {
            true if line.ends_with(' ') => {}
            true => line.push(' '),
            false => line.push(character),
        }
    }
    let line = line.trim_end();
    if line.len() <= bytes_max {
        return line.to_owned();
    }
    let half = bytes_max / 2;
    let head = (0..=half).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    let tail = (line.len() - half..=line.len()).find(|at| line.is_char_boundary(*at)).unwrap_or(line.len());
    format!("{} … {}", &line[..head], &line[tail..])
}

/// A reason of a manager, as it is kept.
pub(crate) fn reason(text: &str) -> String {
    excerpt(text.as_bytes(), REASON_BYTES_MAX)
}

/// Characters that change the direction of text or are not shown.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text in single quotes of a POSIX shell. NUL cannot be in it.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_one_bounded_line() {
        assert_eq!(excerpt(b" a\n\x1b[31mb\r\n\0c\xff ", 100), "a [31mb c\u{fffd}");
        assert_eq!(excerpt("a\u{202e}b".as_bytes(), 100), "a b");
        let long = excerpt("ä".repeat(1000).as_bytes(), 101);
        assert!(long.len() <= 101 + 5 && long.contains(" … "), "{long}");
        assert_eq!(excerpt(b"", 0), "");
    }

    #[test]
    fn quotes_are_closed() {
        assert_eq!(quoted("a'b $c"), r"'a'\''b $c'");
    }
}
