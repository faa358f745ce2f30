//! The yard's end of a shell in a root that a worker on another machine keeps.

use super::exit_code;
use crate::error::{Context, Error, Kind, Result};
use crate::run::{door, host_name};
use crate::signals;
use crate::yard::Yard;
use kilnyard_farm::relay::{self, First};
use kilnyard_farm::shell::{self, FromShell, PART_BYTES_MAX, Size, ToShell, Wanted};
use kilnyard_model::foreign::Foreign;
use kilnyard_model::order::CommandOrder;
use kilnyard_process::{RawMode, own_screen};
use kilnyard_worker::RootFolder;
use kilnyard_yard::remedy::Remedy;
use std::io::{self, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the size of the terminal and signals are checked.
const STEP: Duration = Duration::from_millis(100);

/// Runs a command in the root of the package's failed build that this worker keeps, with the standard input and output
/// of this process.
pub fn run(yard: &Yard, worker: &str, package: &str, command: CommandOrder) -> Result<ExitCode> {
    let failed = |cause: String| {
        let mut error = Error::usage(format!("failed to enter the root of {package} on {worker}"));
        error.causes.push(cause);
        error
    };
    let mut stream = relay::connect(&door::folder(yard)).map_err(|_| {
        let remedy = Remedy::command("serve").then(", in another terminal, connects its workers");
        let here = RootFolder::failed_path(&yard.folder, package).is_dir();
        failed("kilnyard serve is not running".to_owned()).hint(match here {
            false => remedy,
            true => remedy
                .then("; ")
                .then_command(format!("shell {package} --worker {}", host_name()))
                .then(" enters an earlier root, on this machine"),
        })
    })?;
    let is_on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let terminal = is_on_terminal.then(size);
    let machine = yard.config.tables.settings_of(package).terms.machine;
    let wanted = Wanted { package: package.to_owned(), command, terminal, machine };
    let order = serde_json::to_value(&wanted).or_internal("write the request")?;
    let lost = "talk to kilnyard serve";
    relay::write(&mut stream, &First::Shell { worker: worker.to_owned(), order }, b"")
        .context(Kind::Machine, lost)?;
    signals::install();
    let sending = Arc::new(Mutex::new(stream.try_clone().context(Kind::Machine, lost)?));
    let closing = stream.try_clone().context(Kind::Machine, lost)?;
    // These threads end with the process.
    thread::spawn({
        let sending = sending.clone();
        move || type_in(&sending)
    });
    thread::spawn(move || watch(terminal, &sending, &closing));
    let mut raw = None;
    loop {
        let frame = shell::read::<FromShell>(&mut stream);
        let (printed, body) = match frame.context(Kind::Machine, lost)? {
            Some((FromShell::Exited { code }, _)) => return exit_code(code),
            Some((FromShell::Failed { reason }, _)) => return Err(failed(Foreign(&reason).to_string())),
            Some(printed) => printed,
            None if signals::count() > 0 => return Err(Error::new(Kind::Interrupted, "interrupted")),
            None => return Err(failed("kilnyard serve ended the connection".to_owned())),
        };
        // Until the worker answers, Ctrl-C is for this process.
        if is_on_terminal && raw.is_none() {
            say!(
                "the root of {package} on {worker}, as it failed; your changes stay until it fails there again"
            );
            raw = RawMode::enter();
        }
        let written = match printed {
            FromShell::Errors => io::stderr().write_all(&body),
            _ => io::stdout().write_all(&body).and_then(|()| io::stdout().flush()),
        };
        written.context(Kind::Machine, "print the output of the command")?;
    }
}

/// Sends standard input to its end.
fn type_in(sending: &Mutex<UnixStream>) {
    let send = |header: ToShell, body: &[u8]| {
        relay::write(&mut *sending.lock().unwrap_or_else(PoisonError::into_inner), &header, body)
    };
    let mut bytes = vec![0; PART_BYTES_MAX];
    while let Ok(count @ 1..) = io::stdin().read(&mut bytes) {
        if send(ToShell::Input, &bytes[..count]).is_err() {
            return;
        }
    }
    // Without a connection the shell is over.
    let _ = send(ToShell::EndOfInput, b"");
}

/// Sends changes of the terminal's size, and ends the connection when a signal arrives.
fn watch(mut terminal: Option<Size>, sending: &Mutex<UnixStream>, closing: &UnixStream) {
    loop {
        thread::sleep(STEP);
        if signals::count() > 0 {
            // Without the lock, which is held while input waits.
            let _ = closing.shutdown(Shutdown::Both);
            return;
        }
        if let Some(known) = &mut terminal
            && *known != size()
            // While input waits, the size does too.
            && let Ok(mut stream) = sending.try_lock()
        {
            *known = size();
            if relay::write(&mut *stream, &ToShell::Size(*known), b"").is_err() {
                return;
            }
        }
    }
}

fn size() -> Size {
    let (columns, rows) = own_screen();
    Size { columns, rows }
}
