//! Leftovers of stages: processes that were killed, and objects in shared memory.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::clean;
use maud::{Markup, html};

/// Maximum number of leftovers listed.
const LEFT_MAX: usize = 200;
/// Maximum length of one description: a command line, a folder, and the process that started it.
const LEFT_CHARACTERS_MAX: usize = 1000;

/// Package, stage and description of each leftover.
fn all<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    let stages = view
        .report
        .packages
        .iter()
        .flat_map(|package| package.stages.iter().map(move |stage| (package, stage)));
    stages.flat_map(|(package, stage)| {
        stage.left_behind.iter().map(move |left| (&*package.name, &*stage.name, &**left))
    })
}

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let count = all(view).count() as u64;
    (count > 0).then_some(Section {
        id: "left-behind",
        heading: "Left behind by builds",
        count: Some(count),
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let count = all(view).count();
    let table = html! {
        table.left-behind {
            (view::table_head(&["Package", "Stage", "What was left, and what started it"]))
            tbody {
                @for (package, stage, left) in all(view).take(LEFT_MAX) {
                    tr {
                        th scope="row" { (view.link(package)) }
                        td { (clean::name(stage, NAME_CHARACTERS_MAX)) }
                        td.prose { (clean::line(left, LEFT_CHARACTERS_MAX)) }
                    }
                }
            }
        }
    };
    html! {
        (view::scrolling("Left behind by builds", table))
        (view::cut_note(view, count.min(LEFT_MAX), count, "processes"))
    }
}
