//! What can go wrong with a pool.

use crate::PilotName;
use std::io;
use std::path::PathBuf;

/// Why a driver could not do something. Texts of other programs in it are bounded and on one line.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A text is not the name of a pilot.
    #[error("`{0}` cannot be the name of a pilot: lower-case letters, digits and -, at most 57")]
    Name(String),
    /// A setting is not valid.
    #[error("{what} `{value}` is not valid: {expected}")]
    Invalid {
        /// The setting.
        what: &'static str,
        /// Its value, shortened.
        value: String,
        /// What is valid.
        expected: &'static str,
    },
    /// A program could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program did not end in time, and was killed. What it was asked to do may have been done.
    #[error("{program} did not end within {seconds} s{}", said(.stderr))]
    Timeout {
        /// The program.
        program: String,
        /// The time limit, in seconds.
        seconds: u64,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// A program failed.
    #[error("{program} failed ({end}){}", said(.stderr))]
    Failed {
        /// The program.
        program: String,
        /// `exit code 3` or `signal 9`.
        end: String,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// A program wrote more than is read, and was killed.
    #[error("{program} wrote more than {bytes_max} bytes{}", said(.stderr))]
    Flood {
        /// The program.
        program: String,
        /// The limit, in bytes.
        bytes_max: usize,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// An answer is not what the protocol says.
    #[error("cannot read the answer of {program}: {reason}")]
    Answer {
        /// The program or server.
        program: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or folder could not be read or written.
    #[error("{}", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Communication with a program failed.
    #[error("cannot communicate with {program}")]
    Pipe {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// No machine of the list takes a pilot.
    #[error("no host takes {pilot}: {reason}")]
    NoHost {
        /// The pilot.
        pilot: PilotName,
        /// The reason of each host.
        reason: String,
    },
    /// A server cannot be reached, or its answer did not arrive. What it was asked to do may have been done.
    #[error("{server} does not answer: {reason}")]
    Away {
        /// The server.
        server: String,
        /// Why.
        reason: String,
    },
    /// A server refused a request.
    #[error("{server} refused to {what}: {reason}")]
    Refused {
        /// The server.
        server: String,
        /// What it was asked.
        what: String,
        /// Its status and message.
        reason: String,
    },
}

impl PoolError {
    /// A setting that is not valid; the value is shortened.
    pub(crate) fn invalid(what: &'static str, value: &str, expected: &'static str) -> PoolError {
        PoolError::Invalid { what, value: crate::text::excerpt(value.as_bytes(), 80), expected }
    }

    /// The error and its causes on one line, as [`Figures`](crate::Figures) and logs show it.
    pub fn line(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        crate::text::reason(&text)
    }
}

fn said(stderr: &str) -> String {
    match stderr.is_empty() {
        true => String::new(),
        false => format!(": {stderr}"),
    }
}
