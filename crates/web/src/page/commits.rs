//! The commits of trees and repositories since an earlier run.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::clean;
use maud::{Markup, html};

/// Maximum number of commits listed.
const COMMITS_MAX: usize = 200;

/// How much of a commit's id is shown.
const ID_CHARACTERS_MAX: usize = 12;

/// Maximum number of lines of a message, and of characters in a line.
const LINES_MAX: usize = 40;
const LINE_CHARACTERS_MAX: usize = 300;

/// Maximum length of a message's first line where it follows the id.
const SUMMARY_CHARACTERS_MAX: usize = 160;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let changes = &view.report.changes;
    (!changes.is_empty()).then_some(Section {
        id: "commits",
        heading: "Commits",
        count: Some(changes.len() as u64),
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let changes = &view.report.changes;
    html! {
        @if let Some(run) = view.report.compared_run {
            p { "What has changed in the sources since run " (run) "." }
        }
        div.left-out {
            @for change in changes.iter().take(COMMITS_MAX) {
                @let first = change.lines.first().map_or("", String::as_str);
                details {
                    summary {
                        b { (clean::name(&change.commit, ID_CHARACTERS_MAX).trim_end_matches('…')) } " "
                        span { (clean::name(first, SUMMARY_CHARACTERS_MAX)) }
                    }
                    p {
                        (clean::name(&change.author, NAME_CHARACTERS_MAX)) ", " (clean::name(&change.date, NAME_CHARACTERS_MAX)) ", in "
                        (clean::name(&change.source, NAME_CHARACTERS_MAX))
                    }
                    pre { (clean::lines(&change.lines.join("\n"), LINES_MAX, LINE_CHARACTERS_MAX)) }
                }
            }
        }
        (view::cut_note(view, changes.len().min(COMMITS_MAX), changes.len(), "commits"))
    }
}
