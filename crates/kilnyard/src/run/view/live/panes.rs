//! What is below the builds of a picture if there is room: what failed, what is next, or the end of a log.
//!
//! Letters act only on what arrows have chosen, and `q` only if it is typed twice, so that text that was meant for a shell does
//! nothing.

use super::super::Snapshot;
use super::columns;
use super::keys::Key;
use kilnyard_model::text;
use kilnyard_store::RequestKind;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};

/// The packages that failed, and those that are next, of which lines name some.
const FAILED_SHOWN: usize = 3;
/// The rows that a log has at least, if it is shown.
pub const LOG_ROWS_MIN: u16 = 6;

/// What the user has chosen.
#[derive(Clone, Debug, Default)]
pub struct Panes {
    /// The package that is chosen: one that is being built, is next, or failed.
    pub chosen: Option<String>,
    /// Whether the end of its log is shown.
    pub has_log: bool,
    /// The lines of the log.
    pub log: Vec<String>,
    /// What to ask the run for.
    pub requests: Vec<(RequestKind, String)>,
    /// Whether the run is to end.
    pub wants_end: bool,
    /// Whether the last key was `q`.
    is_quitting: bool,
    /// The answer to the last request.
    pub answer: Option<String>,
}

/// The packages that can be chosen, in the order in which they are on the screen.
fn choices(snapshot: &Snapshot) -> Vec<&str> {
    let mut builds: Vec<_> = snapshot.builds.iter().collect();
    builds.sort_by_key(|build| build.slot);
    let failed = snapshot.failed.iter().rev().take(FAILED_SHOWN);
    let ready = snapshot.ready.iter();
    let all = builds.into_iter().map(|build| build.package.as_str());
    all.chain(failed.map(String::as_str)).chain(ready.map(String::as_str)).collect()
}

impl Panes {
    /// Does what keys say.
    pub fn press(&mut self, keys: &[Key], snapshot: &Snapshot) {
        let choices = choices(snapshot);
        // What was chosen may be over.
        if self.chosen.as_ref().is_some_and(|chosen| !choices.contains(&chosen.as_str())) {
            (self.chosen, self.has_log) = (None, false);
        }
        for key in keys {
            let at = self.chosen.as_ref().and_then(|chosen| choices.iter().position(|one| one == chosen));
            let mut ask = |kind| {
                if let Some(chosen) = &self.chosen {
                    self.requests.push((kind, chosen.clone()));
                }
            };
            match key {
                Key::Retry => ask(RequestKind::Retry),
                Key::Skip => ask(RequestKind::Skip),
                Key::Bump => ask(RequestKind::Bump),
                Key::Quit if self.is_quitting => self.wants_end = true,
                Key::Quit => self.answer = Some("q again ends the run, which can be resumed".to_owned()),
                Key::Leave => (self.chosen, self.has_log) = (None, false),
                Key::Log => {
                    self.has_log = !self.has_log;
                    self.chosen = self.chosen.take().or_else(|| choices.first().map(|one| (*one).to_owned()));
                }
                Key::Down | Key::Up => {
                    let last = choices.len().saturating_sub(1);
                    let next = match (key, at) {
                        (Key::Down, Some(at)) => (at + 1).min(last),
                        (Key::Up, Some(at)) => at.saturating_sub(1),
                        (Key::Up, None) => last,
                        _ => 0,
                    };
                    self.chosen = choices.get(next).map(|one| (*one).to_owned());
                }
            }
            self.is_quitting = *key == Key::Quit;
        }
    }

    /// The rows that these lines want.
    pub fn rows(&self, snapshot: &Snapshot, screen_rows: u16) -> u16 {
        if self.has_log {
            return screen_rows.max(LOG_ROWS_MIN);
        }
        let failed = snapshot.failed.len().min(FAILED_SHOWN) as u16;
        failed + u16::from(!snapshot.ready.is_empty()) + u16::from(self.answer.is_some())
    }

