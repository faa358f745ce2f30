//! The connection from a lease's build to the coordinator.

use kilnyard_model::artifact::Checked;
use kilnyard_model::order::TestOrder;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_protocol::{Answer, Built, Progress};
use std::path::Path;

/// Why what a test names is not on this machine. Each reason is a sentence.
#[derive(Debug)]
pub enum Unprovided {
    /// The coordinator does not let this build read it: another one may have taken over the run after the answer.
    Refused(String),
    /// Anything else.
    Failed(String),
}

/// See the module documentation. Called from the thread that performs the lease.
pub trait Link {
    /// Reports progress; never blocks or fails.
    fn report(&self, progress: Progress);

    /// Reports the outputs, which are in this folder, and waits for the coordinator's answer. An error gives the reason why there is no answer;
    /// the build then fails as a failure of the machine.
    fn built(&self, built: &Built, folder: &Path) -> Result<Answer, String>;

    /// Brings everything that the test of an answer names to this machine, which has the outputs already.
    fn provide_test(&self, test: &TestOrder) -> Result<(), Unprovided>;

    /// Reads an artifact where the coordinator's machines share them. An error gives the reason why it could not be read.
    fn check(&self, sha256: &Sha256Hex) -> Result<Checked, String>;
}

/// A link without a coordinator, for work that is not a build.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Link for Silent {
    fn report(&self, _progress: Progress) {}

    fn built(&self, _built: &Built, _folder: &Path) -> Result<Answer, String> {
        Err("not connected to a coordinator".to_owned())
    }

    fn provide_test(&self, _test: &TestOrder) -> Result<(), Unprovided> {
        Ok(())
    }

    fn check(&self, _: &Sha256Hex) -> Result<Checked, String> {
        Err("not connected to a coordinator".to_owned())
    }
}
