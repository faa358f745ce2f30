//! The lines that scroll up above the picture.

use super::super::{
    BuildEnd, BuildSeen, RELOADING, Snapshot, ViewEvent, difference_line, quarantine_line, request_line,
};
use super::{columns, lines::clock};
use crate::causes::{COUNTED, Report, Reported};
use crate::words;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_model::text;
use kilnyard_store::RunState;
use ratatui::style::{Color, Style};
use std::time::Instant;

/// The maximum number of lines shown of a failure; the report has all.
const FAILURE_LINES_MAX: usize = 20;

/// A line with a style, which carries no information of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Paragraph {
    pub style: Style,
    /// The number of spaces before each of its rows.
    pub indent: usize,
    /// Without control characters.
    pub text: String,
}

impl Paragraph {
    /// Its rows at this width.
    pub fn rows(&self, columns: usize) -> Vec<String> {
        let indent = self.indent.min(columns / 4);
        let rows = columns::wrap(&self.text, columns - indent);
        rows.into_iter().map(|row| format!("{:indent$}{row}", "")).collect()
    }
}

/// The end of a build, until the state of its package follows.
#[derive(Debug)]
struct Ended {
    package: String,
    version: String,
    took_seconds: f64,
    is_reproducible: Option<bool>,
    lines: Vec<String>,
}

/// Turns events into lines.
#[derive(Debug, Default)]
pub struct Renderer {
    ended: Option<Ended>,
    reported: Reported,
}

impl Renderer {
    /// The lines for an event; empty if it is not shown.
    pub fn render(&mut self, seen: &ViewEvent, snapshot: &Snapshot, now: Instant) -> Vec<Paragraph> {
        match seen {
            ViewEvent::Began => {
                let (done, total) = snapshot.done();
                let verb = if snapshot.is_resumed { "resuming run" } else { "run" };
                let packages = words::count(total.saturating_sub(done), "package");
                one(format!(
                    "{verb} {}: {packages}, {} in parallel, {} expected",
                    snapshot.run,
                    snapshot.slots,
                    words::duration(snapshot.expected_seconds)
                ))
            }
            ViewEvent::State { package, state, reason } => self.state(package, *state, reason, snapshot),
            ViewEvent::BuildEnded(build, end) => {
                self.ended = Some(Ended::new(build, *end, now));
                Vec::new()
            }
            ViewEvent::Asked(request) => one(text::line(&request_line(request))),
            ViewEvent::Refused { request, reason } => one(format!(
                "cannot {} {}: {}",
                request.kind.as_str(),
                text::line(&request.package),
                text::line(reason)
            )),
            ViewEvent::Quarantined { worker, reason } => one(text::line(&quarantine_line(worker, reason))),
            ViewEvent::Differs { package, message } => one(text::line(&difference_line(package, message))),
            ViewEvent::DiskFull => one("the disk is full; waiting for free space".to_owned()),
            ViewEvent::Reloading => one(RELOADING.to_owned()),
            ViewEvent::Stopping => {
                one("stopping: builds are being cancelled; finished work is kept".to_owned())
            }
            ViewEvent::Ended(RunState::Interrupted) => {
                one("interrupted; the same command resumes it".to_owned())
            }
            ViewEvent::Ended(_) | ViewEvent::Decided(_) => Vec::new(),
        }
    }

    fn state(
        &mut self,
        package: &str,
        state: PackageState,
        reason: &Reason,
        snapshot: &Snapshot,
    ) -> Vec<Paragraph> {
        let (done, total) = snapshot.done();
        let count = format!("[{done}/{total}]");
        let name = text::line(package);
        let because = match text::line(&reason.first_line()) {
            empty if empty.is_empty() => empty,
            reason => format!(": {reason}"),
        };
        let ended = self.ended.take_if(|ended| ended.package == package);
        match state {
            // There may be thousands of these: the count is enough.
            PackageState::Waiting | PackageState::Ready | PackageState::Building | PackageState::UpToDate => {
                Vec::new()
            }
            PackageState::Skipped | PackageState::LeftOut => one(format!("{count} {state} {name}{because}")),
            PackageState::Blocked => {
                vec![styled(Color::Yellow, 0, format!("{count} blocked {name}{because}"))]
            }
            PackageState::Built | PackageState::Unchanged => {
                let Some(ended) = ended else { return one(format!("{count} {state} {name}{because}")) };
                let how = match ended.is_reproducible {
                    Some(true) => "; built twice with the same bytes",
                    Some(false) => "; built twice with DIFFERENT bytes",
                    None => "",
                };
                let version = text::line(&ended.version);
                let took = clock(ended.took_seconds);
                vec![styled(Color::Green, 0, format!("{count} {state} {name} {version} in {took}{how}"))]
            }
            PackageState::Failed => {
                let report = self.reported.next(reason);
                if report == Report::Counted {
                    return Vec::new();
                }
                let mut paragraphs = vec![styled(Color::Red, 0, format!("{count} FAILED {name}{because}"))];
                paragraphs[0].style = paragraphs[0].style.bold();
                let words = reason.to_string();
                let more = words.lines().skip(1).map(str::to_owned);
                let lines: Vec<String> = more.chain(ended.map_or(Vec::new(), |ended| ended.lines)).collect();
                let shown = lines.iter().take(FAILURE_LINES_MAX);
                paragraphs.extend(shown.map(|line| Paragraph {
                    style: Style::new(),
                    indent: 4,
                    text: text::line(line),
                }));
                if report == Report::Last {
                    paragraphs.extend(one(COUNTED.to_owned()));
                }
                paragraphs
            }
        }
    }
}

