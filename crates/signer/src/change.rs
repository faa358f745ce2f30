//! Indexes as changes: stanzas that are kept, left out and new.

use crate::message::Edit;
use std::collections::HashMap;

/// The stanzas of an index, each with the empty line after it. Together, they are the text.
pub fn stanzas(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive("\n\n")
}

/// The edits that make one text of another.
pub fn between(base: &str, new: &str) -> Vec<Edit> {
    let places: HashMap<&str, u32> = stanzas(base).zip(0..).collect();
    let count = stanzas(base).count() as u32;
    let mut edits = Vec::new();
    let mut next = 0;
    for stanza in stanzas(new) {
        match places.get(stanza).filter(|place| **place >= next) {
            Some(place) => {
                push(&mut edits, Edit::Drop(place - next));
                push(&mut edits, Edit::Keep(1));
                next = place + 1;
            }
            None => push(&mut edits, Edit::Add(stanza.to_owned())),
        }
    }
    push(&mut edits, Edit::Drop(count.saturating_sub(next)));
    edits
}

/// Adds an edit, as part of the last one if that is possible.
fn push(edits: &mut Vec<Edit>, edit: Edit) {
    match (edits.last_mut(), edit) {
        (_, Edit::Keep(0) | Edit::Drop(0)) => {}
        (Some(Edit::Keep(count)), Edit::Keep(more)) => *count += more,
        (Some(Edit::Drop(count)), Edit::Drop(more)) => *count += more,
        (Some(Edit::Add(text)), Edit::Add(more)) => text.push_str(&more),
        (_, edit) => edits.push(edit),
    }
}

/// The text that edits make of a base.
///
/// # Errors
/// The base has fewer stanzas, or the text is longer than the limit.
pub fn apply(base: &str, edits: &[Edit], bytes_max: usize) -> Result<String, &'static str> {
    let mut rest = stanzas(base);
    let mut text = String::new();
    for edit in edits {
        match edit {
            Edit::Keep(count) => {
                for _ in 0..*count {
                    text.push_str(rest.next().ok_or("it keeps stanzas that the base lacks")?);
                }
            }
            Edit::Drop(count) => {
                for _ in 0..*count {
                    rest.next().ok_or("it leaves out stanzas that the base lacks")?;
                }
            }
            Edit::Add(more) => text.push_str(more),
        }
        if text.len() > bytes_max {
            return Err("it is too long");
        }
    }
    match rest.next() {
        Some(_) => Err("it does not say what becomes of the last stanzas"),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_change_is_as_long_as_what_is_new() {
        let base = "a\n\nb\n\nc\n\n";
        let edits = between(base, "a\n\nx\n\nc\n\n");
        assert_eq!(edits, [Edit::Keep(1), Edit::Add("x\n\n".into()), Edit::Drop(1), Edit::Keep(1)]);
        assert!(apply(base, &[Edit::Keep(2)], 100).is_err());
        assert!(apply(base, &[Edit::Keep(4)], 100).is_err());
        assert!(apply(base, &[Edit::Keep(3)], 3).is_err());
    }

    proptest! {
        #[test]
        fn edits_make_the_new_text(base in "([a-c]{0,2}\n{1,2}){0,6}", new in "([a-c]{0,2}\n{1,2}){0,6}") {
            prop_assert_eq!(apply(&base, &between(&base, &new), 1000), Ok(new));
        }
    }
}
