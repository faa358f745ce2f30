//! The machine of a build, for its record.

use serde::{Deserialize, Serialize};

/// The kernel and CPU of a machine. They are recorded with a build and are no part of its key: most outputs do not depend on them, and
/// a build that does can be found by them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The name and release of the kernel, as `uname -sr` prints them.
    pub kernel: String,
    /// The model of the CPU, as the kernel names it; the architecture if it does not.
    pub cpu: String,
}

impl Host {
    /// The longest kernel or CPU that is accepted, in bytes: every record of a build has them.
    pub const BYTES_MAX: usize = 255;
}
