//! How to install from the published repository.

use super::Section;
use super::view::View;
use crate::{clean, words};
use maud::{Markup, html};

/// Maximum length of a path, line or fingerprint.
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
        ("Contents", words::counted(repository.packages, "package", "packages")),
    ];
    html! {
        @if !repository.sources_line.is_empty() {
            p { "Add this line to a machine to install from the repository. A click selects the whole line." }
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
