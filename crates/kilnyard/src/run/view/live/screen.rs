//! The terminal behind the picture.
//!
//! Output is buffered, so that a redraw is one write. The cursor's position is queried only when a picture is placed,
//! on the terminal itself, not on standard output. The echo is off during the query; keyboard signals stay enabled,
//! and the mode is restored. Keys that are typed during the query are kept for `keys`.

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for the cursor's position: a slow line answers, a dumb terminal never does.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// An answer has about ten bytes; typed keys may come before it.
const ANSWER_BYTES_MAX: usize = 4096;

/// What was typed while the cursor's position was queried.
static TYPED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Takes what was typed while the cursor's position was queried.
pub fn take_typed() -> Vec<u8> {
    std::mem::take(&mut *TYPED.lock().unwrap_or_else(PoisonError::into_inner))
}

fn keep_typed(bytes: &[u8]) {
    TYPED.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
}

/// Buffered output.
#[derive(Clone, Debug, Default)]
pub struct Pending(Rc<RefCell<Vec<u8>>>);

impl Pending {
    /// Writes it to standard error.
    pub fn send(&self) -> io::Result<()> {
        let bytes = std::mem::take(&mut *self.0.borrow_mut());
        let mut stderr = io::stderr().lock();
        stderr.write_all(&bytes)?;
        stderr.flush()
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether standard error is the terminal of this process, and this process is in its foreground.
pub fn is_ours() -> bool {
    let foreground = rustix::termios::tcgetpgrp(io::stderr());
    foreground.is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Columns and rows; `None` if the terminal is gone or does not know them.
pub fn size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(Size { width: size.ws_col, height: size.ws_row })
}

struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

/// The cursor's position; `None` if the terminal does not answer.
pub fn cursor() -> Option<Position> {
    if !is_ours() {
        return None;
    }
    let mut terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let before = tcgetattr(&terminal).ok()?;
    let mut modes = before.clone();
    modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
    modes.special_codes[SpecialCodeIndex::VMIN] = 0;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&terminal, OptionalActions::Now, &modes).ok()?;
    let _quiet = Quiet { terminal: &terminal.try_clone().ok()?, before };
    terminal.write_all(b"\x1b[6n").ok()?;
    let (position, typed) = answer(&mut terminal);
    keep_typed(&typed);
    position
}

/// Reads the answer to the query, and what was typed before and after it.
fn answer(terminal: &mut File) -> (Option<Position>, Vec<u8>) {
    let asked = Instant::now();
    let mut answer = Vec::new();
    while answer.len() < ANSWER_BYTES_MAX {
        let Some(left) = ANSWER_MAX.checked_sub(asked.elapsed()) else { break };
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        let mut waiting = [PollFd::new(&*terminal, PollFlags::IN)];
        // Interrupted by a signal: waits for the rest of the time.
        let _ = poll(&mut waiting, Some(&timeout));
        let mut bytes = [0; 64];
        let count = match terminal.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(_) => break,
        };
        answer.extend_from_slice(&bytes[..count]);
        if let Some((position, place)) = parse(&answer) {
            answer.drain(place);
            return (Some(position), answer);
        }
    }
    (None, answer)
}

/// Finds `ESC [ row ; column R`, counted from one, and its place.
fn parse(answer: &[u8]) -> Option<(Position, Range<usize>)> {
    (0..answer.len()).find_map(|start| {
        let rest = answer[start..].strip_prefix(b"\x1b[")?;
        let length = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b';')?;
        let (row, column) = std::str::from_utf8(&rest[..length]).ok()?.split_once(';')?;
        let (row, column): (u16, u16) = (row.parse().ok()?, column.parse().ok()?);
        let position = Position { x: column.checked_sub(1)?, y: row.checked_sub(1)? };
        (rest[length] == b'R').then(|| (position, start..start + 2 + length + 1))
    })
}

