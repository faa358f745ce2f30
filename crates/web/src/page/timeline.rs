//! The timeline with its legend.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::drawing::{Length, rectangle};
use crate::timeline::{Layout, SHADE_CLASSES, draw, has_builds, layout};
use crate::write::TIMELINE_FILE;
use crate::{PackageState, clean, words};
use maud::{Markup, html};

/// Maximum number of stage names in one legend entry.
const LEGEND_NAMES_MAX: usize = 6;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    (view.is_whole() && has_builds(view.report)).then_some(Section {
        id: "timeline",
        heading: "Timeline",
        count: None,
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let layout = layout(view.report);
    let lanes = layout.lanes.len();
    html! {
        (view::scrolling("Timeline", draw(&layout, view.report)))
        (legend(view, &layout))
        @if view.is_folder() {
            p.cut { a href=(TIMELINE_FILE) { "The timeline as a drawing" } " (SVG), for a document or another page." }
        }
        @if layout.builds_in_cells > 0 {
            p.cut {
                (words::count(layout.builds_in_cells as u64)) " of " (words::count(layout.builds as u64))
                " builds are too short to be drawn separately. They are merged: the stronger the colour, the busier the slot."
            }
        }
        (view::cut_note(view, lanes, lanes + layout.lanes_hidden, "slots"))
    }
}

fn legend(view: &View<'_>, layout: &Layout) -> Markup {
    let has = |state| view.report.packages.iter().any(|package| package.state == state);
    html! {
        ul.legend aria-label="Legend" {
            @for (class, names) in SHADE_CLASSES.iter().zip(&layout.legend) {
                @if !names.is_empty() { (entry(class, &stage_names(names))) }
            }
            (entry("bar", "between stages"))
            @if layout.builds_in_cells > 0 { (entry("many", "several builds")) }
            @if has(PackageState::Failed) { (entry("bad", "failed")) }
            @if has(PackageState::Building) { (entry("now", "being built")) }
        }
    }
}

/// The names of the stages that share a shade.
pub(crate) fn stage_names<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(LEGEND_NAMES_MAX);
    let mut text: Vec<String> = shown.map(|name| clean::name(name.as_ref(), NAME_CHARACTERS_MAX)).collect();
    if names.len() > LEGEND_NAMES_MAX {
        text.push("others".to_owned());
    }
    text.join(", ")
}

fn entry(class: &str, text: &str) -> Markup {
    let area = [0.0, 0.0, 22.0, 12.0].map(Length::Pixels);
    html! {
        li {
            svg width="22" height="12" aria-hidden="true" { (rectangle(class, area, "")) }
            " " (text)
        }
    }
}
