//! Text in the columns that a terminal has.

use ratatui::text::Span;

/// The width of a text in columns.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The part of a text that fits. A mark shows the cut, if there is room for it.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mark = if columns > 4 { "…" } else { "" };
    let mut kept = first(text, columns.saturating_sub(width(mark))).to_owned();
    kept.push_str(mark);
    kept
}

/// Wraps a text.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut rest = text;
    let mut rows = Vec::new();
    while width(rest) > columns {
        let mut row = first(rest, columns);
        if row.is_empty() {
            // No character fits.
            return rows;
        }
        // Breaks between words, unless that leaves much of the row empty.
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
