//! The process that continues the run of another machine here: `kilnyard build --continued`.
//!
//! It is started while the leader is there, and resolves the set and makes its plan at once, which takes seconds. Then it
//! waits for a line on its standard input, without the lock of the yard. When that comes, it becomes the leader, and takes
//! over what was recorded meanwhile.

use super::coordinate::own_program;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_store::Number;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

/// The shortest time between two plans for the same run.
const AGAIN_MIN: Duration = Duration::from_secs(60);
/// Completes "failed to".
const CONTINUING: &str = "continue the run";

/// What a successor has been made ready for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continued {
    pub run: Number,
    /// The options of the command that began the run.
    pub arguments: Vec<String>,
    /// The number of the image of the yard that it has planned with: see [`super::mover::Mover::inputs`].
    pub inputs: u64,
}

/// See the module documentation. If it is dropped, the process ends.
pub struct Successor {
    pub of: Continued,
    started: Instant,
    /// Absent once it continues the run.
    child: Option<Child>,
    input: Option<ChildStdin>,
}

impl Successor {
    /// Starts the process.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(yard: &Yard, of: Continued) -> Result<Successor> {
        let mut command = own_program(yard);
        command.args(["build", "--continued"]).args(&of.arguments).stdin(Stdio::piped());
        let mut child = command.spawn().context(Kind::Machine, CONTINUING)?;
        let input = child.stdin.take();
        Ok(Successor { of, started: Instant::now(), child: Some(child), input })
    }

    /// Whether this is the process for that. Its plan may be of an earlier image for a while, as that of the leader is: files
    /// of the user may change all the time.
    pub fn is_for(&self, wanted: &Continued) -> bool {
        let is_same_run = self.of.run == wanted.run && self.of.arguments == wanted.arguments;
        is_same_run && (self.of.inputs == wanted.inputs || self.started.elapsed() < AGAIN_MIN)
    }

    /// Lets the process begin.
    ///
    /// # Errors
    /// It has ended: the next attempt starts another one.
    pub fn begin(mut self) -> Result<Child> {
        if let Some(input) = &mut self.input {
            input.write_all(b"\n").context(Kind::Machine, CONTINUING)?;
        }
        self.child.take().ok_or_else(|| Error::new(Kind::Internal, format!("failed to {CONTINUING}")))
    }

    /// Whether the process has ended, as it does if it cannot make a plan.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // It may be planning, and not read its input yet.
        drop(self.input.take());
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        std::thread::spawn(move || child.wait());
    }
}
