//! Other machines that run commands of a scan, and check stored artifacts.

use kilnyard_model::artifact::Checked;
use kilnyard_model::order::BuildOrder;
use kilnyard_model::role::Role;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_process::Captured;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicBool;

/// Performs tasks on other machines. Each call may block, and may come from any thread.
pub trait Helpers: Sync {
    /// How many tasks for this role other machines perform at once. The first call waits a moment for them.
    fn slots(&self, role: Role) -> u32;

    /// Runs the command of an order, and returns its output.
    ///
    /// # Errors
    /// It could not be run: this says nothing about the command, which may be run here.
    fn run(&self, order: BuildOrder, cancel: &AtomicBool) -> io::Result<Captured>;

    /// Reads artifacts from where machines share them, and compares their hashes. Those that could not be read are absent.
    ///
    /// # Errors
    /// None could be read: this says nothing about them.
    fn check(
        &self,
        artifacts: Vec<Sha256Hex>,
        cancel: &AtomicBool,
    ) -> io::Result<HashMap<Sha256Hex, Checked>>;
}

/// No other machines.
#[derive(Clone, Copy, Debug)]
pub struct NoHelpers;

impl Helpers for NoHelpers {
    fn slots(&self, _: Role) -> u32 {
        0
    }

    fn run(&self, _: BuildOrder, _: &AtomicBool) -> io::Result<Captured> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn check(&self, _: Vec<Sha256Hex>, _: &AtomicBool) -> io::Result<HashMap<Sha256Hex, Checked>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
