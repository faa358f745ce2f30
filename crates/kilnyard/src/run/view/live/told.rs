//! What is said once and stays: lines that scroll up above the picture.

use super::super::{BuildEnd, BuildSeen, RELOADING, Seen, Snapshot};
use super::{columns, lines::clock};
use crate::causes::{COUNTED, Report, Reported};
use crate::words;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_model::text;
use kilnyard_store::RunState;
use ratatui::style::{Color, Style};
use std::time::Instant;

/// No more lines of a failure than this: the rest is in the report.
const FAILURE_LINES_MAX: usize = 20;

/// A line with its look. What it says, it says in words too.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// How it looks.
    pub style: Style,
    /// Spaces in front of each of its rows.
    pub indent: usize,
    /// What it says, clean.
    pub text: String,
}

impl Told {
    /// The rows that it takes.
    pub fn rows(&self, columns: usize) -> Vec<String> {
        let indent = self.indent.min(columns / 4);
        let rows = columns::wrap(&self.text, columns - indent);
        rows.into_iter().map(|row| format!("{:indent$}{row}", "")).collect()
    }
}

/// What a build came to, until it is known what that makes of its package.
#[derive(Debug)]
struct Ended {
    package: String,
    version: String,
    took_seconds: f64,
    is_reproducible: Option<bool>,
    lines: Vec<String>,
}

/// Puts what happens into words.
#[derive(Debug, Default)]
pub struct Teller {
    ended: Option<Ended>,
    reported: Reported,
}

impl Teller {
    /// What is to be said about this.
    pub fn tell(&mut self, seen: &Seen, snapshot: &Snapshot, now: Instant) -> Vec<Told> {
        match seen {
            Seen::Began => {
                let (done, total) = snapshot.done();
                let verb = if snapshot.is_resumed { "resuming run" } else { "run" };
                let packages = words::count(total.saturating_sub(done), "package");
                one(format!(
                    "{verb} {}: {packages} to look at, {} at once, {} expected",
                    snapshot.run,
                    snapshot.slots,
                    words::duration(snapshot.expected_seconds)
                ))
            }
            Seen::State { package, state, reason } => self.state(package, *state, reason, snapshot),
            Seen::BuildEnded(build, end) => {
                self.ended = Some(Ended::new(build, *end, now));
                Vec::new()
            }
            Seen::Asked(request) => {
                one(format!("somebody asked to {} {}", request.kind.as_str(), text::line(&request.package)))
            }
            Seen::Refused { request, reason } => one(format!(
                "cannot {} {}: {}",
                request.kind.as_str(),
                text::line(&request.package),
                text::line(reason)
            )),
            Seen::DiskFull => one("the disk is full; waiting for room".to_owned()),
            Seen::Reloading => one(RELOADING.to_owned()),
            Seen::Stopping => one("stopping: builds are being cancelled; what is done is kept".to_owned()),
            Seen::Ended(RunState::Interrupted) => one("interrupted; the same command resumes it".to_owned()),
            Seen::Ended(_) | Seen::StageBegan(..) | Seen::Decided(_) => Vec::new(),
        }
    }

    fn state(
        &mut self,
        package: &str,
        state: PackageState,
        reason: &Reason,
        snapshot: &Snapshot,
    ) -> Vec<Told> {
        let (done, total) = snapshot.done();
        let count = format!("[{done}/{total}]");
        let name = text::line(package);
        let because = match text::line(&reason.first_line()) {
            empty if empty.is_empty() => empty,
            reason => format!(": {reason}"),
        };
        let ended = self.ended.take_if(|ended| ended.package == package);
        match state {
            // Of these there can be thousands, and nothing was done about them.
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
                let mut told = vec![styled(Color::Red, 0, format!("{count} FAILED {name}{because}"))];
                told[0].style = told[0].style.bold();
                let words = reason.to_string();
                let more = words.lines().skip(1).map(str::to_owned);
                let lines: Vec<String> = more.chain(ended.map_or(Vec::new(), |ended| ended.lines)).collect();
                let shown = lines.iter().take(FAILURE_LINES_MAX);
                told.extend(shown.map(|line| Told {
                    style: Style::new(),
                    indent: 4,
                    text: text::line(line),
                }));
                if report == Report::Last {
                    told.extend(one(COUNTED.to_owned()));
                }
                told
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

fn one(text: String) -> Vec<Told> {
    vec![Told { style: Style::new(), indent: 0, text }]
}

fn styled(color: Color, indent: usize, text: String) -> Told {
    Told { style: Style::new().fg(color), indent, text }
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;
    use kilnyard_model::order::Stage;
    use kilnyard_model::result::{Failure, FailureKind};

    fn texts(told: &[Told]) -> Vec<&str> {
        told.iter().map(|told| told.text.as_str()).collect()
    }

    #[test]
    fn a_failure_comes_with_its_lines_and_they_are_harmless() {
        let (run, mut teller, now) = (snapshot(2, 2), Teller::default(), Instant::now());
        let build = &run.builds[0];
        let failure = Failure {
            stage: Stage::Build,
            kind: FailureKind::Command,
            message: "it".to_owned(),
            line_number: None,
            lines: (0..100).map(|line| format!("\u{1b}[2Jerror {line}\r")).collect(),
        };
        let end = BuildEnd { failure: Some(&failure), is_reproducible: None };
        assert!(teller.tell(&Seen::BuildEnded(build, end), &run, now).is_empty());
        let package = build.package.as_str();
        let failed = Seen::State {
            package,
            state: PackageState::Failed,
            reason: &Reason::impossible("build\u{7} went wrong"),
        };
        let told = teller.tell(&failed, &run, now);
        assert_eq!(texts(&told)[0], format!("[7/12] FAILED {package}: build went wrong"));
        assert_eq!(texts(&told)[1], "error 0");
        assert_eq!(told.len(), FAILURE_LINES_MAX + 1);
        let again = teller.tell(&failed, &run, now);
        assert_eq!(again.len(), 1, "lines belong to one failure");
    }

    #[test]
    fn what_was_built_is_one_line_and_what_stays_none() {
        let (run, mut teller, now) = (snapshot(2, 2), Teller::default(), Instant::now());
        let build = &run.builds[0];
        let end = BuildEnd { failure: None, is_reproducible: Some(false) };
        teller.tell(&Seen::BuildEnded(build, end), &run, now);
        let state = |state| Seen::State { package: &build.package, state, reason: &Reason::Undecided };
        let told = teller.tell(&state(PackageState::Built), &run, now);
        let took = clock(now.saturating_duration_since(build.started).as_secs_f64());
        let expected = format!(
            "[7/12] built {} {} in {took}; built twice with DIFFERENT bytes",
            build.package, build.version
        );
        assert_eq!(texts(&told), [expected]);
        assert!(teller.tell(&state(PackageState::UpToDate), &run, now).is_empty());
        assert_eq!(texts(&teller.tell(&state(PackageState::Skipped), &run, now)).len(), 1);
    }

    #[test]
    fn rows_fit_any_width() {
        let told = styled(Color::Red, 4, "a rather long line that has to be broken somewhere".to_owned());
        for columns in 1..70 {
            let rows = told.rows(columns);
            assert!(rows.iter().all(|row| columns::width(row) <= columns), "{columns}: {rows:?}");
        }
        assert_eq!(told.rows(80), ["    a rather long line that has to be broken somewhere"]);
    }
}