/// A terminal of fixed size, which remembers the position of its cursor.
pub struct Screen<B> {
    inner: B,
    size: Size,
    at: Position,
}

impl Screen<CrosstermBackend<Pending>> {
    /// The terminal on standard error, with its cursor here.
    pub fn new(pending: Pending, size: Size, at: Position) -> Self {
        Screen { inner: CrosstermBackend::new(pending), size, at }
    }
}

impl<B> Screen<B> {
    /// The last known position of the cursor.
    pub fn at(&self) -> Position {
        self.at
    }
}

impl<B: Backend> Backend for Screen<B> {
    type Error = B::Error;

    /// Trailing blanks of a row are cleared, not written: they would be wrapped when the terminal gets narrower, and
    /// copied.
    fn draw<'a, I>(&mut self, content: I) -> Result<(), B::Error>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let cells: Vec<(u16, u16, &Cell)> = content.collect();
        for row in cells.chunk_by(|one, other| one.1 == other.1) {
            let is_blank = |cell: &(u16, u16, &Cell)| *cell.2 == Cell::EMPTY || cell.2.symbol() == " ";
            let reaches_edge = row.last().is_some_and(|cell| cell.0 + 1 == self.size.width);
            let mut kept = row.len();
            while reaches_edge && kept > 0 && is_blank(&row[kept - 1]) {
                // Unchanged cells are not among these.
                if kept < row.len() && row[kept - 1].0 + 1 != row[kept].0 {
                    break;
                }
                kept -= 1;
            }
            self.inner.draw(row[..kept].iter().copied())?;
            if kept < row.len() {
                self.inner.set_cursor_position(Position { x: row[kept].0, y: row[kept].1 })?;
                self.inner.clear_region(ClearType::UntilNewLine)?;
            }
        }
        Ok(())
    }

    fn append_lines(&mut self, count: u16) -> Result<(), B::Error> {
        self.inner.append_lines(count)
    }

    fn hide_cursor(&mut self) -> Result<(), B::Error> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> Result<(), B::Error> {
        self.inner.show_cursor()
    }

    fn get_cursor_position(&mut self) -> Result<Position, B::Error> {
        Ok(self.at)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), B::Error> {
        self.at = position.into();
        self.inner.set_cursor_position(self.at)
    }

    fn clear(&mut self) -> Result<(), B::Error> {
        self.inner.clear()
    }

    fn clear_region(&mut self, kind: ClearType) -> Result<(), B::Error> {
        self.inner.clear_region(kind)
    }

    fn size(&self) -> Result<Size, B::Error> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, B::Error> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::default() })
    }

    fn flush(&mut self) -> Result<(), B::Error> {
        self.inner.flush()
    }
}

#[cfg(test)]
impl Screen<ratatui::backend::TestBackend> {
    /// A terminal of cells in memory.
    pub fn cells(size: Size, at: Position) -> Self {
        Screen { inner: ratatui::backend::TestBackend::new(size.width, size.height), size, at }
    }

    /// Its rows, without trailing blanks.
    pub fn rows(&self) -> Vec<String> {
        let width = usize::from(self.size.width);
        let row = |cells: &[Cell]| cells.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned();
        self.inner.buffer().content.chunks(width).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_among_what_was_typed() {
        assert_eq!(parse(b"\x1b[24;1R"), Some((Position { x: 0, y: 23 }, 0..7)));
        assert_eq!(parse(b"ls\n\x1b[A\x1b[3;80Rl"), Some((Position { x: 79, y: 2 }, 6..13)));
        for odd in
            ["", "\u{1b}[", "\u{1b}[24;1", "\u{1b}[0;0R", "\u{1b}[99999;1R", "\u{1b}[;R", "\u{1b}[x;yR"]
        {
            assert_eq!(parse(odd.as_bytes()), None, "{odd:?}");
        }
        assert_eq!(parse(&[0xff, 0xfe, 0x1b, b'[']), None);
    }
}
