//! The whole table of packages, with links to all logs.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View, state_class, state_word};
use crate::words::{self, sane_seconds};
use crate::{PackageState, ReportPackage, clean};
use maud::{Markup, html};

/// Maximum length of a reason.
const REASON_CHARACTERS_MAX: usize = 240;

/// Maximum length of a note of the yard's owner.
const NOTE_CHARACTERS_MAX: usize = 500;

/// Maximum number of stages, outputs and dependencies listed for one package.
const STAGES_MAX: usize = 16;
const OUTPUTS_MAX: usize = 30;
const NAMES_MAX: usize = 30;

const HEADINGS: [&str; 8] = ["Package", "Result", "Why", "#Wall", "#CPU", "#Peak memory", "Outputs", "Logs"];

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    // A page may have only some of them.
    let packages = view.packages();
    view.has_rows().then_some(Section {
        id: "packages",
        heading: "All packages",
        count: Some(packages as u64),
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let table = html! {
        table.packages {
            (view::table_head(&HEADINGS))
            // Rows are grouped by state.
            @for rows in view.rows.chunk_by(|a, b| view.package(*a).state == view.package(*b).state) {
                tbody {
                    @for index in rows {
                        tr id={ "p" (index) } { (row(view, *index)) }
                        "\n"
                    }
                }
            }
        }
    };
    html! {
        (view::cut_note(view, view.rows.len(), view.packages(), "packages"))
        (view::scrolling("All packages", table))
    }
}

fn row(view: &View<'_>, index: usize) -> Markup {
    let package = view.package(index);
    let ran = sane_seconds(package.wall_seconds) > 0.0;
    let number = |known: bool, text: String| if known { text } else { "–".to_owned() };
    html! {
        th scope="row" {
            (clean::name(&package.name, NAME_CHARACTERS_MAX)) " "
            span.version { (clean::name(&package.version, NAME_CHARACTERS_MAX)) }
        }
        td { (result(view, index)) }
        td.prose { (why(view, package)) }
        td.number { (number(ran, words::duration(package.wall_seconds))) }
        td.number { (number(ran, words::duration(package.cpu_seconds))) }
        td.number { (number(package.memory_peak_bytes > 0, words::size(package.memory_peak_bytes))) }
        td { (outputs(package)) }
        td.logs { (logs(view, package)) }
    }
}

fn result(view: &View<'_>, index: usize) -> Markup {
    let package = view.package(index);
    let (class, word) = (state_class(package.state), state_word(package.state));
    html! {
        @if view.has_failure(index) {
            a class=(class) href={ "#f" (index) } { (word) }
        } @else {
            span class=(class) { (word) }
        }
        @if package.attempts > 1 {
            " " span.remark { (words::count(u64::from(package.attempts))) " attempts" }
        }
        @match package.reproducible {
            Some(true) => { " " span.remark { "reproducible" } }
            Some(false) => { " " span.remark { "not reproducible" } }
            None => {}
        }
        @if package.is_expected_to_fail {
            @match package.state {
                PackageState::Failed => { " " span.remark { "as expected" } }
                PackageState::Built | PackageState::Unchanged => { " " span.remark { "expected to fail" } }
                _ => {}
            }
        }
    }
}

fn why(view: &View<'_>, package: &ReportPackage) -> Markup {
    html! {
        (clean::line(&package.reason, REASON_CHARACTERS_MAX))
        @if package.has_network { " " span.remark { "built with network access" } }
        @if let Some(note) = &package.note { p.note { (clean::line(note, NOTE_CHARACTERS_MAX)) } }
        @if package.state == PackageState::Blocked && !package.blocked_by.is_empty() {
            " " span.remark { "waits for " (view.links(&package.blocked_by, NAMES_MAX)) }
        }
        @if !package.depends.is_empty() {
            details {
                summary { "needs " (words::counted(package.depends.len() as u64, "package", "packages")) }
                (view.links(&package.depends, NAMES_MAX))
            }
        }
    }
}

fn outputs(package: &ReportPackage) -> Markup {
    let outputs = &package.outputs;
    let all = outputs.iter().fold(0u64, |sum, output| sum.saturating_add(output.size_bytes));
    html! {
        @if outputs.is_empty() {
            "–"
        } @else {
            details {
                summary { (words::count(outputs.len() as u64)) ", " (words::size(all)) }
                ul {
                    @for output in outputs.iter().take(OUTPUTS_MAX) {
                        li {
                            (clean::name(&output.name, NAME_CHARACTERS_MAX)) " "
                            span.remark {
                                (clean::name(&output.version, NAME_CHARACTERS_MAX)) " "
                                (clean::name(&output.architecture, NAME_CHARACTERS_MAX)) ", "
                                (words::size(output.size_bytes))
                            }
                        }
                    }
                    @if outputs.len() > OUTPUTS_MAX {
                        li.cut { "and " (words::count((outputs.len() - OUTPUTS_MAX) as u64)) " more" }
                    }
                }
            }
        }
    }
}

fn logs(view: &View<'_>, package: &ReportPackage) -> Markup {
    let logged = || package.stages.iter().filter(|stage| stage.log.is_some());
    let all = logged().count();
    html! {
        @if all == 0 { "–" }
        @for (position, stage) in logged().take(STAGES_MAX).enumerate() {
            @if position > 0 { " " }
            @let name = clean::name(&stage.name, NAME_CHARACTERS_MAX);
            @if stage.failed() {
                (view.log_link(package, stage, (&format!("{name} (failed)"), "bad-log"), None))
            } @else {
                (view.log_link(package, stage, (&name, "log-link"), None))
            }
        }
        @if all > STAGES_MAX { " and " (words::count((all - STAGES_MAX) as u64)) " more" }
    }
}
