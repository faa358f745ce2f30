//! Failures by cause: after a mass rebuild, they show what to fix first.

use super::Section;
use super::view::{self, View};
use crate::{clean, words};
use maud::{Markup, html};

/// Maximum number of causes listed.
const CAUSES_MAX: usize = 100;
/// Maximum number of packages named for one of them.
const NAMES_MAX: usize = 30;
/// Maximum length of a cause.
const TEXT_CHARACTERS_MAX: usize = 200;

/// The section, if several packages failed for the same cause.
pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let causes = &view.report.causes;
    causes.iter().any(|cause| cause.packages.len() > 1).then_some(Section {
        id: "causes",
        heading: "Causes",
        count: Some(causes.len() as u64),
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let causes = &view.report.causes;
    let shown = causes.len().min(CAUSES_MAX);
    html! {
        dl.culprits {
            @for cause in &causes[..shown] {
                div {
                    dt { (clean::line(&cause.title, TEXT_CHARACTERS_MAX)) }
                    dd {
                        strong { (words::counted(cause.packages.len() as u64, "package", "packages")) }
                        ": " (view.links(&cause.packages, NAMES_MAX))
                    }
                }
                "\n"
            }
        }
        (view::cut_note(view, shown, causes.len(), "causes"))
    }
}
