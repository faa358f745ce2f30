//! The services of the program that commands of families use. Only the program prints and reads standard input
//! and the environment.

use crate::environment::Environment;
use crate::error::Result;
use crate::words::json_text;
use crate::yard::Yard;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// The program, as seen by a family's command.
pub trait Program: Sync {
    /// Prints a line for users.
    fn say(&self, line: &str);

    /// Prints data, with every character that a terminal interprets escaped.
    fn print(&self, text: &str) -> Result<ExitCode>;

    /// Writes data as it is. It is not an error if the reader stops.
    fn write(&self, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<ExitCode>;

    /// Reads a file that may be compressed, or standard input if the path is `-`.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Records signals from now on, so that long operations end cleanly.
    fn catch_signals(&self);

    /// The environment variables.
    fn environment(&self) -> &Environment;

    /// Opens the yard that the command line names.
    fn yard(&self) -> Result<Yard>;

    /// Runs a command for each target that the command line names, one after another.
    fn each(&self, run: &dyn Fn(&Yard) -> Result<ExitCode>) -> Result<ExitCode>;

    /// Opens the yard in this folder.
    fn yard_in(&self, folder: &Path) -> Result<Yard>;
}

impl dyn Program + '_ {
    /// Prints a value as JSON.
    pub fn print_json(&self, value: &serde_json::Value) -> Result<ExitCode> {
        self.print(&format!("{}\n", json_text(&format_args!("{value:#}"))))
    }
}
