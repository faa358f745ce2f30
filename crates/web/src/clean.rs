//! Makes text from builds fit for a page: clean, and bounded in length with a word on what was cut.

use kilnyard_model::text::misleads;
pub(crate) use kilnyard_model::text::strip;

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

/// A finished page or drawing without the characters that [`strip`] takes out. Sections clean what they show, with the
/// sequences that such characters begin; this makes sure that none that was forgotten leaves the program.
pub(crate) fn only_shown(page: String) -> String {
    let is_shown = |c: char| matches!(c, ' '..='~' | '\n' | '\t') || !(c.is_control() || misleads(c));
    if page.chars().all(is_shown) { page } else { page.chars().filter(|c| is_shown(*c)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_says_so() {
        assert_eq!(line("äöü\nx", 10), "äöü x");
        assert_eq!(line(&"ä".repeat(1500), 3), "äää… (1,497 more characters)");
        assert_eq!(lines("a\nb\nc\nd\n", 2, 9), "a\nb\n… (2 more lines)");
        assert_eq!(lines("", 2, 9), "");
        assert_eq!(name("abcdef", 4), "abcd…");
    }

    #[test]
    fn what_a_section_forgot_to_clean_does_not_leave_the_program() {
        assert_eq!(only_shown("<p>a\u{1b}\u{202e}\u{feff}\0b\t–\n</p>".to_owned()), "<p>ab\t–\n</p>");
    }
}