impl Ended {
    fn new(build: &BuildSeen, end: BuildEnd, now: Instant) -> Ended {
        Ended {
            package: build.package.clone(),
            version: build.version.clone(),
            took_seconds: now.saturating_duration_since(build.started).as_secs_f64(),
            is_reproducible: end.is_reproducible,
            lines: end.failure.map_or(Vec::new(), |failure| failure.lines.clone()),
        }
    }
}

fn one(text: String) -> Vec<Paragraph> {
    vec![Paragraph { style: Style::new(), indent: 0, text }]
}

fn styled(color: Color, indent: usize, text: String) -> Paragraph {
    Paragraph { style: Style::new().fg(color), indent, text }
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;
    use kilnyard_model::order::Stage;
    use kilnyard_model::result::{Failure, FailureKind};

    fn texts(paragraphs: &[Paragraph]) -> Vec<&str> {
        paragraphs.iter().map(|paragraph| paragraph.text.as_str()).collect()
    }

    #[test]
    fn a_failure_comes_with_its_lines_and_they_are_harmless() {
        let (run, mut renderer, now) = (snapshot(2, 2), Renderer::default(), Instant::now());
        let build = &run.builds[0];
        let failure = Failure {
            stage: Stage::Build,
            kind: FailureKind::Command,
            message: "it".to_owned(),
            line_number: None,
            lines: (0..100).map(|line| format!("\u{1b}[2Jerror {line}\r")).collect(),
        };
        let end = BuildEnd { failure: Some(&failure), is_reproducible: None };
        assert!(renderer.render(&ViewEvent::BuildEnded(build, end), &run, now).is_empty());
        let package = build.package.as_str();
        let failed = ViewEvent::State {
            package,
            state: PackageState::Failed,
            reason: &Reason::impossible("build\u{7} went wrong"),
        };
        let paragraphs = renderer.render(&failed, &run, now);
        assert_eq!(texts(&paragraphs)[0], format!("[7/12] FAILED {package}: build went wrong"));
        assert_eq!(texts(&paragraphs)[1], "error 0");
        assert_eq!(paragraphs.len(), FAILURE_LINES_MAX + 1);
        let again = renderer.render(&failed, &run, now);
        assert_eq!(again.len(), 1, "lines belong to only one failure");
    }

    #[test]
    fn what_was_built_is_one_line_and_what_stays_none() {
        let (run, mut renderer, now) = (snapshot(2, 2), Renderer::default(), Instant::now());
        let build = &run.builds[0];
        let end = BuildEnd { failure: None, is_reproducible: Some(false) };
        renderer.render(&ViewEvent::BuildEnded(build, end), &run, now);
        let state = |state| ViewEvent::State { package: &build.package, state, reason: &Reason::Undecided };
        let paragraphs = renderer.render(&state(PackageState::Built), &run, now);
        let took = clock(now.saturating_duration_since(build.started).as_secs_f64());
        let expected = format!(
            "[7/12] built {} {} in {took}; built twice with DIFFERENT bytes",
            build.package, build.version
        );
        assert_eq!(texts(&paragraphs), [expected]);
        assert!(renderer.render(&state(PackageState::UpToDate), &run, now).is_empty());
        assert_eq!(texts(&renderer.render(&state(PackageState::Skipped), &run, now)).len(), 1);
    }

    #[test]
    fn rows_fit_any_width() {
        let paragraph =
            styled(Color::Red, 4, "a rather long line that has to be broken somewhere".to_owned());
        for columns in 1..70 {
            let rows = paragraph.rows(columns);
            assert!(rows.iter().all(|row| columns::width(row) <= columns), "{columns}: {rows:?}");
        }
        assert_eq!(paragraph.rows(80), ["    a rather long line that has to be broken somewhere"]);
    }
}
