//! Build data as JSON: the answers of the API, and of commands with `--json`.
//!
//! One type for each answer, with its description for the API's OpenAPI document. `yard` fills them in, commands print
//! them, the server sends them, and pages show them, so that all of them agree.
//!
//! - [`run`]: runs, what is being built, what waits, and for what.
//! - [`package`]: packages, their builds, and why they are in their state.
//! - [`compare`]: the difference of two runs; what a change would rebuild.
//! - [`measure`]: times of many runs as percentiles.
//!
//! Invariants: names end with their unit; times are seconds since 1970, durations are seconds. Types change by
//! additions only: a published field keeps its name and meaning, and readers ignore unknown fields.

pub mod compare;
pub mod measure;
pub mod package;
pub mod run;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a long list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The entries of this part.
    pub items: Vec<T>,
    /// What `cursor` must be for the next part; absent in the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// The first `count_max` entries of a list after the one with the key `cursor`. Absent if there is no such entry any more, in a
    /// list that changes: its reader begins again.
    pub fn of(
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> String,
        cursor: Option<&str>,
        count_max: usize,
    ) -> Option<Page<T>> {
        let mut items = items.into_iter();
        let mut shown: Vec<T> = Vec::new();
        if let Some(cursor) = cursor {
            items.by_ref().find(|item| key(item) == cursor)?;
        }
        shown.extend(items.by_ref().take(count_max));
        let next = items.next().and(shown.last()).map(key);
        Some(Page { items: shown, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another() {
        let page = |cursor: Option<&str>| Page::of(1..=5, i32::to_string, cursor, 2);
        let mut seen = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let Page { items, next } = page(cursor.as_deref()).unwrap();
            seen.extend(items);
            let Some(next) = next else { break };
            cursor = Some(next);
        }
        assert_eq!(seen, [1, 2, 3, 4, 5]);
        assert_eq!(page(Some("9")), None);
        assert_eq!(Page::of(1..=2, i32::to_string, None, 2).unwrap().next, None);
    }
}
