//! Makes text from builds safe for a page: control characters removed, length limited, cuts marked.

use kilnyard_model::text::is_misleading;
pub(crate) use kilnyard_model::text::strip;

/// Returns one clean line of about `characters_max` characters at most. Line feeds become spaces. A cut is
/// marked with the number of missing characters.
pub(crate) fn line(text: &str, characters_max: usize) -> String {
    cut(&strip(text).replace('\n', " "), characters_max)
}

/// Returns clean multi-line text, limited in both directions. Cuts are marked with the number of missing lines
/// or characters.
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

/// Returns a name for lists and labels, which have no room for the number of missing characters.
pub(crate) fn name(text: &str, characters_max: usize) -> String {
    let clean = strip(text).replace(['\n', '\t'], " ");
    match clean.char_indices().nth(characters_max) {
        None => clean,
        Some((end, _)) => format!("{}…", &clean[..end]),
    }
}

/// Removes the characters that [`strip`] removes from a finished page or drawing. Sections already clean what
/// they show, including escape sequences; this catches any text that a section forgot.
pub(crate) fn only_shown(page: String) -> String {
    let is_shown = |c: char| matches!(c, ' '..='~' | '\n' | '\t') || !(c.is_control() || is_misleading(c));
    if page.chars().all(is_shown) { page } else { page.chars().filter(|c| is_shown(*c)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_with_a_note() {
        assert_eq!(line("äöü\nx", 10), "äöü x");
        assert_eq!(line(&"ä".repeat(1500), 3), "äää… (1,497 more characters)");
        assert_eq!(lines("a\nb\nc\nd\n", 2, 9), "a\nb\n… (2 more lines)");
        assert_eq!(lines("", 2, 9), "");
        assert_eq!(name("abcdef", 4), "abcd…");
    }

    #[test]
    fn text_that_a_section_did_not_clean_is_caught() {
        assert_eq!(only_shown("<p>a\u{1b}\u{202e}\u{feff}\0b\t–\n</p>".to_owned()), "<p>ab\t–\n</p>");
    }
}
