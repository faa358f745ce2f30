//! A terminal of its own for a command, as pty(7) describes: the command has one side, this process the other.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// See the module documentation.
#[derive(Debug)]
pub struct Terminal {
    main: OwnedFd,
}

impl Terminal {
    /// Starts a command as the leader of a session on a new terminal of this size, in characters. It ends with the thread
    /// that calls this, if the command asks the kernel for that.
    ///
    /// # Errors
    /// There are no more terminals, or the command cannot be started.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> io::Result<(Terminal, Child)> {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&main)?;
        unlockpt(&main)?;
        let name = ptsname(&main, Vec::new())?;
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let mut options = fs_err::OpenOptions::new();
        fs_err::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY);
        let (side, _) = options.read(true).write(true).open(name)?.into_parts();
        let terminal = Terminal { main };
        terminal.resize(columns, rows)?;
        command
            .stdin(Stdio::from(side.try_clone()?))
            .stdout(Stdio::from(side.try_clone()?))
            .stderr(Stdio::from(side));
        // SAFETY: both calls may be made between fork and exec; standard input is the terminal by then.
        unsafe {
            command.pre_exec(|| match libc::setsid() == -1 || libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                true => Err(io::Error::last_os_error()),
                false => Ok(()),
            })
        };
        // The command's side is closed here when `command` is dropped, so that reading ends with the last process.
        Ok((terminal, command.spawn()?))
    }

    /// Gives the terminal another size, in characters.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        Ok(tcsetwinsize(&self.main, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?)
    }

    /// What the programs print. It ends when none is left.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn screen(&self) -> io::Result<impl Read + Send + use<>> {
        Ok(Screen(File::from(self.main.try_clone()?)))
    }

    /// Takes what is typed.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn keyboard(&self) -> io::Result<File> {
        Ok(File::from(self.main.try_clone()?))
    }
}

/// This process's terminal while every key is for a command. It is restored when this is dropped.
#[derive(Debug)]
pub struct RawMode(Termios);

impl RawMode {
    /// Absent if standard input is no terminal.
    pub fn enter() -> Option<RawMode> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut modes = before.clone();
        modes.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &modes).ok()?;
        Some(RawMode(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}

/// Columns and rows of this process's terminal; those of old ones if it does not say.
pub fn own_screen() -> (u16, u16) {
    let known = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    known.map_or((80, 24), |size| (size.ws_col, size.ws_row))
}

struct Screen(File);

impl Read for Screen {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.0.read(bytes) {
            // No process has the other side any more.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_command_has_a_terminal_of_its_size() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read line; stty size; tty; echo \"got $line\" >&2; exit 3"]);
        let (terminal, mut child) = Terminal::start(command, 97, 31).unwrap();
        terminal.keyboard().unwrap().write_all(b"typed\n").unwrap();
        let mut shown = String::new();
        terminal.screen().unwrap().read_to_string(&mut shown).unwrap();
        assert!(
            shown.contains("31 97") && shown.contains("/dev/pts/") && shown.contains("got typed"),
            "{shown}"
        );
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
}
