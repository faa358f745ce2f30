//! The page of a log: numbered lines, each of which has an address.

use super::{Shell, Tab};
use crate::address::relative;
use crate::page::NAME_CHARACTERS_MAX;
use crate::{clean, words};
use maud::{PreEscaped, html};
use std::fmt::Write;

/// The most lines of a page: the first ones are left out if there are more. The whole log is a file.
pub const LOG_LINES_MAX: usize = 5000;
/// The longest line that is shown.
const LINE_CHARACTERS_MAX: usize = 2000;

/// The end of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogText<'a> {
    /// Its package.
    pub package: &'a str,
    /// Its build.
    pub build: u64,
    /// Its stage.
    pub stage: &'a str,
    /// The number of its first line that is shown, from 1.
    pub first_line: u64,
    /// Its lines from there on.
    pub text: &'a str,
    /// The number of bytes until the end of the text.
    pub end_bytes: u64,
    /// The line that explains a failure.
    pub telling_line: Option<u64>,
    /// Whether more follows.
    pub is_open: bool,
}

/// The page of a log.
pub fn log(shell: &Shell, log: LogText<'_>) -> String {
    let package = clean::name(log.package, NAME_CHARACTERS_MAX);
    let stage = clean::name(log.stage, NAME_CHARACTERS_MAX);
    let segment = relative(log.package).unwrap_or_default().replace('/', "%2F");
    let path = format!("packages/{segment}/builds/{}/log", log.build);
    let stage_of = format!("stage={}", relative(log.stage).unwrap_or_default());
    let file = shell.api(&path, &stage_of).unwrap_or_default();
    let mut lines = String::with_capacity(log.text.len() * 2);
    for (number, line) in (log.first_line..).zip(log.text.split_terminator('\n')) {
        let class = if Some(number) == log.telling_line { " class=\"telling\"" } else { "" };
        let text = html! { (clean::line(line, LINE_CHARACTERS_MAX)) }.into_string();
        // Numbers come from the style sheet's counter, so that copied text has none.
        let _ = writeln!(lines, "<span id=\"L{number}\"{class}>{text}</span>");
    }
    let header = html! {
        h1 { "Log of " (stage) " " span.version { (package) ", build " (log.build) } }
        p.after {
            (shell.package_link(log.package))
            a href=(file) { "The whole log as text" }
            @if let Some(line) = log.telling_line { a href={ "#L" (line) } { "Line " (words::count(line)) ", which explains the failure" } }
        }
    };
    let content = html! {
        @if log.first_line > 1 {
            p.cut { (words::count(log.first_line - 1)) " lines before these are in the whole log." }
        }
        pre #log .lines tabindex="0" aria-label="Log" data-follow=[log.is_open.then(|| follow(&file, log.end_bytes))]
            data-lines=(LOG_LINES_MAX) style={ "--first:" (log.first_line - 1) } { (PreEscaped(lines)) }
        @if log.is_open { p #more role="status" { "The stage is running: reload for more." } }
    };
    shell.page(&format!("{stage} of {package} in {}", shell.title), Tab::None, header, content)
}

fn follow(file: &str, end_bytes: u64) -> String {
    let mark = if file.contains('?') { '&' } else { '?' };
    format!("{file}{mark}follow=true&from={end_bytes}")
}
