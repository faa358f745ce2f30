//! What host and guest send each other: a length, a kind, and JSON or bytes.

use kilnyard_process::{CommandOutcome, Limits, Sample, Writing};
use kilnyard_root::Sandbox;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// The longest frame to a guest. A description of a sandbox with hundreds of layers has some hundred kilobytes.
pub(crate) const TO_GUEST_BYTES_MAX: u32 = 16 << 20;
/// The longest frame to the host, which has as much patience with the reports of a sandbox.
pub(crate) const TO_HOST_BYTES_MAX: u32 = 1 << 20;
/// The longest piece of output in a frame.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 10;
const OUTPUT: u8 = 1;
const MESSAGE: u8 = 0;

/// A path that is shared, in the order in which they are mounted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Shared {
    /// Absolute, the same on both sides.
    pub(crate) path: PathBuf,
    pub(crate) is_folder: bool,
    pub(crate) is_written: bool,
}

/// What a guest mounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mounts {
    pub(crate) shared: Vec<Shared>,
    /// The absolute path of the content of its disk, if it has one.
    pub(crate) disk: Option<PathBuf>,
}

/// To the guest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToGuest {
    /// The first message.
    Mount(Mounts),
    /// Runs a sandbox.
    Run(Box<Task>),
    /// Ends it.
    Cancel,
    /// Runs a sandbox on a terminal, or with pipes.
    Interact(Box<Interaction>),
    /// Input for it; no bytes are its end.
    Typed(Vec<u8>),
    /// The terminal has another size.
    Resize(Screen),
}

/// A sandbox to run on a terminal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Interaction {
    pub(crate) sandbox: Sandbox,
    /// Absent if input and output are pipes.
    pub(crate) screen: Option<Screen>,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Screen {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// A sandbox to run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) sandbox: Sandbox,
    pub(crate) limits: Limits,
    pub(crate) writing: Writing,
    /// The named pipe of the build's jobserver.
    #[serde(default)]
    pub(crate) jobserver: Option<PathBuf>,
}

/// To the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToHost {
    /// Everything is mounted.
    Ready,
    /// Something that the guest needs does not work.
    Failed(String),
    /// A sample of the sandbox's processes.
    Sample(Sample),
    /// How the sandbox ended.
    Ended(Box<CommandOutcome>),
    /// The exit code of one on a terminal.
    Left(i32),
}

/// A frame as it was read.
pub(crate) enum Frame<T> {
    Output(Vec<u8>),
    Message(T),
}

pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    write(to, MESSAGE, &text)
}

pub(crate) fn send_output(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    bytes.chunks(OUTPUT_BYTES_MAX).try_for_each(|piece| write(to, OUTPUT, piece))
}

fn write(to: &mut impl Write, kind: u8, content: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(content.len() + 5);
    frame.extend((content.len() as u32).to_be_bytes());
    frame.push(kind);
    frame.extend(content);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads a frame.
///
/// # Errors
/// The connection ended (`UnexpectedEof`), or what came is no frame.
pub(crate) fn read<T: for<'a> Deserialize<'a>>(from: &mut impl Read, bytes_max: u32) -> io::Result<Frame<T>> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let bytes = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if bytes > bytes_max {
        return Err(invalid(format!("a frame of {bytes} bytes")));
    }
    // What is announced is not reserved before it comes.
    let mut content = Vec::new();
    from.take(bytes.into()).read_to_end(&mut content)?;
    if content.len() != bytes as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match head[4] {
        OUTPUT if content.len() <= OUTPUT_BYTES_MAX => Ok(Frame::Output(content)),
        MESSAGE => {
            serde_json::from_slice(&content).map(Frame::Message).map_err(|error| invalid(error.to_string()))
        }
        kind => Err(invalid(format!("a frame of the kind {kind} with {bytes} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_sent_and_others_are_refused() {
        let mut sent = Vec::new();
        send(&mut sent, &ToHost::Failed("it".to_owned())).unwrap();
        send_output(&mut sent, &vec![7; OUTPUT_BYTES_MAX + 1]).unwrap();
        let mut from = &sent[..];
        assert!(
            matches!(read::<ToHost>(&mut from, TO_HOST_BYTES_MAX), Ok(Frame::Message(ToHost::Failed(text))) if text == "it")
        );
        for bytes in [OUTPUT_BYTES_MAX, 1] {
            assert!(
                matches!(read::<ToHost>(&mut from, TO_HOST_BYTES_MAX), Ok(Frame::Output(output)) if output.len() == bytes)
            );
        }
        let kind =
            |from: &[u8]| read::<ToHost>(&mut &*from, TO_HOST_BYTES_MAX).err().map(|error| error.kind());
        assert_eq!(kind(&sent[..7]), Some(io::ErrorKind::UnexpectedEof));
        for broken in [&[0xff, 0xff, 0xff, 0xff, 0][..], &[0, 0, 0, 1, 2, 0], &[0, 0, 0, 1, 0, b'x']] {
            assert_eq!(kind(broken), Some(io::ErrorKind::InvalidData), "{broken:?}");
        }
    }
}
