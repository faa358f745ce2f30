//! The view of a run on a terminal: finished packages scroll up, running builds stay below them.
//!
//! `render` and `lines` decide what is shown, from a snapshot and a size; this module draws it. The terminal keeps its
//! main screen, so that Ctrl-C and the scroll buffer work as usual. Typed keys are not shown; `keys` knows some, and `panes` does
//! what they say. The picture is removed when the run ends. A terminal error
//! ends the picture but not the run: from then on, plain lines are written, as in the background.
//!
//! Known downside: SIGKILL leaves the terminal without echo, unless the shell restores it (bash and zsh do).

mod columns;
pub mod drawn;
pub mod echo;
mod estimate;
mod keys;
mod lines;
mod machine;
mod panes;
mod render;
mod screen;

use super::{Snapshot, View, ViewEvent};
use crate::environment_of_process;
use kilnyard_store::RequestKind;
use lines::Moment;
use panes::Panes;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Size};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::{Terminal, TerminalOptions, Viewport};
use render::{Paragraph, Renderer};
use screen::{Pending, Screen};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The shortest time between redraws.
const REDRAW: Duration = Duration::from_millis(200);
/// After a gap of this length between calls, the process may have been stopped, and the cursor may have moved.
const STOPPED_MIN: Duration = Duration::from_secs(3);
/// The bytes at the end of a log that are read, and the lines of them that are kept.
const LOG_BYTES: u64 = 16 << 10;
const LOG_LINES: usize = 200;
/// The smallest screen with room for a picture.
const SIZE_MIN: Size = Size { width: 10, height: 4 };

/// Whether a picture is on the screen, for the panic hook.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

type Drawn = Terminal<Screen<CrosstermBackend<Pending>>>;

/// A picture on the screen.
struct Picture {
    terminal: Drawn,
    size: Size,
    rows: u16,
    /// The width of each of its rows, in columns.
    extents: Vec<usize>,
}

/// See the module documentation.
pub struct Live {
    pending: Pending,
    picture: Option<Picture>,
    /// Whether only plain lines are written: the terminal failed, or the run is over.
    is_plain: bool,
    is_coloured: bool,
    is_stopping: bool,
    worked_before: u64,
    renderer: Renderer,
    gauge: machine::Gauge,
    called: Instant,
    drawn: Option<Instant>,
    panes: Panes,
    /// The yard's folder, with the logs.
    folder: PathBuf,
    /// The log that was read last: when it was written, its path and its size.
    log_read: Option<(SystemTime, PathBuf, u64)>,
}

impl Live {
    /// The view, if standard error is a terminal that can show a picture.
    pub fn open(folder: &Path) -> Option<Live> {
        let environment = environment_of_process();
        let term = environment.get("TERM").filter(|term| !term.is_empty() && *term != "dumb");
        let fits = |size: Size| size.width >= SIZE_MIN.width && size.height >= SIZE_MIN.height;
        let is_able = std::io::stderr().is_terminal()
            && term.is_some()
            && screen::is_ours()
            && screen::size().is_some_and(fits);
        is_able.then(|| {
            make_way_for_panics();
            Live {
                pending: Pending::default(),
                picture: None,
                is_plain: false,
                is_coloured: environment.get("NO_COLOR").is_none_or(str::is_empty),
                is_stopping: false,
                worked_before: 0,
                renderer: Renderer::default(),
                gauge: machine::Gauge::default(),
                called: Instant::now(),
                drawn: None,
                panes: Panes::default(),
                folder: folder.to_owned(),
                log_read: None,
            }
        })
    }

