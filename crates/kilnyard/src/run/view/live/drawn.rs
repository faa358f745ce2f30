//! A picture of the view in a file, in addition to another view: for a web server's page, a ticket, or a document.
//!
//! The file always holds one whole SVG drawing: the last lines that scrolled up, and below them the picture as a
//! terminal of 100 columns shows it. It is replaced once a second while the run lasts, and once more when the run
//! ends. If the file can no longer be written, the drawing ends with one message, and the run continues.

use super::lines::{self, Moment};
use super::machine::Gauge;
use super::panes::Panes;
use super::render::{Paragraph, Renderer};
use super::{Snapshot, View, ViewEvent, estimate};
use crate::error::{Context, Kind, Result};
use kilnyard_store::RequestKind;
use kilnyard_web::{Anchor, Drawing};
use ratatui::style::{Color, Modifier, Style};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the file is replaced.
const REDRAW: Duration = Duration::from_secs(1);
/// The size of the terminal that is drawn.
const COLUMNS: usize = 100;
const ROWS: u16 = 24;
/// The place of a character, and the margins, in pixels.
const COLUMN_WIDTH: f64 = 8.0;
const ROW_HEIGHT: f64 = 18.0;
const MARGIN: f64 = 14.0;

const STYLE: &str = "\
rect{fill:#1b1d23}\
text{fill:#d8dbe2;font:13.3px ui-monospace,\"DejaVu Sans Mono\",\"Liberation Mono\",Menlo,Consolas,monospace}\
.red{fill:#ff8d80}.yellow{fill:#e5be62}.green{fill:#86cf98}.cyan{fill:#86b6f2}.bold{font-weight:bold}.dim{fill:#8b90a0}";

/// One row: pieces of text, each with its style.
type Row = Vec<(Style, String)>;

/// See the module documentation.
pub struct Drawn {
    inner: Box<dyn View>,
    path: PathBuf,
    scrolled: VecDeque<Row>,
    renderer: Renderer,
    gauge: Gauge,
    worked_before: u64,
    is_stopping: bool,
    /// When the file was last replaced.
    written: Option<Instant>,
    /// Whether the file could not be written.
    is_given_up: bool,
}

impl Drawn {
    /// Draws what `inner` shows into `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(inner: Box<dyn View>, path: PathBuf) -> Result<Drawn> {
        write(&path, &drawing(&[]))?;
        Ok(Drawn {
            inner,
            path,
            scrolled: VecDeque::new(),
            renderer: Renderer::default(),
            gauge: Gauge::default(),
            worked_before: 0,
            is_stopping: false,
            written: None,
            is_given_up: false,
        })
    }

    fn scroll(&mut self, paragraphs: &[Paragraph]) {
        for paragraph in paragraphs {
            let rows = paragraph.rows(COLUMNS).into_iter();
            self.scrolled.extend(rows.map(|row| vec![(paragraph.style, row)]));
        }
        let more = self.scrolled.len().saturating_sub(usize::from(ROWS));
        self.scrolled.drain(..more);
    }

    #[expect(clippy::disallowed_methods, reason = "the local time that the picture shows")]
    fn draw(&mut self, snapshot: &Snapshot, is_over: bool) {
        let now = Instant::now();
        let is_early = self.written.is_some_and(|written| now.saturating_duration_since(written) < REDRAW);
        if self.is_given_up || is_early && !is_over {
            return;
        }
        self.written = Some(now);
        let mut picture: Vec<Row> = Vec::new();
        if !is_over {
            let moment = Moment {
                now,
                clock: jiff::Zoned::now().datetime(),
                machine: self.gauge.machine(now),
                worked_before: self.worked_before,
                is_stopping: self.is_stopping,
            };
            let rows = usize::from(lines::rows(snapshot.slots, 0, ROWS));
            let lines = lines::picture(snapshot, &moment, &Panes::default(), COLUMNS, rows).into_iter();
            let row = |line: ratatui::text::Line<'static>| {
                let spans = line.spans.into_iter();
                spans.map(|span| (span.style, span.content.into_owned())).collect()
            };
            picture.extend(lines.map(row));
        }
        let above = usize::from(ROWS).saturating_sub(picture.len());
        let skipped = self.scrolled.len().saturating_sub(above);
        let rows: Vec<Row> = self.scrolled.iter().skip(skipped).cloned().chain(picture).collect();
        if let Err(error) = write(&self.path, &drawing(&rows)) {
            self.is_given_up = true;
            say!("warning: the picture is no longer updated\n{error}");
        }
    }
}

impl View for Drawn {
    fn see(&mut self, seen: &ViewEvent, snapshot: &Snapshot) {
        self.inner.see(seen, snapshot);
        match seen {
            ViewEvent::Began => self.worked_before = estimate::worked(snapshot),
            ViewEvent::Stopping => self.is_stopping = true,
            _ => {}
        }
        let paragraphs = self.renderer.render(seen, snapshot, Instant::now());
        self.scroll(&paragraphs);
        if matches!(seen, ViewEvent::Ended(_)) {
            self.draw(snapshot, true);
        }
    }

    fn tick(&mut self, snapshot: &Snapshot) {
        self.inner.tick(snapshot);
        self.draw(snapshot, false);
    }

