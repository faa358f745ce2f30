//! The machine of a build, as recorded with it.

use serde::{Deserialize, Serialize};

/// The kernel and CPU of a machine. They are recorded with a build but are not part of its key: most outputs do not
/// depend on them, and the record shows which ones do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The name and release of the kernel, as `uname -sr` prints them.
    pub kernel: String,
    /// The kernel's name for the CPU model, or the architecture if it has none.
    pub cpu: String,
}

impl Host {
    /// The maximum length of `kernel` and `cpu` in bytes, since every record of a build has them.
    pub const BYTES_MAX: usize = 255;
}
