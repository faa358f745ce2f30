//! The page: its sections, their order, and the parts that they share.
//!
//! A section without content is left out, and so is its link at the top.

mod blocked;
mod causes;
mod commits;
mod expected;
mod expected_failures;
mod failures;
mod left_behind;
mod packages;
mod remains;
mod repository;
mod result;
mod slowest;
mod timeline;
mod view;

use crate::Report;
use crate::site::Shell;
use maud::{Markup, html};
use view::View;

pub(crate) use timeline::stage_names;
pub(crate) use view::{NAME_CHARACTERS_MAX, bar, state_word};

/// A part of the page: its id for links, its heading and its content.
struct Section {
    id: &'static str,
    heading: &'static str,
    /// The number of entries, if useful.
    count: Option<u64>,
    content: fn(&View<'_>) -> Markup,
}

/// The parts of the page of a run.
pub(crate) struct Parts {
    /// The result, in a few words.
    pub(crate) result: String,
    /// What is at the top: which run, and its result.
    pub(crate) header: Markup,
    /// All sections.
    pub(crate) sections: Markup,
}

/// The parts of the page of a run.
pub(crate) fn parts(report: &Report, shell: &Shell) -> Parts {
    let view = View::new(report, shell);
    let sections = sections(&view);
    Parts {
        result: result::short(report),
        header: html! { (result::result(&view)) (links(&sections)) },
        sections: html! {
            @for one in &sections { (section(one, &view)) }
            @if sections.is_empty() && report.state != crate::RunState::Running {
                p.empty { "Nothing was built, so there is nothing else to show." }
            }
        },
    }
}

/// The sections that have content.
fn sections(view: &View<'_>) -> Vec<Section> {
    let all = [
        causes::section(view),
        failures::section(view),
        expected_failures::section(view),
        blocked::section(view),
        timeline::section(view),
        expected::section(view),
        slowest::section(view),
        left_behind::section(view),
        commits::section(view),
        remains::cycles(view),
        remains::left_out(view),
        packages::section(view),
        repository::section(view),
    ];
    all.into_iter().flatten().collect()
}

fn links(sections: &[Section]) -> Markup {
    html! {
        @if sections.len() > 1 {
            nav aria-label="On this page" {
                ul {
                    @for section in sections {
                        li { a href={ "#" (section.id) } { (section.heading) } }
                    }
                }
            }
        }
    }
}

fn section(section: &Section, view: &View<'_>) -> Markup {
    html! {
        section id=(section.id) aria-labelledby={ (section.id) "-heading" } {
            h2 id={ (section.id) "-heading" } {
                (section.heading)
                @if let Some(count) = section.count {
                    " " span.count { (crate::words::count(count)) }
                }
            }
            ((section.content)(view))
        }
        "\n"
    }
}
