//! What the plan changed or left aside: cycles that were cut, packages that were left out.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::clean;
use crate::markup::Markup;

/// Cut cycles listed.
const CYCLES_MAX: usize = 200;

/// Members of a cycle named.
const MEMBERS_MAX: usize = 20;

/// Packages left out that are listed.
const LEFT_OUT_MAX: usize = 500;

/// Lines of one explanation, and characters of one line.
const REASON_LINES_MAX: usize = 40;
const REASON_CHARACTERS_MAX: usize = 300;

/// Characters of the first line of an explanation, where it stands beside the name.
const SUMMARY_CHARACTERS_MAX: usize = 160;

pub(super) fn cycles(view: &View<'_>) -> Option<Section> {
    let cycles = &view.report.cycles_cut;
    (!cycles.is_empty()).then_some(Section {
        id: "cycles",
        heading: "Cycles cut",
        count: Some(cycles.len() as u64),
        write: write_cycles,
    })
}

pub(super) fn left_out(view: &View<'_>) -> Option<Section> {
    let left_out = &view.report.left_out;
    (!left_out.is_empty()).then_some(Section {
        id: "left-out",
        heading: "Left out",
        count: Some(left_out.len() as u64),
        write: write_left_out,
    })
}

fn write_cycles(view: &View<'_>, out: &mut Markup) {
    let cycles = &view.report.cycles_cut;
    view::scrolling("Cycles cut", out, |out| {
        out.element("table", &[("class", "cycles")], |out| {
            view::table_head(&["Package", "Built without", "How", "The cycle"], out);
            out.element("tbody", &[], |out| {
                for cycle in cycles.iter().take(CYCLES_MAX) {
                    out.element("tr", &[], |out| {
                        out.element("th", &[("scope", "row")], |out| view.link(&cycle.package, out));
                        out.element("td", &[], |out| view.link(&cycle.dependency, out));
                        out.leaf(
                            "td",
                            &[("class", "prose")],
                            &clean::line(&cycle.how, REASON_CHARACTERS_MAX),
                        );
                        out.element("td", &[("class", "prose")], |out| {
                            view.links(&cycle.members, MEMBERS_MAX, out)
                        });
                    });
                }
            });
        });
    });
    view::cut_note(cycles.len().min(CYCLES_MAX), cycles.len(), "cuts", out);
}

fn write_left_out(view: &View<'_>, out: &mut Markup) {
    let left_out = &view.report.left_out;
    out.element("div", &[("class", "left-out")], |out| {
        for one in left_out.iter().take(LEFT_OUT_MAX) {
            let first = one.reason.trim_start().split('\n').next().unwrap_or_default();
            out.element("details", &[], |out| {
                out.element("summary", &[], |out| {
                    out.leaf("b", &[], &clean::name(&one.package, NAME_CHARACTERS_MAX));
                    out.text(" ");
                    out.leaf("span", &[], &clean::name(first, SUMMARY_CHARACTERS_MAX));
                });
                out.leaf("pre", &[], &clean::lines(&one.reason, REASON_LINES_MAX, REASON_CHARACTERS_MAX));
            });
        }
    });
    view::cut_note(left_out.len().min(LEFT_OUT_MAX), left_out.len(), "packages left out", out);
}
