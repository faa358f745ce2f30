//! The keys that a run on a terminal knows, read without waiting.

use super::screen::{is_ours, take_typed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IsTerminal};

/// The most bytes read at once: more than is typed within a redraw.
const BYTES_MAX: usize = 256;

/// A key that the view knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The one above.
    Up,
    /// The one below.
    Down,
    /// `l`: the log of what is chosen.
    Log,
    /// `r`: retry it.
    Retry,
    /// `s`: skip it.
    Skip,
    /// `b`: build it first.
    Bump,
    /// `q`: end the run, as Ctrl-C does, if it is typed twice.
    Quit,
    /// Escape: nothing is chosen any more.
    Leave,
}

/// What was typed since the last call. Nothing in the background, where reading would stop the process.
pub fn typed() -> Vec<Key> {
    let input = io::stdin();
    if !is_ours() || !input.is_terminal() {
        return Vec::new();
    }
    let mut ready = [PollFd::new(&input, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A shell that continues this process may have turned the mode of lines on again, in which a read waits for one.
    let mut typed = take_typed();
    if matches!(poll(&mut ready, Some(&now)), Ok(1..)) {
        let mut bytes = [0; BYTES_MAX];
        let count = rustix::io::read(&input, &mut bytes).unwrap_or(0);
        typed.extend_from_slice(&bytes[..count]);
    }
    parse(&typed)
}

fn parse(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        keys.extend(match first {
            b'l' => Some(Key::Log),
            b'r' => Some(Key::Retry),
            b's' => Some(Key::Skip),
            b'b' => Some(Key::Bump),
            b'q' => Some(Key::Quit),
            0x1b => match rest {
                // Arrows, in the normal and in the application mode (ECMA-48, DEC VT100).
                [b'[' | b'O', arrow, ..] => {
                    bytes = &rest[2..];
                    match arrow {
                        b'A' => Some(Key::Up),
                        b'B' => Some(Key::Down),
                        _ => {
                            // Of a longer sequence, the rest belongs to it.
                            let end = bytes.iter().position(|byte| (0x40..=0x7e).contains(byte));
                            if !(0x40..=0x7e).contains(arrow) {
                                bytes = end.map_or(&[], |end| &bytes[end + 1..]);
                            }
                            None
                        }
                    }
                }
                _ => Some(Key::Leave),
            },
            _ => None,
        });
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_are_found_among_others() {
        assert_eq!(parse(b"\x1b[A\x1bOBjk"), [Key::Up, Key::Down]);
        assert_eq!(parse(b"lrsbq"), [Key::Log, Key::Retry, Key::Skip, Key::Bump, Key::Quit]);
        // A function key is not the letters of its sequence.
        assert_eq!(parse(b"\x1b[15~l\x1b"), [Key::Log, Key::Leave]);
        assert_eq!(parse(b"make\n\xff\x00"), []);
        assert_eq!(parse(b"\x1b["), [Key::Leave]);
        assert_eq!(parse(b"\x1b[1"), []);
    }
}
