//! Files on the command line, and secrets that a person types.

use kilnyard_yard::unpack;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

/// Reads a file, which may be compressed; `-` is standard input.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match path.as_os_str() == "-" {
        true => unpack::unpack(io::stdin().lock()),
        false => unpack::read(path),
    }
}

/// The key that interrupts, where the terminal sends no signal for it: Ctrl-C.
const INTERRUPT: u8 = 3;

/// Asks for a passphrase or PIN on the terminal, which does not show it; none without a terminal, or if it is interrupted.
pub fn secret(name: &str) -> Option<String> {
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return None;
    }
    let before = tcgetattr(&stdin).ok()?;
    let mut silent = before.clone();
    // Without signals: an interrupted process would leave the terminal like this.
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG | LocalModes::ICANON);
    silent.special_codes[SpecialCodeIndex::VMIN] = 1;
    silent.special_codes[SpecialCodeIndex::VTIME] = 0;
    let _ = write!(stderr, "{name} (a passphrase or PIN of the signer; it is not shown): ");
    let _ = stderr.flush();
    tcsetattr(&stdin, OptionalActions::Flush, &silent).ok()?;
    let (mut typed, mut is_given) = (Vec::new(), false);
    for byte in stdin.lock().bytes().map_while(Result::ok) {
        match byte {
            b'\n' | b'\r' => is_given = true,
            INTERRUPT => break,
            // Backspace.
            8 | 127 => drop(typed.pop()),
            _ => typed.push(byte),
        }
        if is_given {
            break;
        }
    }
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &before);
    let _ = writeln!(stderr);
    is_given.then_some(typed).and_then(|typed| String::from_utf8(typed).ok())
}