    /// Reads the end of the newest log of the package that is chosen, as far as this machine has it, if that has changed.
    fn read_log(&mut self, snapshot: &Snapshot) {
        let Some(chosen) = &self.panes.chosen else { return };
        let folder = self.folder.join(format!("logs/{}/{chosen}", snapshot.run));
        let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
        let known = entries.filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, entry.path(), metadata.len()))
        });
        let newest = known.max();
        if newest == self.log_read {
            return;
        }
        self.log_read = newest;
        self.panes.log.clear();
        let Some((_, path, size)) = &self.log_read else { return };
        let is_open = path.extension().is_none_or(|extension| extension != "zst");
        let path = path.to_str().map_or("", |path| path.trim_end_matches(".zst"));
        // Of a log that is being written, the end is enough; a compressed one is read once.
        let offset = if is_open { size.saturating_sub(LOG_BYTES) } else { 0 };
        let text = kilnyard_process::read_log_from(Path::new(path), offset).unwrap_or_default();
        let end = &text[text.len().saturating_sub(LOG_BYTES as usize)..];
        let lines: Vec<String> = String::from_utf8_lossy(end).lines().map(str::to_owned).collect();
        let skipped = lines.len().saturating_sub(LOG_LINES);
        self.panes.log.extend_from_slice(&lines[skipped..]);
    }

    fn show(&mut self, paragraphs: &[Paragraph], snapshot: &Snapshot, now: Instant) {
        let is_late = now.saturating_duration_since(self.called) >= STOPPED_MIN;
        self.called = now;
        let size = screen::size();
        let Some(size) = size.filter(|_| !self.is_plain && screen::is_ours()) else {
            self.forget();
            return say(paragraphs);
        };
        if self.paint(paragraphs, snapshot, now, size, is_late).is_err() {
            self.is_plain = true;
            self.forget();
            say(paragraphs);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "people expect local time")]
    fn paint(
        &mut self,
        paragraphs: &[Paragraph],
        snapshot: &Snapshot,
        now: Instant,
        size: Size,
        is_late: bool,
    ) -> std::io::Result<()> {
        let panes_rows = self.panes.rows(snapshot, size.height);
        self.place(lines::rows(snapshot.slots, panes_rows, size.height), size, is_late)?;
        let moment = Moment {
            now,
            clock: jiff::Zoned::now().datetime(),
            machine: self.gauge.machine(now),
            worked_before: self.worked_before,
            is_stopping: self.is_stopping,
        };
        // Each time, since a shell that continued this process may have turned it on again.
        echo::turn_off();
        let Some(picture) = &mut self.picture else { return Ok(()) };
        scroll(&mut picture.terminal, paragraphs, self.is_coloured)?;
        picture.extents = draw(&mut picture.terminal, snapshot, &moment, &self.panes, self.is_coloured)?;
        self.drawn = Some(now);
        self.pending.send()
    }

    /// Places a picture that fits the terminal at its cursor, if there is none.
    fn place(&mut self, rows: u16, size: Size, is_late: bool) -> std::io::Result<()> {
        let bottom = Position { x: 0, y: size.height - 1 };
        let mut at = None;
        if let Some(picture) = &mut self.picture {
            let is_spoilt = !IS_SHOWN.load(Ordering::Relaxed)
                || is_late && screen::cursor().is_some_and(|at| at != picture.terminal.backend().at());
            if !is_spoilt && picture.size == size && picture.rows == rows {
                return Ok(());
            }
            if !is_spoilt {
                let cursor = screen::cursor().unwrap_or(bottom);
                let above = rows_above(&picture.extents, picture.size.width, size.width);
                at = Some(Position { x: 0, y: cursor.y.saturating_sub(above) });
            }
            self.forget();
        }
        let at = match at {
            Some(at) => at,
            None => match screen::cursor() {
                Some(at) if at.x == 0 => at,
                Some(at) => {
                    self.pending.write_all(b"\r\n")?;
                    Position { x: 0, y: (at.y + 1).min(size.height - 1) }
                }
                None => bottom,
            },
        };
        let mut screen = Screen::new(self.pending.clone(), size, at);
        screen.set_cursor_position(at)?;
        screen.clear_region(ratatui::backend::ClearType::AfterCursor)?;
        let terminal = Terminal::with_options(screen, TerminalOptions { viewport: Viewport::Inline(rows) })?;
        self.picture = Some(Picture { terminal, size, rows, extents: Vec::new() });
        IS_SHOWN.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets the picture, and leaves it on the screen.
    fn forget(&mut self) {
        self.picture = None;
        IS_SHOWN.store(false, Ordering::Relaxed);
        echo::restore();
    }

    /// Removes the picture from the screen; the next output starts where it was.
    fn clear(&mut self) {
        echo::restore();
        if let Some(mut picture) = self.picture.take()
            && IS_SHOWN.swap(false, Ordering::Relaxed)
            && screen::is_ours()
        {
            // An error means that the terminal is gone.
            let _ = take_off(&mut picture.terminal).and_then(|()| self.pending.send());
        }
    }
}

impl View for Live {
    fn see(&mut self, seen: &ViewEvent, snapshot: &Snapshot) {
        let now = Instant::now();
        match seen {
            ViewEvent::Began => self.worked_before = estimate::worked(snapshot),
            ViewEvent::Stopping => self.is_stopping = true,
            _ => {}
        }
        let paragraphs = self.renderer.render(seen, snapshot, now);
        if matches!(seen, ViewEvent::Ended(_)) {
            self.clear();
            self.is_plain = true;
            say(&paragraphs);
        } else if !paragraphs.is_empty() {
            self.show(&paragraphs, snapshot, now);
        }
    }

