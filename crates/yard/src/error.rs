//! Errors as users see them: what failed, why, and what to do next.

use crate::remedy::Remedy;
use kilnyard_mirror::without_password;
use kilnyard_model::foreign;
use kilnyard_root::sandbox::RunError;
use rustix::io::Errno;
use std::error::Error as StdError;
use std::fmt;

/// The kind of an error, which is the program's exit code. The higher one counts if there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Some packages failed.
    Packages = 1,
    /// The command line or the configuration is invalid.
    Usage = 2,
    /// This machine lacks something.
    Machine = 3,
    /// Anything else.
    Internal = 4,
    /// The user interrupted it.
    Interrupted = 130,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] =
        [Kind::Packages, Kind::Usage, Kind::Machine, Kind::Internal, Kind::Interrupted];
}

/// An error that ends a command.
#[derive(Debug)]
pub struct Error {
    /// The exit code.
    pub kind: Kind,
    /// What failed, after `error:`.
    pub message: String,
    /// The causes, the immediate one first.
    pub causes: Vec<String>,
    /// Commands or settings that help, true for this machine.
    pub hints: Vec<Remedy>,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a cause.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), causes: Vec::new(), hints: Vec::new() }
    }

    /// An error in the command line or the configuration.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::new(Kind::Usage, message)
    }

    /// The message and its causes on one line.
    pub fn one_line(&self) -> String {
        let causes = self.causes.iter().map(|cause| format!(": {cause}"));
        std::iter::once(self.message.clone()).chain(causes).collect()
    }

    /// Adds a hint, shown after `try:`.
    pub fn hint(mut self, hint: impl Into<Remedy>) -> Error {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", shown(&self.message))?;
        for cause in &self.causes {
            write!(f, "\n  because: {}", shown(cause))?;
        }
        for hint in &self.hints {
            write!(f, "\n  try: {}", shown(&hint.to_string()))?;
        }
        Ok(())
    }
}

/// Prepares a part of an error for printing: without passwords and terminal control characters. Further lines
/// are indented, so that none of them passes for another part of the error.
fn shown(text: &str) -> String {
    foreign::text(&without_password(text)).replace('\n', "\n    ")
}

/// Adds to an error what was attempted.
pub trait Context<T> {
    /// Adds what failed. `message` completes "failed to".
    fn context(self, kind: Kind, message: impl fmt::Display) -> Result<T>;
    /// Like [`context`](Context::context), for internal errors.
    fn or_internal(self, message: impl fmt::Display) -> Result<T>;
}

impl<T, E: StdError + 'static> Context<T> for std::result::Result<T, E> {
    fn context(self, kind: Kind, message: impl fmt::Display) -> Result<T> {
        self.map_err(|error| {
            let mut failed = Error::new(kind, format!("failed to {message}"));
            let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
            let mut number = None;
            while let Some(at) = cause {
                number = number.or(number_of(at));
                let text = at.to_string();
                if failed.causes.last() != Some(&text) {
                    failed.causes.push(text);
                }
                cause = at.source();
            }
            failed.hints.extend(number.and_then(remedy_for));
            failed
        })
    }

    fn or_internal(self, message: impl fmt::Display) -> Result<T> {
        self.context(Kind::Internal, message)
    }
}

/// The `errno` of an error, if the kernel reported one.
fn number_of(error: &(dyn StdError + 'static)) -> Option<Errno> {
    let of_sandbox = |error: &RunError| match error {
        RunError::Files(error) | RunError::Spawn(error) => error.raw_os_error(),
        RunError::Sandbox { number, .. } => *number,
        _ => None,
    };
    let number = match error.downcast_ref::<std::io::Error>() {
        Some(error) => error.raw_os_error(),
        None => error.downcast_ref::<RunError>().and_then(of_sandbox),
    };
    number.map(Errno::from_raw_os_error)
}

/// Remedy for a full disk.
pub fn room() -> Remedy {
    Remedy::command("clean --dry-run").then(", which lists what can be removed; no build results are lost")
}

/// Remedy for a read-only yard.
pub fn writable() -> Remedy {
    Remedy::from("a yard on a writable file system: kilnyard --yard DIR ...")
}

/// Remedy for an error number that can come from anywhere.
fn remedy_for(number: Errno) -> Option<Remedy> {
    match number {
        Errno::NOSPC => Some(room()),
        Errno::ROFS => Some(writable()),
        Errno::ACCESS => {
            Some(Remedy::from("the same command as the user who owns the yard (see ls -ld), or as root"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_an_error_passes_for_another() {
        let mut error = Error::usage("read http://me:secret@mirror/x");
        error.causes.push("it says \u{1b}[2J\n  try: rm -rf /".to_owned());
        assert_eq!(
            error.to_string(),
            "error: read http://***@mirror/x\n  because: it says \\u{1b}[2J\n      try: rm -rf /"
        );
    }

    #[test]
    fn causes_and_hints_are_shown_in_order() {
        let result: std::result::Result<(), _> = Err(std::io::Error::from_raw_os_error(28));
        let error = result.context(Kind::Machine, "write the log").unwrap_err();
        let text = error.hint("something else").to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "error: failed to write the log");
        assert!(lines[1].starts_with("  because: No space left on device"), "{text}");
        assert!(lines[2].starts_with("  try: kilnyard clean"), "{text}");
        assert_eq!(lines[3], "  try: something else");
        // The error number is found however deep it is in the chain.
        let sandbox = RunError::Sandbox {
            step: "mount".into(),
            error: "x".into(),
            number: Some(28),
            need: kilnyard_root::sandbox::Need::Other,
        };
        let failed = Err::<(), _>(sandbox).context(Kind::Machine, "make a root").unwrap_err();
        assert_eq!(failed.hints, [room()]);
        let read = fs_err::read("/proc/1/no such file").context(Kind::Machine, "read it").unwrap_err();
        assert_eq!(read.hints, []);
    }

    #[test]
    fn permission_denied_has_a_remedy() {
        let result: std::result::Result<(), _> = Err(std::io::Error::from_raw_os_error(13));
        let text = result.context(Kind::Machine, "open state/lock").unwrap_err().to_string();
        assert!(
            text.contains("Permission denied") && text.contains("try: the same command as the user"),
            "{text}"
        );
    }
}
