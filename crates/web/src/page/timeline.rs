//! The timeline with its legend.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::markup::Markup;
use crate::timeline::{Layout, SHADE_CLASSES, draw, has_builds, layout};
use crate::{PackageState, clean, words};

/// Names of stages in the legend for one shade.
const LEGEND_NAMES_MAX: usize = 6;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    has_builds(view.report).then_some(Section { id: "timeline", heading: "Timeline", count: None, write })
}

fn write(view: &View<'_>, out: &mut Markup) {
    let layout = layout(view.report);
    view::scrolling("Timeline", out, |out| draw(out, &layout, view.report));
    write_legend(view, &layout, out);
    if layout.builds_in_cells > 0 {
        out.leaf(
            "p",
            &[("class", "cut")],
            &format!(
                "{} of {} builds are too short to be drawn alone and are summed up: the stronger the colour, the busier the slot.",
                words::count(layout.builds_in_cells as u64),
                words::count(layout.builds as u64)
            ),
        );
    }
    let lanes = layout.lanes.len();
    view::cut_note(lanes, lanes + layout.lanes_hidden, "slots", out);
}

fn write_legend(view: &View<'_>, layout: &Layout, out: &mut Markup) {
    let has = |state| view.report.packages.iter().any(|package| package.state == state);
    out.element("ul", &[("class", "legend"), ("aria-label", "Legend")], |out| {
        for (class, names) in SHADE_CLASSES.iter().zip(&layout.legend) {
            if !names.is_empty() {
                let mut text: Vec<String> = names
                    .iter()
                    .take(LEGEND_NAMES_MAX)
                    .map(|name| clean::name(name, NAME_CHARACTERS_MAX))
                    .collect();
                if names.len() > LEGEND_NAMES_MAX {
                    text.push("others".to_owned());
                }
                write_entry(class, &text.join(", "), out);
            }
        }
        write_entry("bar", "between stages", out);
        if layout.builds_in_cells > 0 {
            write_entry("many", "several builds", out);
        }
        if has(PackageState::Failed) {
            write_entry("bad", "failed", out);
        }
        if has(PackageState::Building) {
            write_entry("now", "being built", out);
        }
    });
}

fn write_entry(class: &str, text: &str, out: &mut Markup) {
    out.element("li", &[], |out| {
        out.element("svg", &[("width", "22"), ("height", "12"), ("aria-hidden", "true")], |out| {
            out.void("rect", &[("class", class), ("width", "22"), ("height", "12")]);
        });
        out.text(" ");
        out.text(text);
    });
}
