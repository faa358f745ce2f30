//! Failures that the owner of the yard expects. They need no attention, so they are separate from all others.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::{ReportPackage, clean};
use maud::{Markup, html};

/// Maximum number of packages listed.
const PACKAGES_MAX: usize = 200;
/// Maximum number of blocked packages named for one of them.
const BLOCKED_NAMES_MAX: usize = 8;
/// Maximum length of the owner's reason, and of a message.
const TEXT_CHARACTERS_MAX: usize = 600;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let count = view.expected_failures.len();
    (count > 0).then_some(Section {
        id: "expected-failures",
        heading: "Expected failures",
        count: Some(count as u64),
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let shown = view.expected_failures.len().min(PACKAGES_MAX);
    html! {
        dl.culprits {
            @for index in &view.expected_failures[..shown] {
                div { (entry(view, view.package(*index))) }
                "\n"
            }
        }
        (view::cut_note(view, shown, view.expected_failures.len(), "expected failures"))
    }
}

fn entry(view: &View<'_>, package: &ReportPackage) -> Markup {
    let text = |text: &str| clean::line(text, TEXT_CHARACTERS_MAX);
    let log = package.stages.iter().rev().find(|stage| stage.failed());
    html! {
        dt {
            (view.link(&package.name)) " "
            span.version { (clean::name(&package.version, NAME_CHARACTERS_MAX)) }
        }
        dd {
            @if let Some(because) = &package.because { (text(because)) ". " }
            @match &package.failure {
                Some(failure) => span.remark { (text(&failure.message)) },
                None => span.remark { (text(&package.reason)) },
            }
            @if let Some(stage) = log {
                " " (view.log_link(package, stage, ("Log", "log-link"), None))
            }
            @if !package.blocks.is_empty() {
                " Blocks " (view.links(&package.blocks, BLOCKED_NAMES_MAX)) "."
            }
        }
    }
}
