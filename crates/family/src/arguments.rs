//! Typed arguments of a family's commands.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use kilnyard_yard::error::{Error, Result};

/// Adds options to a command and keeps its description.
pub fn extend<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    T::augment_args(command).about(about).long_about(None)
}

/// Converts parsed command-line arguments into `T`.
pub fn read<T: FromArgMatches>(arguments: &ArgMatches) -> Result<T> {
    T::from_arg_matches(arguments).map_err(|error| Error::usage(error.to_string()))
}