    fn requests(&mut self) -> Vec<(RequestKind, String)> {
        std::mem::take(&mut self.panes.requests)
    }

    fn answered(&mut self, answer: &str) {
        self.panes.answer = Some(answer.to_owned());
    }

    fn wants_end(&self) -> bool {
        self.panes.wants_end
    }

    fn tick(&mut self, snapshot: &Snapshot) {
        let now = Instant::now();
        let keys = if self.picture.is_some() { keys::typed() } else { Vec::new() };
        if !keys.is_empty() {
            self.panes.answer = None;
        }
        self.panes.press(&keys, snapshot);
        if !keys.is_empty() {
            // What was chosen is shown at once.
            self.drawn = None;
        }
        if self.panes.has_log && self.drawn.is_none_or(|drawn| now.saturating_duration_since(drawn) >= REDRAW)
        {
            self.read_log(snapshot);
        }
        if self.drawn.is_none_or(|drawn| now.saturating_duration_since(drawn) >= REDRAW) {
            self.show(&[], snapshot, now);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Makes room for a panic's message below the picture.
fn make_way_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_SHOWN.swap(false, Ordering::Relaxed) {
                echo::restore();
                let _ = std::io::stderr().write_all(b"\r\n");
            }
            before(panic);
        }));
    });
}

fn say(paragraphs: &[Paragraph]) {
    let mut stderr = std::io::stderr().lock();
    for paragraph in paragraphs {
        // Without a reader the run continues.
        let _ = writeln!(stderr, "{:1$}{2}", "", paragraph.indent, paragraph.text);
    }
}

/// The number of rows of the picture above the cursor, after the terminal was resized and wrapped them.
fn rows_above(extents: &[usize], width_before: u16, width: u16) -> u16 {
    let rows = extents.len().saturating_sub(1);
    let Some((last, others)) = extents.split_last().filter(|_| width < width_before) else {
        return rows as u16;
    };
    let width = usize::from(width.max(1));
    let wrapped: usize = others.iter().map(|extent| extent.div_ceil(width).max(1)).sum();
    (wrapped + last / width).min(usize::from(u16::MAX)) as u16
}

fn scroll<B: Backend>(
    terminal: &mut Terminal<B>,
    paragraphs: &[Paragraph],
    is_coloured: bool,
) -> Result<(), B::Error> {
    let columns = usize::from(terminal.get_frame().area().width);
    let rows: Vec<(Style, String)> = paragraphs
        .iter()
        .flat_map(|paragraph| {
            paragraph.rows(columns).into_iter().map(|row| (shown(paragraph.style, is_coloured), row))
        })
        .collect();
    // The buffer of one call holds no more than this, which is about the size of a failure.
    for rows in rows.chunks(64) {
        let put = |buffer: &mut Buffer| {
            for (y, (style, row)) in (0..).zip(rows) {
                buffer.set_string(0, y, row, *style);
            }
        };
        terminal.insert_before(rows.len() as u16, put)?;
    }
    Ok(())
}

fn draw<B: Backend>(
    terminal: &mut Terminal<B>,
    snapshot: &Snapshot,
    moment: &Moment,
    panes: &Panes,
    is_coloured: bool,
) -> Result<Vec<usize>, B::Error> {
    let mut extents = Vec::new();
    terminal.draw(|frame| {
        let area = frame.area();
        let mut lines: Vec<Line> =
            lines::picture(snapshot, moment, panes, usize::from(area.width), usize::from(area.height));
        for (y, line) in (area.y..area.bottom()).zip(&mut lines) {
            for span in &mut line.spans {
                span.style = shown(span.style, is_coloured);
            }
            extents.push(line.width());
            frame.buffer_mut().set_line(area.x, y, line, area.width);
        }
        // After the last line, so that a shell's prompt has a usable place after a kill.
        let x = extents.last().map_or(0, |extent| *extent as u16).min(area.width.saturating_sub(1));
        let y = area.y + (extents.len() as u16).saturating_sub(1);
        frame.set_cursor_position(Position { x, y });
    })?;
    Ok(extents)
}

fn take_off<B: Backend>(terminal: &mut Terminal<B>) -> Result<(), B::Error> {
    let top = terminal.get_frame().area().as_position();
    terminal.clear()?;
    terminal.set_cursor_position(top)
}

fn shown(style: Style, is_coloured: bool) -> Style {
    if is_coloured { style } else { Style { fg: None, bg: None, ..style } }
}

#[cfg(test)]
mod tests;
