//! Other machines that run commands of a scan.

use kilnyard_model::order::BuildOrder;
use kilnyard_process::Captured;
use std::io;
use std::sync::atomic::AtomicBool;

/// Runs commands on other machines. Each call may block, and may come from any thread.
pub trait Helpers: Sync {
    /// How many commands other machines run at once. The first call waits a moment for them.
    fn slots(&self) -> u32;

    /// Runs the command of an order, and returns its output.
    ///
    /// # Errors
    /// It could not be run: this says nothing about the command, which may be run here.
    fn run(&self, order: BuildOrder, cancel: &AtomicBool) -> io::Result<Captured>;
}

/// No other machines.
#[derive(Clone, Copy, Debug)]
pub struct NoHelpers;

impl Helpers for NoHelpers {
    fn slots(&self) -> u32 {
        0
    }

    fn run(&self, _: BuildOrder, _: &AtomicBool) -> io::Result<Captured> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
