//! A command on a terminal, or with pipes, whose other ends are on the host.

use super::Output;
use crate::frame::{Interaction, Screen};
use kilnyard_process::Terminal;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;

/// Where the sandbox is described to the process that enters it.
const SPECIFICATION: &str = "/tmp/console.json";

/// What the host sends during an interaction.
pub(super) enum Input {
    /// Bytes; none are the end.
    Typed(Vec<u8>),
    /// Another size of the terminal.
    Resize(Screen),
}

/// Runs a sandbox; returns its exit code.
pub(super) fn interact(
    interaction: &Interaction,
    output: &Output,
    inputs: &Receiver<Input>,
) -> io::Result<i32> {
    let run = |command: Command| {
        let Started { mut child, terminal, mut input, outputs } =
            Started::start(command, interaction.screen)?;
        std::thread::scope(|scope| {
            let reading: Vec<_> = outputs
                .into_iter()
                .map(|mut from| {
                    let mut to = output.clone();
                    scope.spawn(move || io::copy(&mut from, &mut to))
                })
                .collect();
            loop {
                if let Some(status) = child.try_wait()? {
                    for thread in reading {
                        let _ = thread.join();
                    }
                    return Ok(status.code().unwrap_or(1));
                }
                match inputs.recv_timeout(std::time::Duration::from_millis(50)) {
                    Ok(Input::Typed(bytes)) if bytes.is_empty() && terminal.is_none() => {
                        input = Box::new(io::sink())
                    }
                    // A command that has closed its input ends by itself.
                    Ok(Input::Typed(bytes)) => drop(input.write_all(&bytes).and_then(|()| input.flush())),
                    Ok(Input::Resize(Screen { columns, rows })) => {
                        if let Some(terminal) = &terminal {
                            let _ = terminal.resize(columns, rows);
                        }
                    }
                    Err(_) => {}
                }
            }
        })
    };
    interaction.sandbox.run_interactively(Path::new(SPECIFICATION), run)
}

struct Started {
    child: Child,
    terminal: Option<Terminal>,
    input: Box<dyn Write>,
    outputs: Vec<Box<dyn Read + Send>>,
}

impl Started {
    fn start(mut command: Command, screen: Option<Screen>) -> io::Result<Started> {
        if let Some(Screen { columns, rows }) = screen {
            let (terminal, child) = Terminal::start(command, columns, rows)?;
            let (input, output) = (Box::new(terminal.keyboard()?), Box::new(terminal.screen()?));
            return Ok(Started { child, terminal: Some(terminal), input, outputs: vec![output] });
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let lost = || io::Error::other("a pipe of the command is missing");
        let input = Box::new(child.stdin.take().ok_or_else(lost)?);
        let outputs: Vec<Box<dyn Read + Send>> = vec![
            Box::new(child.stdout.take().ok_or_else(lost)?),
            Box::new(child.stderr.take().ok_or_else(lost)?),
        ];
        Ok(Started { child, terminal: None, input, outputs })
    }
}
