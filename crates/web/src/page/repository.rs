//! How to use what was built.

use super::Section;
use super::view::View;
use crate::{clean, words};
use maud::{Markup, html};

/// Characters of a path, a line or a fingerprint.
const FACT_CHARACTERS_MAX: usize = 1000;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    view.report.repository.is_some().then_some(Section {
        id: "repository",
        heading: "Repository",
        count: None,
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let Some(repository) = &view.report.repository else {
        return Markup::default();
    };
    let text = |text: &str| clean::line(text, FACT_CHARACTERS_MAX);
    let facts = [
        ("Key fingerprint", text(&repository.fingerprint)),
        ("Folder", text(&repository.path)),
        ("Holds", words::counted(repository.packages, "package", "packages")),
    ];
    html! {
        @if !repository.sources_line.is_empty() {
            p { "This line makes a machine use it; one click selects all of it." }
            pre.copy { code { (text(&repository.sources_line)) } }
        }
        dl.pairs {
            @for (name, value) in facts {
                @if !value.is_empty() {
                    dt { (name) }
                    dd { (value) }
                }
            }
        }
    }
}
