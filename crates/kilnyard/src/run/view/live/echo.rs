//! The echo of the terminal, which is off while a picture is on the screen: typed keys would spoil it. So is the editing of lines:
//! a key arrives when it is typed, and reading does not wait for one.
//!
//! Other modes stay as they are, so that Ctrl-C and Ctrl-Z keep their meaning. Only a foreground process changes the echo: in the background the terminal belongs to the shell, and
//! the kernel would stop the process.

use super::screen::is_ours;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// The flags that show typed characters, and collect them into lines.
const ECHO: LocalModes = LocalModes::ECHO.union(LocalModes::ECHONL).union(LocalModes::ICANON);

/// The bits of [`ECHO`] that were turned off; 0 if none. Not a lock, since a signal handler reads it.
static TURNED_OFF: AtomicU32 = AtomicU32::new(0);

/// Turns the echo off, if it is on.
pub fn turn_off() {
    let Some(mut modes) = is_ours().then(|| tcgetattr(io::stderr()).ok()).flatten() else { return };
    let shown = modes.local_modes & ECHO;
    if shown.is_empty() {
        return;
    }
    modes.local_modes -= ECHO;
    // A read returns at once. In the mode of lines, these are of no importance.
    modes.special_codes[SpecialCodeIndex::VMIN] = 0;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    if tcsetattr(io::stderr(), OptionalActions::Now, &modes).is_ok() {
        TURNED_OFF.fetch_or(shown.bits(), Ordering::Relaxed);
    }
}

/// Turns on again the flags that [`turn_off`] cleared. Async-signal-safe: it only makes system calls.
pub fn restore() {
    if TURNED_OFF.load(Ordering::Relaxed) == 0 || !is_ours() {
        return;
    }
    let off = TURNED_OFF.swap(0, Ordering::Relaxed);
    if let Ok(mut modes) = tcgetattr(io::stderr()) {
        modes.local_modes |= LocalModes::from_bits_retain(off);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(io::stderr(), OptionalActions::Now, &modes);
    }
}
