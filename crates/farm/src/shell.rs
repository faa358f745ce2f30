//! Shells in the roots of failed builds that workers keep, for users of the yard's machine.
//!
//! ```text
//! kilnyard shell --Unix socket--> door <--HTTPS-- worker
//! ```
//!
//! Both directions are frames of [`relay`], which the door passes on as bytes. The worker takes and sends
//! them by requests that name an offset: each may be repeated, and a proxy may hold back whole requests and answers.

use crate::relay;
use kilnyard_model::order::{CommandOrder, MachineTerms};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};

/// The most bytes of input or output in one frame.
pub const PART_BYTES_MAX: usize = 32 << 10;
/// The largest header of a frame, in bytes: that of a failure, with its reason.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// The longest reason. JSON may need six bytes for each character.
const REASON_CHARACTERS_MAX: usize = 2000;

/// What a worker runs in the root of a package's last failed build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// The package.
    pub package: String,
    /// The command.
    pub command: CommandOrder,
    /// The size of the user's terminal. Absent if there is none: then standard output and errors stay apart.
    pub terminal: Option<Size>,
    /// The virtual machine that it runs in; absent if it runs on the worker's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineTerms>,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Its width.
    pub columns: u16,
    /// Its height.
    pub rows: u16,
}

/// The header of a frame to a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToShell {
    /// The body is standard input.
    Input,
    /// Standard input has ended.
    EndOfInput,
    /// The terminal has another size.
    Size(Size),
}

/// The header of a frame from a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromShell {
    /// The body is standard output, or all output if there is a terminal.
    Output,
    /// The body is standard error.
    Errors,
    /// The command has ended. Nothing follows.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// The worker or the door ends the shell, or could not start it. Nothing follows.
    Failed {
        /// A clause.
        reason: String,
    },
}

/// Reads a frame of a shell. Returns none at the end.
///
/// # Errors
/// The connection failed, or the frame is malformed or too large.
pub fn read<H: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<(H, Vec<u8>)>> {
    relay::read_within(from, HEADER_BYTES_MAX, PART_BYTES_MAX as u32)
}

/// A frame with the reason why a shell ends.
///
/// # Errors
/// The reason is too large.
pub fn failed(reason: &str) -> io::Result<Vec<u8>> {
    let reason = reason.chars().take(REASON_CHARACTERS_MAX).collect();
    relay::frame(&FromShell::Failed { reason }, b"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded() {
        let part = vec![b'x'; PART_BYTES_MAX];
        let whole = relay::frame(&ToShell::Input, &part).unwrap();
        assert_eq!(read::<ToShell>(&mut &whole[..]).unwrap(), Some((ToShell::Input, part.clone())));
        let larger = relay::frame(&ToShell::Input, &[part, b"x".to_vec()].concat()).unwrap();
        assert!(read::<ToShell>(&mut &larger[..]).is_err());
        let long = failed(&"\u{1}".repeat(100_000)).unwrap();
        let (header, _) = read::<FromShell>(&mut &long[..]).unwrap().unwrap();
        assert!(matches!(header, FromShell::Failed { reason } if reason.starts_with('\u{1}')));
        assert_eq!(read::<FromShell>(&mut &b""[..]).unwrap(), None);
    }
}
