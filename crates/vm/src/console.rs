//! A command on a terminal in a virtual machine: a shell in a root whose programs this machine should not, or cannot, run.
//!
//! The machine belongs to a process of its own, which this program starts: its standard input and output are those of the
//! command, as if it ran here.

use crate::frame::{self, Frame, Interaction, Screen, ToGuest, ToHost};
use crate::{Machine, Shape, share};
use kilnyard_process::{RawMode, own_screen};
use kilnyard_root::Sandbox;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The argument with which this program is started for a console; a file and the id of the process that starts it follow.
const ARGUMENT: &str = "kilnyard-machine-console";
/// How often the size of the terminal is read.
const STEP: Duration = Duration::from_millis(200);
/// How much is read of the terminal at once: a frame for the guest is far longer.
const TYPED_BYTES_MAX: usize = 16 << 10;
/// The exit code if the machine fails.
const FAILED: i32 = 125;

/// What a console needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Console {
    /// What the machine is like.
    pub shape: Shape,
    /// The folder for kernels.
    pub made: PathBuf,
    /// A new folder for the machine's own files, which is removed.
    pub folder: PathBuf,
    /// What runs.
    pub sandbox: Sandbox,
    /// How long the machine may take to boot.
    pub boots_within: Duration,
}

impl Console {
    /// The command that starts the machine and runs the sandbox. `file` is a temporary one, which is not removed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn command(&self, file: &Path) -> io::Result<Command> {
        fs_err::write(file, serde_json::to_vec(self)?)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(ARGUMENT).arg(file).arg(std::process::id().to_string());
        Ok(command)
    }

    fn run(&self) -> io::Result<i32> {
        fs_err::create_dir(&self.folder)?;
        let machine =
            Machine::start(&self.shape, &self.made, &self.folder, &[&self.sandbox], None, self.boots_within);
        let ran = machine.map_err(|error| io::Error::other(error.to_string())).and_then(|machine| {
            let screen = io::stdin().is_terminal().then(screen);
            let _raw = screen.and_then(|_| RawMode::enter());
            converse(machine, &self.sandbox, screen)
        });
        let removed = fs_err::remove_dir_all(&self.folder);
        ran.and_then(|code| removed.map(|()| code))
    }
}

/// Becomes the process of a console, if this was started as one. It never returns then.
#[expect(clippy::disallowed_methods, reason = "the process does nothing else")]
pub fn become_console_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        return;
    }
    let read = arguments.next().ok_or(io::ErrorKind::InvalidInput.into()).and_then(fs_err::read);
    // Its processes end with it, and it ends with the program that started it.
    let parent = arguments.next().and_then(|text| text.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let read = read.and_then(|text| {
        share::die_with(parent.ok_or(io::ErrorKind::InvalidInput)?)?;
        Ok(text)
    });
    let console = read.and_then(|text| serde_json::from_slice::<Console>(&text).map_err(io::Error::other));
    let code = console.and_then(|console| console.run()).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "kilnyard: {error}");
        FAILED
    });
    std::process::exit(code)
}

fn screen() -> Screen {
    let (columns, rows) = own_screen();
    Screen { columns, rows }
}

/// Passes on what is typed and what is printed, until the command ends. Returns its exit code.
fn converse(mut machine: Machine, sandbox: &Sandbox, mut size: Option<Screen>) -> io::Result<i32> {
    let sandbox = machine.seen_by_guest(sandbox)?;
    let (port, frames) = machine.ends();
    frame::send(port, &ToGuest::Interact(Box::new(Interaction { sandbox, screen: size })))?;
    let mut to_guest = port.try_clone()?;
    // Not waited for: it may wait for input when the command has ended.
    std::thread::spawn(move || {
        let mut bytes = vec![0; TYPED_BYTES_MAX];
        loop {
            let count = io::stdin().read(&mut bytes).unwrap_or(0);
            let is_sent = frame::send(&mut to_guest, &ToGuest::Typed(bytes[..count].to_vec())).is_ok();
            if count == 0 || !is_sent {
                return;
            }
        }
    });
    let mut output = io::stdout();
    loop {
        match frames.recv_timeout(STEP) {
            Ok(Ok(Frame::Output(bytes))) => {
                output.write_all(&bytes)?;
                output.flush()?;
            }
            Ok(Ok(Frame::Message(ToHost::Left(code)))) => return Ok(code.clamp(0, 255)),
            Ok(Ok(Frame::Message(ToHost::Failed(why)))) => return Err(io::Error::other(why)),
            Ok(_) => return Err(io::Error::other("the virtual machine sent what it should not")),
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the virtual machine ended")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = size.map(|_| screen());
        if let (true, Some(now)) = (now != size, now) {
            // One size more or less between two steps is not missed: the next step reads it again.
            let _ = frame::send(port, &ToGuest::Resize(now));
            size = Some(now);
        }
    }
}
