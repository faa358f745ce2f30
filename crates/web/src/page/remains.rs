//! Changes that the plan made: cycles cut and packages left out.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::clean;
use maud::{Markup, html};

/// Maximum number of cut cycles listed.
const CYCLES_MAX: usize = 200;

/// Maximum number of members named for one cycle.
const MEMBERS_MAX: usize = 20;

/// Maximum number of left-out packages listed.
const LEFT_OUT_MAX: usize = 500;

/// Maximum number of lines in an explanation, and of characters in a line.
const REASON_LINES_MAX: usize = 40;
const REASON_CHARACTERS_MAX: usize = 300;

/// Maximum length of an explanation's first line where it follows the name.
const SUMMARY_CHARACTERS_MAX: usize = 160;

pub(super) fn cycles(view: &View<'_>) -> Option<Section> {
    let cycles = &view.report.cycles_cut;
    (!cycles.is_empty()).then_some(Section {
        id: "cycles",
        heading: "Cycles cut",
        count: Some(cycles.len() as u64),
        content: cycles_content,
    })
}

pub(super) fn left_out(view: &View<'_>) -> Option<Section> {
    let left_out = &view.report.left_out;
    (!left_out.is_empty()).then_some(Section {
        id: "left-out",
        heading: "Left out",
        count: Some(left_out.len() as u64),
        content: left_out_content,
    })
}

fn cycles_content(view: &View<'_>) -> Markup {
    let cycles = &view.report.cycles_cut;
    let table = html! {
        table.cycles {
            (view::table_head(&["Package", "Built without", "How", "The cycle"]))
            tbody {
                @for cycle in cycles.iter().take(CYCLES_MAX) {
                    tr {
                        th scope="row" { (view.link(&cycle.package)) }
                        td { (view.link(&cycle.dependency)) }
                        td.prose { (clean::line(&cycle.how, REASON_CHARACTERS_MAX)) }
                        td.prose { (view.links(&cycle.members, MEMBERS_MAX)) }
                    }
                }
            }
        }
    };
    html! {
        (view::scrolling("Cycles cut", table))
        (view::cut_note(view, cycles.len().min(CYCLES_MAX), cycles.len(), "cuts"))
    }
}

fn left_out_content(view: &View<'_>) -> Markup {
    let left_out = &view.report.left_out;
    html! {
        div.left-out {
            @for one in left_out.iter().take(LEFT_OUT_MAX) {
                @let first = one.reason.trim_start().split('\n').next().unwrap_or_default();
                details {
                    summary {
                        b { (clean::name(&one.package, NAME_CHARACTERS_MAX)) } " "
                        span { (clean::name(first, SUMMARY_CHARACTERS_MAX)) }
                    }
                    pre { (clean::lines(&one.reason, REASON_LINES_MAX, REASON_CHARACTERS_MAX)) }
                }
            }
        }
        (view::cut_note(view, left_out.len().min(LEFT_OUT_MAX), left_out.len(), "left-out packages"))
    }
}
