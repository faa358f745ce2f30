//! Leases whose output is the result: commands, such as the make of a directory in a scan of a tree, and checks of stored
//! artifacts.

use crate::Worker;
use crate::build::{Performance, cancelled, machine, unmade};
use crate::link::Link;
use crate::runner::{PlainRoot, Root, Running, Shown};
use kilnyard_model::order::{BuildOrder, Output, Stage};
use kilnyard_model::result::Failure;
use kilnyard_process::{End, Limits};
use kilnyard_protocol::{Built, Lease};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest output, in bytes: the largest directory of a tree prints half a megabyte.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// The longest time, in seconds, unless the order has another limit.
const WALL_SECONDS_MAX: u64 = 15 * 60;

/// The file of the output.
pub const CAPTURED: &str = "output";
/// The description of an output that was too long.
pub const TOO_LONG: &str = "output limit";
/// The description of a command that ran into its limit.
pub const OUT_OF_TIME: &str = "wall limit";

impl Performance<'_> {
    /// Runs the command of an order in a root, and returns its output as an artifact. The description of the output says
    /// how the command ended: its exit code, [`TOO_LONG`] or [`OUT_OF_TIME`].
    pub(crate) fn capture(&self, order: &BuildOrder) -> Result<Vec<Output>, Failure> {
        let failed = |error: &dyn ToString| machine(Stage::Unpack, error.to_string());
        let local = self.worker.local(&order.root).map_err(|error| failed(&error))?;
        let name = format!("scan-{}", self.lease.build);
        let shown = Shown::Order(&order.root, &local);
        let wanted = PlainRoot { name: &name, layers: &local.layers, shown, added: None, machine: None };
        let root = self.worker.runner.plain_root(&wanted).map_err(|error| unmade(Stage::Unpack, error))?;
        let outcome = root
            .provide(&order.root.inputs, &order.root.texts)
            .map_err(|error| failed(&error))
            .and_then(|()| self.capture_in(order, &*root));
        root.remove();
        outcome
    }

    fn capture_in(&self, order: &BuildOrder, root: &dyn Root) -> Result<Vec<Output>, Failure> {
        let mut output = Bounded::default();
        let wall_seconds_max = order.terms.wall_seconds_max.unwrap_or(WALL_SECONDS_MAX);
        let mut ended = String::new();
        for command in order.stages.iter().flat_map(|stage| &stage.commands) {
            let running = Running {
                command,
                sees_jobserver: false,
                has_network: false,
                limits: Limits::of_wall(wall_seconds_max as f64),
                cancel: self.cancel,
                membership: Some(&self.share.membership),
            };
            let outcome = root.run(&running, &mut output, &mut |_| {});
            ended = match outcome.end {
                End::Exit(code) => code.to_string(),
                End::Limit(..) => OUT_OF_TIME.to_owned(),
                End::LogFailed(_) if output.is_over => TOO_LONG.to_owned(),
                End::Cancelled => return Err(cancelled(Stage::Unpack)),
                End::LogFailed(error) | End::SandboxFailed(error) => {
                    return Err(machine(Stage::Unpack, error));
                }
            };
        }
        deliver(self.worker, self.lease, self.link, &output.bytes, ended)
    }
}

/// Reads the artifacts of a lease where machines share them. The output is a map of their hashes, without those that could
/// not be read.
pub(crate) fn check(
    worker: &Worker,
    lease: &Lease,
    cancel: &AtomicBool,
    link: &dyn Link,
) -> Result<Vec<Output>, Failure> {
    let (mut checked, mut unread) = (BTreeMap::new(), String::new());
    for sha256 in &lease.to_check {
        match link.check(sha256) {
            _ if cancel.load(Ordering::Relaxed) => return Err(cancelled(Stage::Fetch)),
            Ok(result) => drop(checked.insert(sha256.as_str(), result)),
            Err(reason) => unread = reason,
        }
    }
    if checked.is_empty() {
        return Err(machine(Stage::Fetch, unread));
    }
    let text = serde_json::to_vec(&checked).map_err(|error| machine(Stage::Collect, error))?;
    deliver(worker, lease, link, &text, 0.to_string())
}

/// Stores an output at the coordinator.
fn deliver(
    worker: &Worker,
    lease: &Lease,
    link: &dyn Link,
    bytes: &[u8],
    ended: String,
) -> Result<Vec<Output>, Failure> {
    let failed = |error: io::Error| machine(Stage::Collect, error);
    let folder = tempfile::tempdir_in(worker.settings.yard.join("state")).map_err(failed)?;
    let path = folder.path().join(CAPTURED);
    // It begins with the lease's id, so that no other file passes for it, and no two outputs are the same file.
    let mark = format!("{}\n", lease.attempt);
    fs_err::write(&path, [mark.as_bytes(), bytes].concat()).map_err(failed)?;
    let kept = worker.distfiles.insert(&path);
    let (sha256, size_bytes) = kept.map_err(|error| machine(Stage::Collect, error))?;
    let output = Output {
        name: CAPTURED.to_owned(),
        version: String::new(),
        architecture: String::new(),
        file: CAPTURED.to_owned(),
        sha256: sha256.as_str().to_owned(),
        size_bytes,
        content: sha256.as_str().to_owned(),
        description: ended,
        digests: Default::default(),
    };
    let built = Built { build: lease.build, outputs: vec![output.clone()], is_repeated: false };
    link.built(&built, folder.path()).map_err(|error| machine(Stage::Collect, error))?;
    // It is at the coordinator now.
    let _ = worker.distfiles.artifacts().remove(&sha256);
    Ok(vec![output])
}

/// Output up to [`OUTPUT_BYTES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    pub(crate) bytes: Vec<u8>,
    is_over: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_BYTES_MAX {
            self.is_over = true;
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
