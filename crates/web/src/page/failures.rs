//! Failures: the stage, the message, the relevant log lines, the blocked packages and a link to the log.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::{ReportFailure, ReportPackage, clean, words};
use maud::{Markup, html};

/// Number of failures that are not folded. After a bad day, the rest take one line each, so that the sections
/// below stay within reach.
const OPEN_MAX: usize = 8;

/// Maximum number of log lines shown for one failure. The log itself is one click away.
const LINES_MAX: usize = 40;

/// Number of lines about a hang from which they are folded.
const PORTRAIT_LINES_MAX: usize = 8;

/// Maximum length of a log line. Linker and compiler commands have tens of thousands of characters.
const LINE_CHARACTERS_MAX: usize = 400;

/// Maximum length of a message.
const MESSAGE_CHARACTERS_MAX: usize = 600;

/// Maximum length of a message that follows the name on one line.
const SUMMARY_CHARACTERS_MAX: usize = 160;

/// Maximum number of blocked packages named in a failure. The next section names more.
const BLOCKED_NAMES_MAX: usize = 8;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    (view.failed > 0).then_some(Section {
        id: "failures",
        heading: "Failures",
        count: Some(view.failed as u64),
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let (open, folded) = view.failures.split_at(view.failures.len().min(OPEN_MAX));
    html! {
        @for index in open { (article(view, *index)) }
        @if !folded.is_empty() {
            details.folded {
                summary { (words::counted(folded.len() as u64, "more failure", "more failures")) }
                @for index in folded { (folded_article(view, *index)) }
            }
        }
        (view::cut_note(view, view.failures.len(), view.failed, "failures"))
    }
}

fn article(view: &View<'_>, index: usize) -> Markup {
    html! {
        article.failure id={ "f" (index) } { (failure(view, view.package(index))) }
        "\n"
    }
}

/// A failure inside a `details` element. The link target is inside too: browsers open the element when a link
/// leads there.
fn folded_article(view: &View<'_>, index: usize) -> Markup {
    let package = view.package(index);
    html! {
        details {
            summary {
                b { (clean::name(&package.name, NAME_CHARACTERS_MAX)) }
                @if let Some(failure) = &package.failure {
                    " " (clean::name(&failure.stage, NAME_CHARACTERS_MAX))
                    ": " (clean::name(&failure.message, SUMMARY_CHARACTERS_MAX))
                }
            }
            (article(view, index))
        }
    }
}

fn failure(view: &View<'_>, package: &ReportPackage) -> Markup {
    html! {
        h3 {
            (clean::name(&package.name, NAME_CHARACTERS_MAX)) " "
            span.version { (clean::name(&package.version, NAME_CHARACTERS_MAX)) }
        }
        p.circumstances { (circumstances(package)) }
        @match &package.failure {
            Some(failure) => {
                p.message { (clean::line(&failure.message, MESSAGE_CHARACTERS_MAX)) }
                // A portrait of a hang is long, and its point is the message.
                @if is_portrait(failure) {
                    details {
                        summary { (words::counted(failure.lines.len() as u64, "line", "lines")) " about its processes" }
                        (lines(package, failure))
                    }
                } @else {
                    (lines(package, failure))
                }
            }
            None => p.message { "No cause was recorded." },
        }
        @if let Some(note) = &package.note {
            p.note { (clean::line(note, MESSAGE_CHARACTERS_MAX)) }
        }
        p.after {
            (log(view, package))
            @if !package.blocks.is_empty() {
                span {
                    strong { "Blocks " (words::count(package.blocks.len() as u64)) }
                    ": " (view.links(&package.blocks, BLOCKED_NAMES_MAX))
                }
            }
        }
    }
}

/// Stage, kind, time and number of attempts, on one line.
fn circumstances(package: &ReportPackage) -> String {
    let mut text = match &package.failure {
        Some(failure) => {
            let stage = clean::name(&failure.stage, NAME_CHARACTERS_MAX);
            let kind = clean::name(&failure.kind, NAME_CHARACTERS_MAX);
            format!("Failed in stage {stage} ({kind}) after {}", words::duration(package.wall_seconds))
        }
        None => format!("Failed after {}", words::duration(package.wall_seconds)),
    };
    if package.attempts > 1 {
        text.push_str(&format!(", {} attempts", words::number_word(u64::from(package.attempts))));
    }
    if package.memory_peak_bytes > 0 {
        text.push_str(&format!(", with at most {} of memory", words::size(package.memory_peak_bytes)));
    }
    text
}

/// Whether the lines of a failure describe processes that did nothing any more.
fn is_portrait(failure: &ReportFailure) -> bool {
    matches!(failure.kind.as_str(), "hung" | "spinning" | "silent")
        && failure.lines.len() > PORTRAIT_LINES_MAX
}

fn lines(package: &ReportPackage, failure: &ReportFailure) -> Markup {
    if failure.lines.is_empty() {
        return Markup::default();
    }
    let relevant = relevant_line(failure);
    let shown = lines_shown(failure.lines.len(), relevant);
    let label = format!("Log lines of {}", clean::name(&package.name, NAME_CHARACTERS_MAX));
    html! {
        pre.log aria-label=(label) role="group" tabindex="0" {
            (gap(shown.start))
            @for index in shown.clone() {
                @let text = clean::line(&failure.lines[index], LINE_CHARACTERS_MAX);
                @if index != relevant {
                    (text)
                } @else {
                    mark { (if text.is_empty() { " " } else { &*text }) }
                }
                "\n"
            }
            (gap(failure.lines.len() - shown.end))
        }
    }
}

/// A note with the number of omitted lines; empty if there are none.
fn gap(lines: usize) -> Markup {
    html! {
        @if lines > 0 {
            span.cut { "… " (words::counted(lines as u64, "more line", "more lines")) "\n" }
        }
    }
}

/// Index of the first line that contains the message or is contained in it, otherwise of the last line.
fn relevant_line(failure: &ReportFailure) -> usize {
    let message = clean::strip(&failure.message);
    let message = message.trim();
    let same = |line: &String| {
        let line = clean::strip(line);
        let line = line.trim();
        // Any message contains a brace or some single word, so short lines say nothing.
        !message.is_empty()
            && (line.contains(message) || (line.chars().count() >= 12 && message.contains(line)))
    };
    failure.lines.iter().position(same).unwrap_or(failure.lines.len().saturating_sub(1))
}

/// The range of lines to show: all, or a window around the relevant one with more lines before it than after.
fn lines_shown(lines: usize, relevant: usize) -> std::ops::Range<usize> {
    let start = (relevant + LINES_MAX / 4 + 1).saturating_sub(LINES_MAX).min(lines.saturating_sub(LINES_MAX));
    start..lines.min(start + LINES_MAX)
}

fn log(view: &View<'_>, package: &ReportPackage) -> Markup {
    let wanted = package.failure.as_ref().map(|failure| failure.stage.as_str());
    let stages = || package.stages.iter().rev().filter(|stage| stage.log.is_some());
    let Some(stage) = stages().find(|stage| Some(stage.name.as_str()) == wanted).or_else(|| stages().next())
    else {
        return Markup::default();
    };
    let line = package.failure.as_ref().and_then(|failure| failure.line_number);
    let mut text = format!("Log of {}", clean::name(&stage.name, NAME_CHARACTERS_MAX));
    let line = line.filter(|_| Some(stage.name.as_str()) == wanted);
    if let Some(line) = line {
        text.push_str(&format!(", see line {}", words::count(line)));
    }
    html! { (view.log_link(package, stage, (&text, "whole-log"), line)) " " }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(message: &str, lines: &[&str]) -> ReportFailure {
        ReportFailure {
            message: message.into(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            ..ReportFailure::default()
        }
    }

    #[test]
    fn the_relevant_line_has_the_message_or_is_the_last() {
        let lines = ["cc -c a.c", "\u{1b}[31ma.c:3: error: no `x`\u{1b}[0m", "}", "make: *** Error 1"];
        assert_eq!(relevant_line(&failure("a.c:3: error: no `x`", &lines)), 1);
        assert_eq!(relevant_line(&failure("the compiler said: a.c:3: error: no `x`", &lines)), 1);
        assert_eq!(relevant_line(&failure("ended with status 2 }", &lines)), 3);
        assert_eq!(relevant_line(&failure("", &lines)), 3);
        assert_eq!(relevant_line(&failure("", &[])), 0);
    }

    #[test]
    fn the_window_always_includes_the_relevant_line() {
        for lines in [1, LINES_MAX, LINES_MAX + 1, 500] {
            for relevant in 0..lines {
                let shown = lines_shown(lines, relevant);
                assert!(shown.contains(&relevant), "{lines} {relevant} {shown:?}");
                assert_eq!(shown.len(), lines.min(LINES_MAX));
            }
        }
    }
}
