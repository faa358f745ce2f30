//! Commands whose output is the result, such as the make of a directory in a scan of a tree.

use crate::build::{Performance, machine, unmade};
use crate::runner::{PlainRoot, Root, Running, Shown};
use kilnyard_model::order::{BuildOrder, Output, Stage};
use kilnyard_model::result::Failure;
use kilnyard_process::{End, Limits};
use kilnyard_protocol::Built;
use std::io::{self, Write};

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
        let wanted = PlainRoot { name: &name, layers: &local.layers, shown, added: None };
        let root = self.worker.runner.plain_root(&wanted).map_err(|error| unmade(Stage::Unpack, error))?;
        let outcome = root
            .provide(&order.root.inputs, &order.root.texts)
            .map_err(|error| failed(&error))
            .and_then(|()| self.capture_in(order, &*root));
        root.remove();
        outcome
    }

    fn capture_in(&self, order: &BuildOrder, root: &dyn Root) -> Result<Vec<Output>, Failure> {
        let mut output = Bounded { bytes: Vec::new(), is_over: false };
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
                End::Cancelled => return Err(crate::build::cancelled(Stage::Unpack)),
                End::LogFailed(error) | End::SandboxFailed(error) => {
                    return Err(machine(Stage::Unpack, error));
                }
            };
        }
        let failed = |error: io::Error| machine(Stage::Collect, error);
        let folder = tempfile::tempdir_in(self.worker.settings.yard.join("state")).map_err(failed)?;
        let path = folder.path().join(CAPTURED);
        // It begins with the lease's id, so that no other file passes for it, and no two outputs are the same file.
        let mark = format!("{}\n", self.lease.attempt);
        fs_err::write(&path, [mark.as_bytes(), &output.bytes].concat()).map_err(failed)?;
        let kept = self.worker.distfiles.insert(&path);
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
        };
        let built = Built { build: self.lease.build, outputs: vec![output.clone()], is_repeated: false };
        self.link.built(built, folder.path()).map_err(|error| machine(Stage::Collect, error))?;
        // It is at the coordinator now.
        let _ = self.worker.distfiles.artifacts().remove(&sha256);
        Ok(vec![output])
    }
}

/// Output up to [`OUTPUT_BYTES_MAX`].
struct Bounded {
    bytes: Vec<u8>,
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
