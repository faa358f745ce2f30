//! What failed: the stage, the message, the lines of the log that tell, who waits for it, and the whole log.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::markup::Markup;
use crate::{ReportFailure, ReportPackage, clean, words};

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
        write,
    })
}

fn write(view: &View<'_>, out: &mut Markup) {
    let (open, folded) = view.failures.split_at(view.failures.len().min(OPEN_MAX));
    for index in open {
        write_article(view, *index, out);
    }
    if !folded.is_empty() {
        out.element("details", &[("class", "folded")], |out| {
            let more = words::counted(folded.len() as u64, "more failure", "more failures");
            out.leaf("summary", &[], &more);
            for index in folded {
                write_folded(view, *index, out);
            }
        });
    }
    view::cut_note(view.failures.len(), view.failed, "failures", out);
}

fn write_article(view: &View<'_>, index: usize, out: &mut Markup) {
    let id = format!("f{index}");
    out.element("article", &[("class", "failure"), ("id", &id)], |out| {
        write_one(view, view.package(index), out)
    });
}

/// The target of links stays inside: browsers open what hides the target of a link.
fn write_folded(view: &View<'_>, index: usize, out: &mut Markup) {
    let package = view.package(index);
    out.element("details", &[], |out| {
        out.element("summary", &[], |out| {
            out.leaf("b", &[], &clean::name(&package.name, NAME_CHARACTERS_MAX));
            if let Some(failure) = &package.failure {
                let stage = clean::name(&failure.stage, NAME_CHARACTERS_MAX);
                let message = clean::name(&failure.message, SUMMARY_CHARACTERS_MAX);
                out.text(&format!(" {stage}: {message}"));
            }
        });
        write_article(view, index, out);
    });
}

fn write_one(view: &View<'_>, package: &ReportPackage, out: &mut Markup) {
    out.element("h3", &[], |out| {
        out.text(&clean::name(&package.name, NAME_CHARACTERS_MAX));
        out.text(" ");
        out.leaf("span", &[("class", "version")], &clean::name(&package.version, NAME_CHARACTERS_MAX));
    });
    out.leaf("p", &[("class", "circumstances")], &circumstances(package));
    match &package.failure {
        Some(failure) => {
            out.leaf("p", &[("class", "message")], &clean::line(&failure.message, MESSAGE_CHARACTERS_MAX));
            write_lines(package, failure, out);
        }
        None => out.leaf("p", &[("class", "message")], "Nothing was recorded about the cause."),
    }
    out.element("p", &[("class", "after")], |out| {
        write_log(package, out);
        if !package.blocks.is_empty() {
            out.element("span", &[], |out| {
                out.leaf("strong", &[], &format!("Blocks {}", words::count(package.blocks.len() as u64)));
                out.text(": ");
                view.links(&package.blocks, BLOCKED_NAMES_MAX, out);
            });
        }
    });
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

fn write_lines(package: &ReportPackage, failure: &ReportFailure, out: &mut Markup) {
    if failure.lines.is_empty() {
        return;
    }
    let matters = line_that_matters(failure);
    let shown = lines_shown(failure.lines.len(), matters);
    let label = format!("Log lines of {}", clean::name(&package.name, NAME_CHARACTERS_MAX));
    out.element("pre", &[("class", "log"), ("aria-label", &label), ("role", "group")], |out| {
        if shown.start > 0 {
            write_gap(shown.start, out);
        }
        for index in shown.clone() {
            let text = clean::line(&failure.lines[index], LINE_CHARACTERS_MAX);
            if index == matters {
                out.leaf("mark", &[], if text.is_empty() { " " } else { &text });
            } else {
                out.text(&text);
            }
            out.text("\n");
        }
        if shown.end < failure.lines.len() {
            write_gap(failure.lines.len() - shown.end, out);
        }
    });
}

fn write_gap(lines: usize, out: &mut Markup) {
    let text = words::counted(lines as u64, "more line", "more lines");
    out.leaf("span", &[("class", "cut")], &format!("… {text}\n"));
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

fn write_log(package: &ReportPackage, out: &mut Markup) {
    let wanted = package.failure.as_ref().map(|failure| failure.stage.as_str());
    let stages = || package.stages.iter().rev().filter(|stage| stage.log.is_some());
    let Some(stage) = stages().find(|stage| Some(stage.name.as_str()) == wanted).or_else(|| stages().next())
    else {
        return;
    };
    let line = package.failure.as_ref().and_then(|failure| failure.line_number);
    let mut text = format!("Log of {}", clean::name(&stage.name, NAME_CHARACTERS_MAX));
    if let Some(line) = line.filter(|_| Some(stage.name.as_str()) == wanted) {
        text.push_str(&format!(", see line {}", words::count(line)));
    }
    view::log_link(stage.log.as_deref(), &text, "whole-log", out);
    out.text(" ");
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