    /// The lines, of which the first ones matter most.
    pub fn lines(&self, snapshot: &Snapshot, columns: usize, rows: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if let Some(answer) = &self.answer {
            lines.push(Line::from(columns::cut(&text::line(answer), columns)).yellow());
        }
        if self.has_log {
            let shown = rows.saturating_sub(lines.len() + 1);
            let name = self.chosen.as_deref().unwrap_or_default();
            let title = format!("log of {} (l: close)", text::line(name));
            lines.push(Line::from(columns::cut(&title, columns)).bold());
            let skipped = self.log.len().saturating_sub(shown);
            for line in &self.log[skipped..] {
                lines.push(Line::from(columns::cut(&text::line(line), columns)).dim());
            }
            lines.truncate(rows);
            return lines;
        }
        for name in snapshot.failed.iter().rev().take(FAILED_SHOWN) {
            let style = Style::new().fg(Color::Red);
            let shown = columns::cut(&format!("failed  {}", text::line(name)), columns);
            let span = Span::styled(shown, style);
            lines.push(Line::from(if self.chosen.as_ref() == Some(name) { span.reversed() } else { span }));
        }
        if !snapshot.ready.is_empty() {
            let mut spans = vec![Span::from("next").dim()];
            let mut room = columns.saturating_sub("next".len());
            for name in &snapshot.ready {
                let shown = format!("  {}", text::line(name));
                let width = columns::width(&shown);
                if width > room {
                    break;
                }
                room -= width;
                let span = Span::from(shown);
                spans.push(if self.chosen.as_ref() == Some(name) { span.reversed() } else { span.dim() });
            }
            lines.push(Line::from(spans));
        }
        lines.truncate(rows);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;

    #[test]
    fn keys_choose_and_ask() {
        let run =
            Snapshot { failed: vec!["bad".to_owned()], ready: vec!["soon".to_owned()], ..snapshot(2, 2) };
        let mut panes = Panes::default();
        panes.press(&[Key::Retry, Key::Skip], &run);
        assert_eq!(panes.requests, [], "nothing is chosen");
        panes.press(&[Key::Down, Key::Down, Key::Down, Key::Retry, Key::Down, Key::Bump, Key::Down], &run);
        assert_eq!(
            panes.requests,
            [(RequestKind::Retry, "bad".to_owned()), (RequestKind::Bump, "soon".to_owned())]
        );
        assert_eq!(panes.chosen.as_deref(), Some("soon"));
        panes.press(&[Key::Log], &run);
        panes.log = (0..40).map(|number| format!("line {number}\u{1b}[31m")).collect();
        let lines: Vec<String> = panes.lines(&run, 30, 6).iter().map(ToString::to_string).collect();
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[5].as_str()),
            (6, "log of soon (l: close)", "line 39")
        );
        panes.press(&[Key::Quit, Key::Log, Key::Quit], &run);
        assert!(!panes.wants_end);
        panes.press(&[Key::Log, Key::Quit, Key::Quit], &run);
        assert!(panes.wants_end);
        // It is over, and so is what was chosen.
        panes.press(&[], &Snapshot { ready: Vec::new(), ..run });
        assert_eq!((panes.chosen.as_deref(), panes.has_log), (None, false));
    }

    #[test]
    fn lines_fit_whatever_the_room() {
        let names =
            |count: usize| (0..count).map(|number| format!("package-漢字-{number}")).collect::<Vec<_>>();
        for (failed, ready) in [(0, 0), (1, 0), (9, 20)] {
            let run = Snapshot { failed: names(failed), ready: names(ready), ..snapshot(2, 1) };
            for has_log in [false, true] {
                let panes = Panes {
                    has_log,
                    log: names(50),
                    chosen: Some("package0".to_owned()),
                    ..Panes::default()
                };
                for (width, rows) in [(0, 0), (1, 1), (10, 3), (80, 20)] {
                    let lines = panes.lines(&run, width, rows);
                    assert!(
                        lines.len() <= rows && lines.iter().all(|line| line.width() <= width.max(4)),
                        "{width} {rows}"
                    );
                }
            }
        }
    }
}