    fn requests(&mut self) -> Vec<(RequestKind, String)> {
        self.inner.requests()
    }

    fn answered(&mut self, answer: &str) {
        self.inner.answered(answer);
    }

    fn wants_end(&self) -> bool {
        self.inner.wants_end()
    }
}

/// Replaces the file. The folder may be one that other users write to, so that no name in it can be trusted: the new
/// file has a name that did not exist before, and replaces the old one or a link by a rename.
fn write(path: &Path, text: &str) -> Result<()> {
    let failed = format!("write the picture {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As other new files, by the umask: a web server reads it.
    let readable = std::fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .prefix(".kilnyard-picture-")
        .permissions(readable)
        .tempfile_in(folder)
        .context(Kind::Machine, &failed)?;
    file.write_all(text.as_bytes()).context(Kind::Machine, &failed)?;
    file.persist(path).map(drop).map_err(|error| error.error).context(Kind::Machine, failed)
}

/// A drawing of these rows.
fn drawing(rows: &[Row]) -> String {
    let width = COLUMNS as f64 * COLUMN_WIDTH + 2.0 * MARGIN;
    let height = rows.len().max(1) as f64 * ROW_HEIGHT + 2.0 * MARGIN;
    let mut drawing = Drawing::new(width, height, "kilnyard build", STYLE);
    drawing.rectangle("", [0.0, 0.0, width, height], "");
    for (number, row) in rows.iter().enumerate() {
        let baseline = MARGIN + (number as f64 + 0.75) * ROW_HEIGHT;
        let mut column = 0;
        for (style, text) in row {
            for (offset, piece) in pieces(text) {
                let x = MARGIN + (column + offset) as f64 * COLUMN_WIDTH;
                drawing.label(&class(*style), x, baseline, Anchor::Start, piece);
            }
            column += super::columns::width(text);
        }
    }
    drawing.finish()
}

/// The parts of a text between runs of two spaces or more, each with its column: SVG collapses spaces.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let mut column = 0;
    for part in text.split("  ") {
        let shown = part.trim();
        if !shown.is_empty() {
            let leading = super::columns::width(part) - super::columns::width(part.trim_start());
            pieces.push((column + leading, shown));
        }
        column += super::columns::width(part) + 2;
    }
    pieces
}

fn class(style: Style) -> String {
    let mut classes = Vec::new();
    classes.extend(match style.fg {
        Some(Color::Red) => Some("red"),
        Some(Color::Yellow) => Some("yellow"),
        Some(Color::Green) => Some("green"),
        Some(Color::Cyan) => Some("cyan"),
        _ => None,
    });
    let has = |modifier| style.add_modifier.contains(modifier);
    classes.extend(has(Modifier::BOLD).then_some("bold"));
    classes.extend(has(Modifier::DIM).then_some("dim"));
    classes.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;
    use kilnyard_model::result::PackageState;
    use kilnyard_store::RunState;

    struct Nothing;

    impl View for Nothing {
        fn see(&mut self, _: &ViewEvent, _: &Snapshot) {}
        fn tick(&mut self, _: &Snapshot) {}
    }

    #[test]
    fn pieces_keep_their_columns() {
        assert_eq!(pieces("1  package   3 cores"), [(0, "1"), (3, "package"), (13, "3 cores")]);
        assert_eq!(pieces("   漢字  x "), [(3, "漢字"), (9, "x")]);
        assert_eq!(pieces("    "), []);
    }

    #[test]
    fn the_file_shows_the_lines_and_the_picture_and_at_the_end_the_lines_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.svg");
        let mut drawn = Drawn::open(Box::new(Nothing), path.clone()).unwrap();
        let run = snapshot(2, 1);
        drawn.see(&ViewEvent::Began, &run);
        let reason = kilnyard_model::reason::Reason::Waits { package: "</text><script>".to_owned() };
        drawn.see(&ViewEvent::State { package: "a<b", state: PackageState::Blocked, reason: &reason }, &run);
        drawn.tick(&run);
        let text = std::fs::read_to_string(&path).unwrap();
        for expected in [
            "<text x=\"14\" y=\"27.5\">run 3: 5 packages, 2 in parallel, 3 min 20 s expected</text>",
            "class=\"yellow\"",
            "blocked a&lt;b",
            "&lt;script&gt;",
            ">package0 1.0-1</text>",
            ">3 cores</text>",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        drawn.see(&ViewEvent::Ended(RunState::Interrupted), &run);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("interrupted; the same command resumes it"), "{text}");
        assert!(!text.contains("package0"), "{text}");
    }

    #[test]
    fn a_picture_replaces_a_link_and_leaves_its_target_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("run.svg"), folder.path().join("target"));
        std::fs::write(&target, "mine").unwrap();
        for name in ["run.svg", "run.part"] {
            std::os::unix::fs::symlink(&target, folder.path().join(name)).unwrap();
        }
        write(&path, "<svg/>").unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_at_once_and_later_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("no/run.svg");
        assert!(Drawn::open(Box::new(Nothing), nowhere).is_err());
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let mut drawn = Drawn::open(Box::new(Nothing), inside.join("run.svg")).unwrap();
        std::fs::remove_dir_all(&inside).unwrap();
        drawn.tick(&snapshot(2, 1));
        assert!(drawn.is_given_up);
    }
}
