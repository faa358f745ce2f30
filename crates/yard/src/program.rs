//! What commands of a family have of the program: it alone prints, and reads standard input and the environment.

use crate::environment::Environment;
use crate::error::Result;
use crate::words::json_text;
use crate::yard::Yard;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// The program, as a command of a family sees it.
pub trait Program: Sync {
    /// Writes a line for people.
    fn say(&self, line: &str);

    /// Writes data, with all that a terminal would obey escaped.
    fn print(&self, text: &str) -> Result<ExitCode>;

    /// Writes data as it is. A reader that stops is no error.
    fn write(&self, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<ExitCode>;

    /// Reads a file that may be packed, or standard input where it is called `-`.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Notes signals from now on, so that what takes long ends in order.
    fn catch_signals(&self);

    /// The variables that are set.
    fn environment(&self) -> &Environment;

    /// Opens the yard of the command line.
    fn yard(&self) -> Result<Yard>;

    /// Opens the yard in this folder.
    fn yard_in(&self, folder: &Path) -> Result<Yard>;
}

impl dyn Program + '_ {
    /// Writes a value as JSON.
    pub fn print_json(&self, value: &serde_json::Value) -> Result<ExitCode> {
        self.print(&format!("{}\n", json_text(&format_args!("{value:#}"))))
    }
}
