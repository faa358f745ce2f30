//! How a worker reaches its coordinator while it has a lease.

use kilnyard_protocol::{Answer, Built, Progress};

/// See the module. Called from the thread that performs the lease.
pub trait Link {
    /// Reports how the build goes.
    fn report(&self, progress: Progress);

    /// Reports what was built, and waits for what becomes of it. An error says why there is no answer: the build is the
    /// machine's failure then.
    fn built(&self, built: Built) -> Result<Answer, String>;
}

/// A link to no coordinator, for work that is no build.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Link for Silent {
    fn report(&self, _progress: Progress) {}

    fn built(&self, _built: Built) -> Result<Answer, String> {
        Err("there is no coordinator".to_owned())
    }
}
