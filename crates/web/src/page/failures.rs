//! What failed: the stage, the message, the lines of the log that tell, who waits for it, and the whole log.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::{ReportFailure, ReportPackage, clean, words};
use maud::{Markup, html};

/// Failures that lie open. After a bad day the rest is one line each, so that the page below stays within reach.
const OPEN_MAX: usize = 8;

/// Lines of a log shown for one failure; the log itself is one click away.
const LINES_MAX: usize = 40;

/// Characters of a line of a log. Linker and compiler commands run to tens of thousands.
const LINE_CHARACTERS_MAX: usize = 400;

/// Characters of a message.
const MESSAGE_CHARACTERS_MAX: usize = 600;

/// Characters of a message where it stands in one line with the name.
const SUMMARY_CHARACTERS_MAX: usize = 160;

/// Blocked packages named at a failure; the next section names more.
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
        (view::cut_note(view.failures.len(), view.failed, "failures"))
    }
}

fn article(view: &View<'_>, index: usize) -> Markup {
    html! {
        article.failure id={ "f" (index) } { (failure(view, view.package(index))) }
        "\n"
    }
}

/// The target of links stays inside: browsers open what hides the target of a link.
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
                (lines(package, failure))
            }
            None => p.message { "Nothing was recorded about the cause." },
        }
        p.after {
            (log(package))
            @if !package.blocks.is_empty() {
                span {
                    strong { "Blocks " (words::count(package.blocks.len() as u64)) }
                    ": " (view.links(&package.blocks, BLOCKED_NAMES_MAX))
                }
            }
        }
    }
}

/// Stage, kind, time, attempts, in one line.
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
        text.push_str(&format!(", at most {} of memory", words::size(package.memory_peak_bytes)));
    }
    text
}

fn lines(package: &ReportPackage, failure: &ReportFailure) -> Markup {
    if failure.lines.is_empty() {
        return Markup::default();
    }
    let matters = line_that_matters(failure);
    let shown = lines_shown(failure.lines.len(), matters);
    let label = format!("Log lines of {}", clean::name(&package.name, NAME_CHARACTERS_MAX));
    html! {
        pre.log aria-label=(label) role="group" {
            (gap(shown.start))
            @for index in shown.clone() {
                @let text = clean::line(&failure.lines[index], LINE_CHARACTERS_MAX);
                @if index != matters {
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

/// Says how many lines are left out, where some are.
fn gap(lines: usize) -> Markup {
    html! {
        @if lines > 0 {
            span.cut { "… " (words::counted(lines as u64, "more line", "more lines")) "\n" }
        }
    }
}

/// The line that contains the message, or is contained in it; else the last.
fn line_that_matters(failure: &ReportFailure) -> usize {
    let message = clean::strip(&failure.message);
    let message = message.trim();
    let same = |line: &String| {
        let line = clean::strip(line);
        let line = line.trim();
        // A brace or a single word is contained in any message and tells nothing.
        !message.is_empty()
            && (line.contains(message) || (line.chars().count() >= 12 && message.contains(line)))
    };
    failure.lines.iter().position(same).unwrap_or(failure.lines.len().saturating_sub(1))
}

/// Which lines are shown: all, or a window that holds the one that matters with more before it than after.
fn lines_shown(lines: usize, matters: usize) -> std::ops::Range<usize> {
    let start = (matters + LINES_MAX / 4 + 1).saturating_sub(LINES_MAX).min(lines.saturating_sub(LINES_MAX));
    start..lines.min(start + LINES_MAX)
}

fn log(package: &ReportPackage) -> Markup {
    let wanted = package.failure.as_ref().map(|failure| failure.stage.as_str());
    let stages = || package.stages.iter().rev().filter(|stage| stage.log.is_some());
    let Some(stage) = stages().find(|stage| Some(stage.name.as_str()) == wanted).or_else(|| stages().next())
    else {
        return Markup::default();
    };
    let line = package.failure.as_ref().and_then(|failure| failure.line_number);
    let mut text = format!("Log of {}", clean::name(&stage.name, NAME_CHARACTERS_MAX));
    if let Some(line) = line.filter(|_| Some(stage.name.as_str()) == wanted) {
        text.push_str(&format!(", see line {}", words::count(line)));
    }
    html! { (view::log_link(stage.log.as_deref(), &text, "whole-log")) " " }
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
    fn the_line_with_the_message_matters_else_the_last() {
        let lines = ["cc -c a.c", "\u{1b}[31ma.c:3: error: no `x`\u{1b}[0m", "}", "make: *** Error 1"];
        assert_eq!(line_that_matters(&failure("a.c:3: error: no `x`", &lines)), 1);
        assert_eq!(line_that_matters(&failure("the compiler said: a.c:3: error: no `x`", &lines)), 1);
        assert_eq!(line_that_matters(&failure("ended with status 2 }", &lines)), 3);
        assert_eq!(line_that_matters(&failure("", &lines)), 3);
        assert_eq!(line_that_matters(&failure("", &[])), 0);
    }

    #[test]
    fn the_window_always_holds_the_line_that_matters() {
        for lines in [1, LINES_MAX, LINES_MAX + 1, 500] {
            for matters in 0..lines {
                let shown = lines_shown(lines, matters);
                assert!(shown.contains(&matters), "{lines} {matters} {shown:?}");
                assert_eq!(shown.len(), lines.min(LINES_MAX));
            }
        }
    }
}
