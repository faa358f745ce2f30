//! How files of a lease reach the worker, and files of a build the coordinator, if they do not share a folder.

use crate::Unprovided;
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::Checked;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{Output, TestOrder};
use kilnyard_model::provenance::Signed;
use kilnyard_model::result::Failure;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_protocol::{Built, Lease};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// See the module documentation. Called from the threads of builds; every method may block.
pub trait Supply: Sync {
    /// Brings everything that a lease names to this machine, before the build begins.
    ///
    /// # Errors
    /// Something is missing; the build fails with this.
    fn provide(&self, lease: &Lease, cancel: &AtomicBool) -> Result<(), Failure>;

    /// Brings everything that an announced lease names to this machine. Returns whether all of it is there.
    fn prepare(&self, lease: &Lease, cancel: &AtomicBool) -> bool;

    /// Brings everything that a test names.
    fn provide_test(&self, test: &TestOrder, cancel: &AtomicBool) -> Result<(), Unprovided>;

    /// The artifacts that this machine has from earlier builds, by hash; none if it shares the coordinator's.
    fn warm(&self) -> Vec<String>;

    /// Brings outputs to the coordinator, before it is asked about them. They are in this folder. An error is a sentence,
    /// and fails the build.
    fn deliver(
        &self,
        attempt: Attempt,
        built: &Built,
        folder: &Path,
        cancel: &AtomicBool,
    ) -> Result<(), String>;

    /// Reads an artifact where machines share them, and compares its hash. An error is the reason why it could not be read.
    fn check(&self, sha256: &Sha256Hex, cancel: &AtomicBool) -> Result<Checked, String>;

    /// Signs what was built; none if this worker signs nothing.
    fn sign(&self, lease: &Lease, outputs: &[Output]) -> Option<Signed>;

    /// Brings logs to the coordinator: their names, relative to the worker's folder and without the extension of
    /// compression. The result is reported after that.
    fn end(&self, lease: &Lease, logs: &[String]);
}

/// Coordinator and worker share a folder.
#[derive(Debug)]
pub struct SharedFolder<Sign> {
    /// Signs what was built.
    pub sign: Sign,
    /// Present if the coordinator stores outputs elsewhere before it answers: it reads them here.
    pub distfiles: Option<Arc<FileStore>>,
}

/// Signs nothing.
pub fn unsigned(_: &Lease, _: &[Output]) -> Option<Signed> {
    None
}

impl<Sign: Fn(&Lease, &[Output]) -> Option<Signed> + Sync> Supply for SharedFolder<Sign> {
    fn provide(&self, _: &Lease, _: &AtomicBool) -> Result<(), Failure> {
        Ok(())
    }

    fn prepare(&self, _: &Lease, _: &AtomicBool) -> bool {
        true
    }

    fn provide_test(&self, _: &TestOrder, _: &AtomicBool) -> Result<(), Unprovided> {
        Ok(())
    }

    fn warm(&self) -> Vec<String> {
        Vec::new()
    }

    fn deliver(&self, _: Attempt, built: &Built, folder: &Path, _: &AtomicBool) -> Result<(), String> {
        let Some(distfiles) = self.distfiles.as_ref().filter(|_| !built.is_repeated) else { return Ok(()) };
        let keep = |output: &Output| distfiles.insert(&folder.join(&output.file)).map(drop);
        built.outputs.iter().try_for_each(keep).map_err(|error| format!("failed to {error}"))
    }

    fn check(&self, _: &Sha256Hex, _: &AtomicBool) -> Result<Checked, String> {
        Err("the coordinator's machine reads its store itself".to_owned())
    }

    fn sign(&self, lease: &Lease, outputs: &[Output]) -> Option<Signed> {
        (self.sign)(lease, outputs)
    }

    fn end(&self, _: &Lease, _: &[String]) {}
}
